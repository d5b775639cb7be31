// Hands out the session's fences to the parts of the shim. A fence goes to its next owner when the
// last value that the previous owner asked for has arrived. The values go on from there, so a late
// signal never moves a fence back.
#pragma once

#include <cstdint>
#include <mutex>
#include <vector>

#include "proto/ring_abi.h"

namespace detshare::shim {

struct OwnedFence {
  FenceIndex index = kNoFence;
  uint64_t value = 0;  // the highest value that was ever asked for
};

// Take, TakeSpare and Give: any thread, a mutex. Reached: any thread, lock-free.
class FenceAllocator {
 public:
  // `fences` has `count` entries and outlives the allocator.
  FenceAllocator(Fence* fences, uint32_t count) : fences_(fences), count_(count) {}

  // Returns a fence and its value: the next value to ask for is `value` + 1. The index is kNoFence
  // if no fence is left.
  OwnedFence Take();
  // The same for an owner that can do without: an eighth of all fences is left to others.
  OwnedFence TakeSpare();
  // Gives a fence back. `value` is the highest that was asked for; it may still be on its way.
  void Give(FenceIndex index, uint64_t value);

  Fence& operator[](FenceIndex index) const { return fences_[index]; }
  // Acquire: what the signal stands for happened before.
  bool Reached(FenceIndex index, uint64_t value) const {
    return fences_[index].load(std::memory_order_acquire) >= value;
  }

 private:
  // These two need mutex_.
  void Collect();  // the fences of pending_ whose values have arrived
  OwnedFence TakeFree();

  Fence* const fences_;
  const uint32_t count_;
  std::mutex mutex_;  // guards the rest
  uint32_t used_ = 0;
  std::vector<OwnedFence> free_;     // their values have arrived
  std::vector<OwnedFence> pending_;  // their values may not have arrived yet
};

}  // namespace detshare::shim
