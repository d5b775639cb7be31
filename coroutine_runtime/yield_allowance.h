// How long the work of a coroutine yields to that of other processes: for half of the time at most. So a
// process that claims to have urgent work without end, because it is broken or hostile, halves the speed
// of others, as such work in the hardware does.
//
// The code is pure: time is an argument. Threading: one thread.
#pragma once

#include <algorithm>
#include <utility>

#include "policy/policy.h"

namespace detshare {

class YieldAllowance {
 public:
  // A coroutine that did not yield for long may yield for twice this time at once.
  static constexpr policy::Nanoseconds kMax = 100 * policy::kMillisecond;
  // What it has before it yields again.
  static constexpr policy::Nanoseconds kAgain = kMax / 2;

  // Whether the coroutine yields until the next call. `yielded`: for how long it did so in all.
  bool Look(policy::Nanoseconds now, policy::Nanoseconds yielded) {
    const policy::Nanoseconds passed = now - std::exchange(looked_at_, now);
    const policy::Nanoseconds spent = yielded - std::exchange(yielded_, yielded);
    left_ = std::clamp(left_ + passed / 2 - spent, -kMax, kMax);
    if (left_ <= 0) yields_ = false;
    if (left_ >= kAgain) yields_ = true;
    return yields_;
  }

 private:
  policy::Nanoseconds looked_at_ = 0, yielded_ = 0, left_ = kMax;
  bool yields_ = true;
};

}  // namespace detshare
