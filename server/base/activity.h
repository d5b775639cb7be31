// Tells whether any session may have work on a device. Threads that watch devices sleep while no
// session has.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

namespace detshare {

// Begin() and End() surround the time in which one session may have work. Any thread may call this
// class.
class Activity {
 public:
  void Begin() { Change(1); }
  void End() { Change(-1); }

  bool active() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return active_ != 0;
  }
  // Waits for `period`, and then until a session is active or has been active since the last
  // return. Then returns true. Returns false once Stop() has been called.
  bool Await(std::chrono::milliseconds period) {
    std::unique_lock<std::mutex> lock(mutex_);
    if (changed_.wait_for(lock, period, [this] { return stopped_; })) return false;
    changed_.wait(lock, [this] { return stopped_ || active_ != 0 || news_; });
    news_ = false;
    return !stopped_;
  }
  void Stop() {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      stopped_ = true;
    }
    changed_.notify_all();
  }

 private:
  void Change(int by) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      active_ += by;
      news_ = true;
    }
    changed_.notify_all();
  }

  mutable std::mutex mutex_;  // guards the rest
  std::condition_variable changed_;
  int active_ = 0;
  bool news_ = false;  // a session began or ended since Await() returned
  bool stopped_ = false;
};

}  // namespace detshare
