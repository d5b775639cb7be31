// Threads for whose replies clients wait, on hosts whose CPUs are all busy.
//
// Such a thread works for microseconds at a time. Where a busy thread has the CPU, the kernel's
// scheduler (EEVDF) lets a thread that wakes wait until the next tick, for milliseconds. Natively the
// program's own thread does the work, and it has a CPU.
//   - Linux 6.12 lets a waking thread take the CPU at once if the thread asks for shorter slices than
//     the thread that runs. This needs no right: the share of the CPU stays the same.
//   - A thread that has just worked for longer than its share must wait even so, unless its nice value
//     is lower. This needs RLIMIT_NICE or CAP_SYS_NICE.
#pragma once

#include <sched.h>

#include <chrono>
#include <cstdint>

namespace detshare {

// How the kernel schedules the thread that creates the object and calls its functions. What the
// kernel does not know or allow has no effect.
class ThreadScheduling {
 public:
  // Gives the thread the shortest slices that the kernel has, 0.1 ms.
  ThreadScheduling();
  ThreadScheduling(const ThreadScheduling&) = delete;
  ThreadScheduling& operator=(const ThreadScheduling&) = delete;

  // While true, the thread has slices of 0.5 ms, in which it completes what a client asks for at once,
  // and the lowest nice value that it may have. (It keeps a nice value above 0, which somebody gave it
  // on purpose.) Such a thread must not poll.
  void SetPrompt(bool prompt);

  // Whether a thread of this process may have the nice value that SetPrompt() gives. Starts a thread.
  static bool MayBePrompt();

  // Let the thread run on all CPUs of the object's creation, or on one. CPUs begin with 0. A CPU on
  // which the thread could not run at that time is ignored.
  void RunAnywhere();
  void KeepOn(int cpu);

 private:
  cpu_set_t cpus_;
  int nice_ = 0;  // at the object's creation
  bool bound_ = false;
  bool prompt_ = false;
};

// Whether a thread gets a CPU soon when it wakes. The thread tells how late it woke from sleeps with a
// timeout.
//
// Threading: one thread.
class WakeUps {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  // `late`: the time from the end of the timeout until the thread ran.
  void Note(std::chrono::nanoseconds late, TimePoint now);

  // False for kDistrust after more than kMaxLate of kWindow sleeps ended kLate late or later.
  bool soon(TimePoint now) const { return now >= distrust_until_; }

  static constexpr std::chrono::microseconds kLate{250};
  static constexpr uint32_t kWindow = 512, kMaxLate = 3;
  static constexpr std::chrono::seconds kDistrust{10};

 private:
  uint32_t sleeps_ = 0, late_ = 0;  // of the present window
  TimePoint distrust_until_{};
};

// Whether two threads work in turn: one wakes the other and waits for its reply. Then they are best on
// one CPU while all CPUs are busy. Whichever of them sleeps leaves the CPU to the other, as if they
// were one thread. On two CPUs each of them waits for other threads whenever it wakes.
//
// Threading: one thread.
class Alternation {
 public:
  // The thread was woken. `replied`: it has replied since it was woken before.
  void NoteWake(bool replied);

  // Whether at least kMinReplied of the last kWindow wake-ups led to a reply.
  bool alternates() const { return alternates_; }

  static constexpr uint32_t kWindow = 64, kMinReplied = 48;

 private:
  uint32_t wakes_ = 0, replied_ = 0;  // of the present window
  bool alternates_ = false;
};

}  // namespace detshare
