#include "client_shim/transport/fence_pool.h"

namespace detshare::shim {

FenceLease FencePool::Take() {
  const std::lock_guard lock(mutex_);
  if (free_.empty() && (used_ == count_ || pending_.size() > 64)) {
    size_t kept = 0;
    for (const FenceLease& lease : pending_) {
      if (Reached(lease.index, lease.value)) {
        free_.push_back(lease);
      } else {
        pending_[kept++] = lease;
      }
    }
    pending_.resize(kept);
  }
  if (!free_.empty()) {
    const FenceLease lease = free_.back();
    free_.pop_back();
    return lease;
  }
  if (used_ == count_) return {};
  return {used_++, 0};
}

void FencePool::Give(FenceIndex index, uint64_t value) {
  if (index == kNoFence) return;
  const std::lock_guard lock(mutex_);
  (Reached(index, value) ? free_ : pending_).push_back({index, value});
}

}  // namespace detshare::shim
