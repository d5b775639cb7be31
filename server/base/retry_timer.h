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
  static constexpr std::chrono::milliseconds kPeriod{1000};

  explicit RetryTimer(std::chrono::milliseconds period = kPeriod)
      : period_(period), fd_(timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC)) {}
  ~RetryTimer() {
    if (fd_ >= 0) close(fd_);
  }
  RetryTimer(const RetryTimer&) = delete;
  RetryTimer& operator=(const RetryTimer&) = delete;

  // Readable from the period after Start() until Clear(); -1: there is none.
  int fd() const { return fd_; }
  void Start() {
    itimerspec once{};
    once.it_value.tv_sec = period_.count() / 1000;
    once.it_value.tv_nsec = period_.count() % 1000 * 1'000'000;
    timerfd_settime(fd_, 0, &once, nullptr);
  }
  void Clear() {
    uint64_t expired = 0;
    [[maybe_unused]] const ssize_t got = read(fd_, &expired, sizeof(expired));
  }

 private:
  const std::chrono::milliseconds period_;
  const int fd_;
};

}  // namespace detshare
