// Lets threads sleep on words of memory that processes share.
#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <climits>
#include <cstdint>

namespace detshare {

// Sleeps while *word == expected, at most `timeout`. Returns 0 when woken, else an errno: EAGAIN
// (the word differs), ETIMEDOUT, EINTR, or EFAULT (the memory is gone).
inline int FutexWait(std::atomic<uint32_t>* word, uint32_t expected,
                     std::chrono::nanoseconds timeout) {
  timespec relative{};
  relative.tv_sec = timeout.count() / 1000000000;
  relative.tv_nsec = timeout.count() % 1000000000;
  const long result = syscall(SYS_futex, reinterpret_cast<uint32_t*>(word), FUTEX_WAIT, expected,
                              &relative, nullptr, 0);
  return result == 0 ? 0 : errno;
}

// Sleeps while *first == expected_first and *second == expected_second, without a limit. Returns
// errors as FutexWait(), and ENOSYS if the kernel cannot wait for two words.
inline int FutexWaitForEither(std::atomic<uint32_t>* first, uint32_t expected_first,
                              std::atomic<uint32_t>* second, uint32_t expected_second) {
  futex_waitv words[2] = {
      {expected_first, reinterpret_cast<uint64_t>(first), FUTEX_32, 0},
      {expected_second, reinterpret_cast<uint64_t>(second), FUTEX_32, 0},
  };
  return syscall(SYS_futex_waitv, words, 2, 0, nullptr, 0) >= 0 ? 0 : errno;
}

// Wakes every thread that sleeps on `word`, in all processes.
inline void FutexWake(std::atomic<uint32_t>* word) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(word), FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace detshare
