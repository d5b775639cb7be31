// Who uses which fence of the session. A fence goes to its next user when the last value that the
// former one asked for has arrived, and its values go on from there: so a late signal never takes a
// fence back.
#pragma once

#include <cstdint>
#include <mutex>
#include <vector>

#include "proto/ring_abi.h"

namespace detshare::shim {

struct OwnedFence {
  FenceIndex index = kNoFence;
  uint64_t value = 0;  // the highest that was ever asked for
};

class FenceAllocator {
 public:
  // `fences` has `count` entries and outlives the pool.
  FenceAllocator(Fence* fences, uint32_t count) : fences_(fences), count_(count) {}

  // A fence whose value is lease.value: the next to ask for is lease.value + 1. index kNoFence when
  // there are no more.
  OwnedFence Take();
  // `value`: the highest that was asked for.
  void Give(FenceIndex index, uint64_t value);

  Fence& operator[](FenceIndex index) const { return fences_[index]; }
  // Acquire: what the signal stands for happened before.
  bool Reached(FenceIndex index, uint64_t value) const {
    return fences_[index].load(std::memory_order_acquire) >= value;
  }

 private:
  Fence* const fences_;
  const uint32_t count_;
  std::mutex mutex_;  // guards the rest
  uint32_t used_ = 0;
  std::vector<OwnedFence> free_;     // their values have arrived
  std::vector<OwnedFence> pending_;  // perhaps not yet
};

}  // namespace detshare::shim
