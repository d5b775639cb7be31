// Calls a function ten times a second while there is something to sample.
#pragma once

#include <chrono>
#include <functional>
#include <thread>

#include "proto/mutex.h"

namespace detshare {

// Any thread may call it.
class UseSampler {
 public:
  // `sample` gets the time since the sample before, or since something was there to sample. It is
  // called on the object's own thread.
  explicit UseSampler(std::function<void(std::chrono::nanoseconds)> sample);
  ~UseSampler();
  UseSampler(const UseSampler&) = delete;
  UseSampler& operator=(const UseSampler&) = delete;

  // There is one thing more, or one thing less, to sample.
  void Begin();
  void End();

 private:
  void Run();

  const std::function<void(std::chrono::nanoseconds)> sample_;
  Mutex mutex_;
  CondVar changed_;
  int count_ ABSL_GUARDED_BY(mutex_) = 0;
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace detshare
