#include "server/backends/cuda/ordinary_slice.h"

#include <utility>

namespace detshare::cuda {

void OrdinarySlice::ShareWith(std::function<bool()> others_work) {
  const MutexLock lock(&mutex_);
  others_work_ = std::move(others_work);
}

void OrdinarySlice::Keep(bool keep) {
  const MutexLock lock(&mutex_);
  keepers_ += keep ? 1 : -1;
  Apply();
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
  const std::chrono::microseconds slice = sharers_ > 0                 ? kDefault
                                          : keepers_ > 0 || calls_ > 0 ? kLonger
                                                                       : kShort;
  if (std::exchange(now_, slice) != slice) set_(slice);
}

}  // namespace detshare::cuda
