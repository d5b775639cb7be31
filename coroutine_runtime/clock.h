// Time as an argument: code that needs the time asks a Clock, so tests can control it.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace detshare {

// Nanoseconds of a clock that never goes back. The zero point is arbitrary. Threading: any thread.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual int64_t NowNanoseconds() const = 0;
};

class RealClock final : public Clock {
 public:
  int64_t NowNanoseconds() const override {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(
               std::chrono::steady_clock::now().time_since_epoch())
        .count();
  }
};

// Stands still until a caller advances it.
class ManualClock final : public Clock {
 public:
  int64_t NowNanoseconds() const override { return now_.load(std::memory_order_relaxed); }
  void Advance(int64_t nanoseconds) { now_.fetch_add(nanoseconds, std::memory_order_relaxed); }

 private:
  std::atomic<int64_t> now_{0};  // publishes only itself
};

}  // namespace detshare
