// Tells whether any session may have work on a device. Threads that watch devices sleep while no
// session has.
#pragma once

#include <chrono>

#include "proto/mutex.h"

namespace detshare {

// Begin() and End() surround the time in which one session may have work. Any thread may call this
// class.
class Activity {
 public:
  void Begin() { Change(1); }
  void End() { Change(-1); }

  bool active() const {
    const MutexLock lock(&mutex_);
    return active_ != 0;
  }
  // Waits for `period`, and then until a session is active or has been active since the last
  // return. Then returns true. Returns false once Stop() has been called.
  bool Await(std::chrono::milliseconds period) {
    MutexLock lock(&mutex_);
    if (changed_.WaitFor(&mutex_, period,
                         [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return stopped_; }))
      return false;
    changed_.Wait(&mutex_, [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return stopped_ || active_ != 0 || news_;
    });
    news_ = false;
    return !stopped_;
  }
  void Stop() {
    {
      const MutexLock lock(&mutex_);
      stopped_ = true;
    }
    changed_.SignalAll();
  }

 private:
  void Change(int by) {
    {
      const MutexLock lock(&mutex_);
      active_ += by;
      news_ = true;
    }
    changed_.SignalAll();
  }

  mutable Mutex mutex_;
  CondVar changed_;
  int active_ ABSL_GUARDED_BY(mutex_) = 0;
  bool news_ ABSL_GUARDED_BY(mutex_) = false;  // a session began or ended since Await() returned
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace detshare
