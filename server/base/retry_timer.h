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

  RetryTimer() : fd_(timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC)) {}
  ~RetryTimer() {
    if (fd_ >= 0) close(fd_);
  }
  RetryTimer(const RetryTimer&) = delete;
  RetryTimer& operator=(const RetryTimer&) = delete;

  // Readable from the time of the latest Start() until Clear(); -1: there is none.
  int fd() const { return fd_; }
  // `after`: above 0.
  void Start(std::chrono::milliseconds after = kPeriod) {
    itimerspec once{};
    once.it_value.tv_sec = after.count() / 1000;
    once.it_value.tv_nsec = after.count() % 1000 * 1'000'000;
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
