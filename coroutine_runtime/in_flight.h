// The work, in device time, that a session has submitted to one device and that is not known to be
// complete.
//
// Each stream's work is summed up until a fence is put behind it. When the fence is reached, the
// sum is subtracted. Threading: one thread. A checkpoint allocates nothing, unless more than kPlaces
// streams have one.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "coroutine_runtime/fence_pool.h"
#include "policy/policy.h"

namespace detshare {

class InFlight {
 public:
  static constexpr size_t kPlaces = 128;

  InFlight() { checkpoints_.reserve(kPlaces); }

  // `point` is reached when work of `estimate` is complete that no other checkpoint covers. Points
  // of one fence come in order.
  void Add(const FencePoint& point, policy::Nanoseconds estimate) {
    if (checkpoints_.size() >= kPlaces) {
      // Merges with the latest checkpoint of the same stream, which only delays that one. Merged with
      // another stream's, the work could count as complete while it runs.
      const auto latest =
          std::find_if(checkpoints_.rbegin(), checkpoints_.rend(),
                       [&](const Checkpoint& other) { return other.point.fence == point.fence; });
      if (latest != checkpoints_.rend()) {
        latest->point = point;
        latest->estimate += estimate;
        return;
      }
    }
    checkpoints_.push_back({point, estimate});
  }

  // Returns the sum of the work completed since the last call.
  policy::Nanoseconds TakeComplete() {
    policy::Nanoseconds complete = 0;
    std::erase_if(checkpoints_, [&](const Checkpoint& checkpoint) {
      if (!checkpoint.point.reached()) return false;
      complete += checkpoint.estimate;
      return true;
    });
    return complete;
  }

  bool empty() const { return checkpoints_.empty(); }
  void Clear() { checkpoints_.clear(); }

 private:
  struct Checkpoint {
    FencePoint point;
    policy::Nanoseconds estimate = 0;
  };
  std::vector<Checkpoint> checkpoints_;
};

}  // namespace detshare
