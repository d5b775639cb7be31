#include "client_shim/transport/fence_allocator.h"

namespace detshare::shim {

void FenceAllocator::Collect() {
  size_t kept = 0;
  for (const OwnedFence& fence : pending_) {
    if (Reached(fence.index, fence.value)) {
      free_.push_back(fence);
    } else {
      pending_[kept++] = fence;
    }
  }
  pending_.resize(kept);
}

OwnedFence FenceAllocator::TakeFree() {
  if (!free_.empty()) {
    const OwnedFence fence = free_.back();
    free_.pop_back();
    return fence;
  }
  if (used_ == count_) return {};
  return {used_++, 0};
}

OwnedFence FenceAllocator::Take() {
  const std::lock_guard lock(mutex_);
  if (free_.empty() && (used_ == count_ || pending_.size() > 64)) Collect();
  return TakeFree();
}

OwnedFence FenceAllocator::TakeSpare() {
  const std::lock_guard lock(mutex_);
  const auto spare = [this] { return free_.size() + (count_ - used_) > count_ / 8; };
  if (!spare() || (free_.empty() && pending_.size() > 64)) Collect();
  return spare() ? TakeFree() : OwnedFence{};
}

void FenceAllocator::Give(FenceIndex index, uint64_t value) {
  if (index == kNoFence) return;
  const std::lock_guard lock(mutex_);
  (Reached(index, value) ? free_ : pending_).push_back({index, value});
}

}  // namespace detshare::shim
