#include "server/services/trace_lease.h"

#include <pthread.h>

#include <utility>

namespace detshare {

TraceLease::~TraceLease() {
  {
    const MutexLock lock(&mutex_);
    stopping_ = true;
    if (std::exchange(on_, false)) end_();
  }
  changed_.SignalAll();
  if (watch_.joinable()) watch_.join();
}

absl::StatusOr<uint64_t> TraceLease::Begin(absl::FunctionRef<absl::Status()> begin) {
  const MutexLock lock(&mutex_);
  if (on_) return absl::FailedPreconditionError("another client is taking a trace");
  if (absl::Status begun = begin(); !begun.ok()) {
    end_();
    return begun;
  }
  on_ = true;
  used_ = std::chrono::steady_clock::now();
  if (!watch_.joinable()) watch_ = std::thread([this] { Watch(); });
  changed_.SignalAll();
  return ++trace_;
}

absl::Status TraceLease::Use(uint64_t trace, bool last, absl::FunctionRef<void()> use) {
  const MutexLock lock(&mutex_);
  if (!on_ || trace != trace_) return absl::FailedPreconditionError("that trace has ended");
  use();
  used_ = std::chrono::steady_clock::now();
  if (last) {
    on_ = false;
    end_();
  }
  return absl::OkStatus();
}

void TraceLease::Watch() {
  pthread_setname_np(pthread_self(), "trace");
  MutexLock lock(&mutex_);
  while (!stopping_) {
    if (!on_) {
      changed_.Wait(&mutex_);
    } else if (std::chrono::steady_clock::now() - used_ >= timeout_) {
      on_ = false;
      end_();
    } else {
      changed_.WaitUntil(&mutex_, used_ + timeout_);
    }
  }
}

}  // namespace detshare
