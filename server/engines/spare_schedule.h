// Decides when spare engines (engines.h) begin.
//
//     one is missing --(kPause)--> begins --(fails)-----------------> pauses, longer after each further failure
//                                     ^       (an engine wants room)-> pauses
//                                     +----------(the pause is over)------+
//
// Threading: one thread.
#pragma once

#include <chrono>
#include <cstddef>

#include "server/base/retry_timer.h"

namespace detshare {

class SpareSchedule {
 public:
  using Clock = std::chrono::steady_clock;
  // The last spare engine got a group, whose first program loads its code: the driver serves one process at
  // a time.
  static constexpr std::chrono::milliseconds kPause{300};
  // After the first failure, the most to which pauses double, and after an engine wanted device memory.
  static constexpr std::chrono::seconds kFailurePause{10}, kMaxFailurePause{300}, kRoomPause{60};

  // Keeps so many from now on; at first 0.
  void Keep(size_t count) { wanted_ = count; }
  size_t wanted() const { return wanted_; }
  // Makes fd() readable when some may begin, if it is not to become so already. Call it while some are
  // missing.
  void Start(Clock::time_point now);
  int fd() const { return timer_.fd(); }
  // fd() is readable, or nothing speaks against beginning at once. Returns how many must begin now beside the
  // `there` that exist.
  size_t TakeDue(size_t there, Clock::time_point now);
  // One could not begin or has ended by itself, after it ran for `ran`. Returns the pause.
  std::chrono::seconds Failed(Clock::time_point now, Clock::duration ran);
  // One has got its group.
  void Succeeded() { failures_ = 0; }
  void LeaveRoom(Clock::time_point now);

 private:
  RetryTimer timer_;
  bool timer_runs_ = false;
  size_t wanted_ = 0;
  int failures_ = 0;  // one after the other
  Clock::time_point not_before_;
};

}  // namespace detshare
