// Whether any session may have work on a device. Who watches over devices sleeps while none has.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

namespace detshare {

// Any thread.
class Activity {
 public:
  void Begin() { Change(1); }
  void End() { Change(-1); }

  bool active() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return active_ != 0;
  }
  // Returns true after `period`, as soon as somebody is active then, or was since the last return.
  // False once Stop() was called.
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
  bool news_ = false;  // something began or ended since Await() returned
  bool stopped_ = false;
};

}  // namespace detshare
