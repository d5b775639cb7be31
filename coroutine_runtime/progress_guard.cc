#include "coroutine_runtime/progress_guard.h"

#include <algorithm>

#include "policy/saturating.h"

namespace detshare {

ProgressGuard::Need ProgressGuard::Look(Nanoseconds now, uint64_t completions,
                                        Nanoseconds in_flight, bool may_be_stopped, bool waits) {
  if (completions != seen_ || since_ == 0) {
    const bool confirmed = stood_ != 0 && now <= share_until_;
    if (confirmed) {
      share_until_ = now + std::max(kShared, policy::Times(stood_, kSharedTimes));
      starved_until_ = share_until_ + policy::kSecond;
    }
    stood_ = 0;
    Begin(now, completions, may_be_stopped);
    return confirmed ? Need::kShare : Need::kNothing;
  }
  if (keeps_) return Need::kKeep;
  if (may_be_stopped != beside_own_) {
    Begin(now, completions, may_be_stopped);
    return Need::kNothing;
  }
  if (waits || now <= share_until_) return Need::kNothing;
  const Nanoseconds least = now < starved_until_ ? kStarvedAgain : kStarved;
  // After a trial in which nothing was complete, the next one is longer, and comes later.
  const Nanoseconds expected = may_be_stopped ? in_flight : std::max(in_flight, stood_);
  if (now - since_ < std::max(least, policy::Times(expected, kLate))) return Need::kNothing;
  if (may_be_stopped) {
    starved_until_ = now + policy::kSecond;
    keeps_ = true;
    return Need::kKeep;
  }
  stood_ = now - since_;
  share_until_ = now + std::max(kTrial, stood_);
  return Need::kShare;
}

void ProgressGuard::Reset() {
  since_ = stood_ = 0;
  keeps_ = false;
}

void ProgressGuard::Begin(Nanoseconds now, uint64_t completions, bool may_be_stopped) {
  since_ = now;
  seen_ = completions;
  beside_own_ = may_be_stopped;
  keeps_ = false;
}

}  // namespace detshare
