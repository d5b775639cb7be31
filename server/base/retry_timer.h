// A descriptor that becomes readable some time after something has failed, so that a loop tries again.
#pragma once

#include <sys/timerfd.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>

namespace detshare {

// Any thread may call it. Without descriptors, nothing is tried again.
class RetryTimer {
 public:
  static constexpr std::chrono::seconds kPeriod{1};

  RetryTimer() : fd_(timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC)) {}
  ~RetryTimer() {
    if (fd_ >= 0) close(fd_);
  }
  RetryTimer(const RetryTimer&) = delete;
  RetryTimer& operator=(const RetryTimer&) = delete;

  // Readable from kPeriod after Start() until Clear(); -1: there is none.
  int fd() const { return fd_; }
  void Start() {
    itimerspec once{};
    once.it_value.tv_sec = kPeriod.count();
    timerfd_settime(fd_, 0, &once, nullptr);
  }
  void Clear() {
    uint64_t expired = 0;
    [[maybe_unused]] const ssize_t got = read(fd_, &expired, sizeof(expired));
  }

 private:
  const int fd_;
};

}  // namespace detshare
