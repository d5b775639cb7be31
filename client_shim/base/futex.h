// Waits on words of memory that another process may change: spinning first, then a non-private
// futex.
#pragma once

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>

namespace detshare::shim {

// Sleeps until another thread or process wakes the word, or for timeout_us at most. Returns at once
// if *word is not `expected`. May also return without a reason, so the caller checks the word
// again.
inline void FutexWait(std::atomic<uint32_t>* word, uint32_t expected, uint32_t timeout_us) {
  timespec timeout{static_cast<time_t>(timeout_us / 1'000'000),
                   static_cast<long>(timeout_us % 1'000'000) * 1000};
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(word), FUTEX_WAIT, expected, &timeout, nullptr, 0);
}

// Wakes at most `count` of the threads that sleep on the word.
inline void FutexWake(std::atomic<uint32_t>* word, int count) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(word), FUTEX_WAKE, count, nullptr, nullptr, 0);
}

// Tells the CPU that this thread spins.
inline void CpuRelax() { __builtin_ia32_pause(); }

// Microseconds of CLOCK_MONOTONIC.
inline uint64_t NowMicroseconds() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000 + static_cast<uint64_t>(now.tv_nsec) / 1000;
}

// Polls done() for at most spin_us, with pauses. Returns true as soon as done() does, else false.
template <typename Done>
bool SpinUntil(Done done, uint32_t spin_us) {
  if (done()) return true;
  const uint64_t end = NowMicroseconds() + spin_us;
  do {
    for (int i = 0; i < 32; ++i) {
      CpuRelax();
      if (done()) return true;
    }
  } while (NowMicroseconds() < end);
  return false;
}

// The same, but gives the CPU to other threads between two polls: the one that makes done() true may
// need it.
template <typename Done>
bool YieldUntil(Done done, uint32_t limit_us) {
  const uint64_t end = NowMicroseconds() + limit_us;
  while (!done()) {
    if (NowMicroseconds() >= end) return done();
    sched_yield();
  }
  return true;
}

}  // namespace detshare::shim
