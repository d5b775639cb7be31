// How workers wake the scheduler's thread. A wake-up costs the worker a system call, and on a busy
// host the CPU for a moment. A client that waits for each of its operations has work that begins and
// ends thousands of times a second. As network cards moderate interrupts, such wake-ups are replaced
// by a thread that looks every kRest by itself.
#pragma once

#include <atomic>

#include "coroutine_runtime/clock.h"
#include "policy/policy.h"
#include "proto/mutex.h"

namespace detshare {

// Whether something happens often. Threading: one thread.
class EventRate {
 public:
  // `now` is never less than before.
  void Note(bool happened, policy::Nanoseconds now);
  bool often() const { return often_; }

  // An event happens often after a window with at least kBegin events, until the end of a window with
  // less than kEnd. Nothing happens more than once in kRest while it is moderated, so kEnd events are
  // half of what a window can have then.
  static constexpr policy::Nanoseconds kWindow = 10 * policy::kMillisecond;
  static constexpr int kBegin = 40, kEnd = 10;

 private:
  policy::Nanoseconds window_end_ = 0;
  int events_ = 0;  // of the present window
  bool often_ = false;
};

// Threading: one thread calls Take() and Wait(), any thread the others.
class ModeratedWake {
 public:
  using Nanoseconds = policy::Nanoseconds;

  explicit ModeratedWake(const Clock& clock) : clock_(clock) {}
  ModeratedWake(const ModeratedWake&) = delete;
  ModeratedWake& operator=(const ModeratedWake&) = delete;

  // Ends Wait() now.
  void WakeNow();
  // Ends Wait() now, or within kRest while this happens often. Makes no system call then.
  void Wake();
  // Ends Wait() for good.
  void Stop();

  // Whether somebody called WakeNow() or Wake() since the last Take(). What the callers stored before
  // is visible afterwards.
  bool Take();
  // Waits until there is something to take, or `limit` has passed. False after Stop().
  bool Wait(Nanoseconds limit);

  static constexpr Nanoseconds kRest = 500 * policy::kMicrosecond;

 private:
  const Clock& clock_;
  EventRate rate_;  // of what Take() returns
  // Publishes to the waiting thread what the callers stored before they called.
  std::atomic<bool> called_{false};
  // Tells callers that the thread looks at called_ by itself. The thread stores false, and looks at
  // called_ once more before it waits without a limit. A caller stores called_ before it looks at
  // rests_. All of this is sequentially consistent, so one of them sees the other's store.
  std::atomic<bool> rests_{false};
  Mutex mutex_;
  CondVar woken_;
  // The thread is to go on also if it rests. Changes together with called_, which is then true:
  // otherwise the thread would go on and find nothing, again and again.
  bool now_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace detshare
