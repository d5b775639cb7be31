// Keeps what kernels print.
#pragma once

#include <string>
#include <string_view>

#include "coroutine_runtime/device.h"
#include "proto/mutex.h"

namespace detshare {

class TextOutput final : public KernelOutput {
 public:
  void Print(std::string_view text) override {
    const MutexLock lock(&mutex_);
    printed_.append(text);
  }
  void PrintError(std::string_view text) override {
    const MutexLock lock(&mutex_);
    errors_.append(text);
  }
  void SetPending(bool pending) override {
    const MutexLock lock(&mutex_);
    pending_ = pending;
  }
  void NoteLoss(std::string_view) override {}

  std::string printed() const {
    const MutexLock lock(&mutex_);
    return printed_;
  }
  std::string errors() const {
    const MutexLock lock(&mutex_);
    return errors_;
  }
  bool pending() const {
    const MutexLock lock(&mutex_);
    return pending_;
  }

 private:
  mutable Mutex mutex_;
  std::string printed_ ABSL_GUARDED_BY(mutex_), errors_ ABSL_GUARDED_BY(mutex_);
  bool pending_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace detshare
