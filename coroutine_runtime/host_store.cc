#include "coroutine_runtime/host_store.h"

#include <sys/mman.h>

#include <algorithm>

namespace detshare {

HostBlock::~HostBlock() {
  if (memory_ == nullptr) return;
  munmap(memory_, bytes_);
  const MutexLock lock(&store_->mutex_);
  store_->Change(store_->used_ - bytes_);
}

void HostStore::Change(uint64_t used) {
  used_ = used;
  if (shared_.own != nullptr) shared_.own->store(used);
}

absl::StatusOr<HostBlock> HostStore::Take(uint64_t bytes) {
  {
    const MutexLock lock(&mutex_);
    bool fits = bytes != 0 && bytes <= limit_ - used_;
    if (fits) {
      Change(used_ + bytes);
      fits = used_ <= limit_ - std::min(limit_, OfOthers());
      if (!fits) Change(used_ - bytes);
    }
    if (!fits)
      return absl::ResourceExhaustedError("the host's room for evicted device memory is used up");
  }
  void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) {
    const MutexLock lock(&mutex_);
    Change(used_ - bytes);
    return absl::ResourceExhaustedError("the host has no memory left");
  }
  // Huge pages cause fewer faults when the block is filled. A core dump of the daemon must not
  // write a tenant's memory to disk.
  madvise(memory, bytes, MADV_HUGEPAGE);
  madvise(memory, bytes, MADV_DONTDUMP);
  HostBlock block;
  block.store_ = this;
  block.memory_ = static_cast<std::byte*>(memory);
  block.bytes_ = bytes;
  return block;
}

uint64_t HostStore::used() const {
  const MutexLock lock(&mutex_);
  return used_;
}

uint64_t HostStore::used_by_all() const { return used() + OfOthers(); }

}  // namespace detshare
