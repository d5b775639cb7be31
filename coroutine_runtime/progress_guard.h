// Sees that a session's ordinary work makes no progress on a device with time-slice groups.
//
// Ordinary work has a short time slice, so it stands still beside work that does not end: beside urgent
// work, which may wait for it, and beside work of other programs on the GPU that the daemon does not
// serve. Nobody tells the daemon of the latter. So if nothing of the daemon's can be the cause, ordinary
// work gets the slice of other programs on trial. If work is complete in that time, they were the cause,
// and it keeps the slice for a while. Otherwise the work itself may take long.
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

  // Called every few milliseconds while the session may have ordinary work in flight.
  // `completions`: how often work was completed so far. `in_flight`: how long the work in flight should
  // take. `may_be_stopped`: the daemon has work that may stop it. `waits`: it waits for its turn, so it
  // cannot proceed.
  Need Look(Nanoseconds now, uint64_t completions, Nanoseconds in_flight, bool may_be_stopped,
            bool waits);
  // There is no ordinary work any more.
  void Reset();

  Nanoseconds share_until() const { return share_until_; }

 private:
  void Begin(Nanoseconds now, uint64_t completions, bool may_be_stopped);

  // Work makes no progress if it takes this long, and this many times its estimate. Where that was so in
  // the last second, the shorter time counts. It is longer than most requests of urgent work.
  static constexpr Nanoseconds kStarved = 100 * policy::kMillisecond;
  static constexpr Nanoseconds kStarvedAgain = 25 * policy::kMillisecond;
  static constexpr double kLate = 4;
  // For how long the work then shares the device, and how many times as long as it stood still.
  static constexpr Nanoseconds kTrial = 100 * policy::kMillisecond, kShared = policy::kSecond;
  static constexpr double kSharedTimes = 20;

  Nanoseconds since_ = 0;  // the same work is in flight beside the same; 0: there is none
  uint64_t seen_ = 0;      // completions at that time
  bool beside_own_ = false;
  bool keeps_ = false;
  // How long the work in flight stood still before its latest trial; 0: it had none.
  Nanoseconds stood_ = 0;
  Nanoseconds share_until_ = 0;
  Nanoseconds starved_until_ = 0;  // until when kStarvedAgain counts
};

}  // namespace detshare
