// The work, in device time, that a session has submitted to one device and that is not known to be
// complete.
//
// Each stream's work is summed up until a fence is put behind it. When the fence is reached, the
// sum is subtracted. Threading: one thread. A checkpoint allocates nothing.
#pragma once

#include <array>
#include <cstddef>

#include "coroutine_runtime/fence_pool.h"
#include "policy/policy.h"

namespace detshare {

class InFlight {
 public:
  // `point` is reached when work of `estimate` is complete that no other checkpoint covers. Points
  // of one fence come in order.
  void Add(const FencePoint& point, policy::Nanoseconds estimate) {
    if (count_ == checkpoints_.size()) {
      // Merges with the latest checkpoint of the same stream, or of any; that only delays it.
      size_t into = count_ - 1;
      for (size_t i = count_; i-- > 0;) {
        if (checkpoints_[i].point.fence == point.fence) {
          into = i;
          break;
        }
      }
      checkpoints_[into].estimate += estimate;
      if (checkpoints_[into].point.fence == point.fence) checkpoints_[into].point = point;
      return;
    }
    checkpoints_[count_++] = {point, estimate};
  }

  // Returns the sum of the work completed since the last call.
  policy::Nanoseconds TakeComplete() {
    policy::Nanoseconds complete = 0;
    size_t kept = 0;
    for (size_t i = 0; i < count_; ++i) {
      if (checkpoints_[i].point.reached()) {
        complete += checkpoints_[i].estimate;
      } else {
        checkpoints_[kept++] = checkpoints_[i];
      }
    }
    count_ = kept;
    return complete;
  }

  bool empty() const { return count_ == 0; }
  void Clear() { count_ = 0; }

 private:
  struct Checkpoint {
    FencePoint point;
    policy::Nanoseconds estimate = 0;
  };
  std::array<Checkpoint, 128> checkpoints_;
  size_t count_ = 0;
};

}  // namespace detshare
