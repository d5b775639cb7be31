#include "server/backends/cuda/memory_waits.h"

#include <set>

#include "server/backends/cuda/cuda_group.h"

namespace detshare::cuda {

MemoryWaits::~MemoryWaits() {
  for (const Batch& batch : batches_) api_.cuEventDestroy(batch.passed);
  for (const std::vector<CUevent>& events : spare_) {
    for (const CUevent event : events) api_.cuEventDestroy(event);
  }
}

CUresult MemoryWaits::Submit(const CudaGroup& group, CUstream stream,
                             absl::Span<const MemoryOp> operations,
                             absl::FunctionRef<CUresult()> submit) {
  std::list<Batch> made(1);
  Batch& batch = made.front();
  batch.stream = stream;
  batch.urgent = group.urgent;
  for (const MemoryOp& operation : operations) {
    if (operation.is_wait()) batch.waits.push_back(operation);
  }
  {
    const MutexLock lock(&mutex_);
    Prune();
    std::vector<CUevent>& spare = spare_[batch.urgent];
    if (!spare.empty()) {
      batch.passed = spare.back();
      spare.pop_back();
    }
  }
  if (batch.passed == nullptr) {
    const CUresult result = api_.cuEventCreate(&batch.passed, CU_EVENT_DISABLE_TIMING);
    if (result != CUDA_SUCCESS) return result;
  }
  const auto place = made.begin();
  {
    const MutexLock lock(&mutex_);
    batches_.splice(batches_.end(), made);
  }
  CUresult result = submit();
  if (result == CUDA_SUCCESS) result = api_.cuEventRecord(batch.passed, stream);
  const MutexLock lock(&mutex_);
  batch.submitted = true;
  if (result != CUDA_SUCCESS) {
    spare_[batch.urgent].push_back(batch.passed);
    batches_.erase(place);
  }
  return result;
}

bool MemoryWaits::Pending() {
  const MutexLock lock(&mutex_);
  Prune();
  return !batches_.empty();
}

std::vector<MemoryOp> MemoryWaits::OneOfEachStream() {
  const MutexLock lock(&mutex_);
  Prune();
  std::vector<MemoryOp> waits;
  std::set<CUstream> seen;
  for (Batch& batch : batches_) {
    if (seen.insert(batch.stream).second)
      waits.push_back(batch.waits[batch.turn++ % batch.waits.size()]);
  }
  return waits;
}

void MemoryWaits::Prune() {
  for (auto batch = batches_.begin(); batch != batches_.end();) {
    const auto current = batch++;
    if (!current->submitted || api_.cuEventQuery(current->passed) == CUDA_ERROR_NOT_READY) continue;
    spare_[current->urgent].push_back(current->passed);
    batches_.erase(current);
  }
}

}  // namespace detshare::cuda
