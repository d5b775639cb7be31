// Sees that a session's ordinary work makes no progress on a device with time-slice groups.
//
// Ordinary work has a short time slice, so it stands still beside work that does not end: beside urgent
// work, which may wait for it, and beside work of other programs on the GPU that the daemon does not
// serve. Nobody tells the daemon of the latter. So the time is counted in which nothing of the daemon's
// stops the work. If much less is complete than should be in that time, ordinary work gets the slice of
// other programs on trial. If more is complete then, they were the cause, and it keeps the slice for a
// while. Otherwise the work itself may take long.
//
// Threading: the worker of the session.
#pragma once

#include <cstdint>

#include "policy/policy.h"

namespace detshare {

class ProgressGuard {
 public:
  using Nanoseconds = policy::Nanoseconds;

  enum class Need {
    kNothing,
    kKeep,   // Device::KeepOrdinary, until there is another need
    kShare,  // Device::ShareOrdinary, until share_until()
  };

  struct Work {
    uint64_t completions = 0;     // how often work was completed so far
    Nanoseconds complete = 0;     // how long all that work should have taken
    Nanoseconds in_flight = 0;    // how long the work in flight should take
    bool may_be_stopped = false;  // the daemon has work that may stop it
    bool waits = false;           // for its turn, so it cannot proceed
  };
  // Called every few milliseconds while the session may have ordinary work in flight.
  Need Look(Nanoseconds now, const Work& work);
  // There is no ordinary work for now.
  void Pause();

  Nanoseconds share_until() const { return share_until_; }
  // Whether a trial has shown that others were the cause. Without that, a kernel may only take long.
  bool confirmed() const { return share_until_ != 0 && slow_ == 0; }

 private:
  // Progress without the daemon's own work in the way, and without a share of the device.
  struct Progress {
    Nanoseconds time = 0;      // that passed
    Nanoseconds complete = 0;  // the sum at its begin
  };

  void CountTime(Nanoseconds now, const Work& work);
  // `done`: what was complete in the time of `progress_`.
  Need BeginTrial(Nanoseconds now, Nanoseconds complete, Nanoseconds done);

  // Work makes no progress beside work of the daemon if nothing is complete for this long, and this many
  // times its estimate. Progress beside others is measured over as long. Where there was none in the last
  // second, the shorter time counts. It is longer than most requests of urgent work.
  static constexpr Nanoseconds kStarved = 100 * policy::kMillisecond;
  static constexpr Nanoseconds kStarvedAgain = 25 * policy::kMillisecond;
  static constexpr double kLate = 4;
  // Work should take this many times its estimate at most: some sessions run side by side.
  static constexpr double kSlow = 8;
  // Short work takes so much longer until the worker sees that it is complete.
  static constexpr Nanoseconds kSeen = 100 * policy::kMicrosecond;
  // The hardware takes this long, or less, to get back to ordinary work that it stopped (measured:
  // docs/preemption.md).
  static constexpr Nanoseconds kReload = 250 * policy::kMicrosecond;
  // A trial shows that others were the cause if this many times as much is complete in it.
  static constexpr double kConfirms = 4;
  // For how long the work then shares the device: so many times as long as it made no progress, within
  // these bounds. The others may be gone soon, and urgent work waits for longer meanwhile.
  static constexpr Nanoseconds kTrial = 100 * policy::kMillisecond;
  static constexpr Nanoseconds kSharesLeast = policy::kSecond, kSharesMost = 4 * policy::kSecond;
  static constexpr double kSharedTimes = 20;
  // After trials of slow work that showed nothing, the next one comes after kLate times this time, at most.
  static constexpr Nanoseconds kForgets = 2'500 * policy::kMillisecond;

  Nanoseconds looked_at_ = 0;  // 0: there was no work
  uint64_t seen_ = 0;          // completions at that time
  bool may_run_ = false;       // at that time nothing of the daemon's stopped the work
  // Since when the same work is in flight and work of the daemon may stop it; 0: that is not so.
  Nanoseconds stopped_since_ = 0;
  Nanoseconds reloaded_at_ = 0;  // until then the way back from such work counts
  bool keeps_ = false;

  Progress progress_;
  // The time of `progress_` at the latest trial; 0: there was none.
  Nanoseconds slow_ = 0;
  Nanoseconds confirmed_at_ = 0;   // the sum above which it shows that others were the cause
  Nanoseconds share_until_ = 0;    // 0: it has no share
  Nanoseconds starved_until_ = 0;  // until when kStarvedAgain counts
};

}  // namespace detshare
