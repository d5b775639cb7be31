#include "coroutine_runtime/progress_guard.h"

#include <algorithm>

#include "policy/saturating.h"

namespace detshare {

ProgressGuard::Need ProgressGuard::Look(Nanoseconds now, const Work& work) {
  const Nanoseconds complete =
      policy::Plus(work.complete, policy::Times(kSeen, static_cast<double>(work.completions)));
  if (work.completions != seen_ || looked_at_ == 0) {
    seen_ = work.completions;
    stopped_since_ = 0;
    keeps_ = false;
  }
  if (keeps_) return Need::kKeep;
  CountTime(now, work);
  const Nanoseconds least = now < starved_until_ ? kStarvedAgain : kStarved;
  if (now <= share_until_ && slow_ != 0 && complete > confirmed_at_) {
    share_until_ = now + std::clamp(policy::Times(slow_, kSharedTimes), kSharesLeast, kSharesMost);
    starved_until_ = share_until_ + policy::kSecond;
    slow_ = 0;
    return Need::kShare;
  }
  if (share_until_ != 0 && now > share_until_) {
    share_until_ = 0;
    progress_ = {.complete = complete};
  }
  if (work.waits) return Need::kNothing;
  if (work.may_be_stopped) {
    if (now - stopped_since_ < std::max(least, policy::Times(work.in_flight, kLate)))
      return Need::kNothing;
    starved_until_ = now + policy::kSecond;
    keeps_ = true;
    return Need::kKeep;
  }
  if (share_until_ != 0 ||
      progress_.time < std::max(least, policy::Times(std::max(work.in_flight, slow_), kLate)))
    return Need::kNothing;
  const Nanoseconds done = std::max(complete - progress_.complete, Nanoseconds{0});
  if (policy::Times(done, kSlow) < progress_.time) return BeginTrial(now, complete, done);
  slow_ = 0;
  progress_ = {.complete = complete};
  return Need::kNothing;
}

ProgressGuard::Need ProgressGuard::BeginTrial(Nanoseconds now, Nanoseconds complete,
                                              Nanoseconds done) {
  const double rate = static_cast<double>(done) / static_cast<double>(progress_.time);
  // If nothing was complete, the next trial is longer, and comes later.
  slow_ = done == 0 ? progress_.time : std::min(progress_.time, kForgets);
  const Nanoseconds length = done == 0 ? std::max(kTrial, slow_) : kTrial;
  confirmed_at_ = policy::Plus(complete, policy::Times(length, kConfirms * rate));
  share_until_ = now + length;
  return Need::kShare;
}

void ProgressGuard::CountTime(Nanoseconds now, const Work& work) {
  const bool may_run = !work.may_be_stopped && !work.waits;
  if (looked_at_ != 0 && may_run && may_run_)
    progress_.time += std::max(now - std::max(looked_at_, reloaded_at_), Nanoseconds{0});
  looked_at_ = now;
  may_run_ = may_run;
  if (!work.may_be_stopped) {
    stopped_since_ = 0;
    return;
  }
  if (stopped_since_ == 0) stopped_since_ = now;
  reloaded_at_ = now + kReload;
}

void ProgressGuard::Pause() {
  looked_at_ = stopped_since_ = 0;
  keeps_ = false;
}

}  // namespace detshare
