// Counts what the sessions that came through a tenant endpoint have used.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <utility>

#include "proto/mutex.h"

namespace detshare {

// Any thread may call it.
class EndpointUse {
 public:
  struct Figures {
    uint64_t sessions = 0;     // that were opened
    int64_t gpu_time = 0;      // nanoseconds with work on a device; devices are added up
    uint64_t peak_memory = 0;  // bytes of device memory, on the device with the most

    Figures& operator+=(const Figures& other) {
      sessions += other.sessions;
      gpu_time += other.gpu_time;
      peak_memory = std::max(peak_memory, other.peak_memory);
      return *this;
    }
  };

  void Add(const Figures& more) {
    const MutexLock lock(&mutex_);
    total_ += more;
    if (!forward_) return;
    unsent_ += more;
    if (forward_(unsent_)) unsent_ = Figures();
  }
  Figures total() const {
    const MutexLock lock(&mutex_);
    return total_;
  }
  // Passes all that is added from now on to `to` as well, which does not wait. It returns false if
  // it cannot take the figures now; then they come again, with the next ones.
  void Forward(std::function<bool(const Figures& more)> to) {
    const MutexLock lock(&mutex_);
    forward_ = std::move(to);
  }

 private:
  mutable Mutex mutex_;
  Figures total_ ABSL_GUARDED_BY(mutex_), unsent_ ABSL_GUARDED_BY(mutex_);
  std::function<bool(const Figures&)> forward_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace detshare
