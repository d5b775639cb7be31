#include "server/backends/cuda/ordinary_slice.h"

#include <utility>

namespace detshare::cuda {

OrdinarySlice::OrdinarySlice(std::function<void(std::chrono::microseconds)> set)
    : set_(std::move(set)), thread_([this] { Run(); }) {}

OrdinarySlice::~OrdinarySlice() {
  {
    const MutexLock lock(&keep_mutex_);
    stop_ = true;
  }
  kept_.Signal();
  thread_.join();
}

void OrdinarySlice::ShareWith(std::function<bool()> others_work) {
  const MutexLock lock(&mutex_);
  others_work_ = std::move(others_work);
}

void OrdinarySlice::Keep(bool keep) {
  {
    const MutexLock lock(&keep_mutex_);
    keepers_.fetch_add(keep ? 1 : -1, std::memory_order_relaxed);
    changed_ = true;
  }
  kept_.Signal();
}

void OrdinarySlice::Run() {
  for (;;) {
    {
      MutexLock lock(&keep_mutex_);
      while (!changed_ && !stop_) kept_.Wait(&keep_mutex_);
      if (stop_) return;
      changed_ = false;
    }
    const MutexLock lock(&mutex_);
    Apply();
  }
}

void OrdinarySlice::Share(bool share) {
  const MutexLock lock(&mutex_);
  sharers_ += share ? 1 : -1;
  Apply();
}

bool OrdinarySlice::Begin() {
  const MutexLock lock(&mutex_);
  if (others_work_ && !others_work_()) return false;
  ++calls_;
  Apply();
  return true;
}

void OrdinarySlice::End() {
  const MutexLock lock(&mutex_);
  --calls_;
  Apply();
}

void OrdinarySlice::Apply() {
  const std::chrono::microseconds slice =
      sharers_ > 0                                                 ? kDefault
      : calls_ > 0 || keepers_.load(std::memory_order_relaxed) > 0 ? kLonger
                                                                   : kShort;
  if (std::exchange(now_, slice) != slice) set_(slice);
}

}  // namespace detshare::cuda
