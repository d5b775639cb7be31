#include "server/backends/cuda/cuda_group.h"

#include <utility>

#include "server/backends/cuda/cuda_context.h"

namespace detshare::cuda {

StreamState::~StreamState() {
  group.Enter();
  group.gpu.api.cuStreamDestroy(stream);
}

void CudaGroup::Enter() const {
  thread_local CUcontext current = nullptr;
  if (current == context) return;
  gpu.api.cuCtxSetCurrent(context);
  current = context;
}

void CudaGroup::AddStream(const std::shared_ptr<StreamState>& stream) {
  MutexLock lock(&mutex_);
  std::erase_if(streams_, [](const std::weak_ptr<StreamState>& weak) { return weak.expired(); });
  streams_.push_back(stream);
}

std::vector<std::shared_ptr<StreamState>> CudaGroup::Streams() {
  MutexLock lock(&mutex_);
  std::vector<std::shared_ptr<StreamState>> alive;
  for (const std::weak_ptr<StreamState>& weak : streams_) {
    if (std::shared_ptr<StreamState> stream = weak.lock()) alive.push_back(std::move(stream));
  }
  return alive;
}

bool CudaGroup::Busy() {
  bool busy = false;
  for (const std::shared_ptr<StreamState>& stream : Streams()) {
    if (stream->entering.load()) {
      busy = true;
      continue;
    }
    const uint64_t submitted = stream->submitted.load();
    if (submitted == stream->completed.load()) continue;
    // The latest of this work may not have been launched yet.
    if (stream->entering.load()) {
      busy = true;
      continue;
    }
    const CUresult result = gpu.api.cuStreamQuery(stream->stream);
    if (result == CUDA_SUCCESS) {
      stream->completed.store(submitted);
    } else if (result == CUDA_ERROR_NOT_READY) {
      busy = true;
    } else {
      gpu.Check(result, "cuStreamQuery").IgnoreError();
      return false;
    }
  }
  return busy;
}

}  // namespace detshare::cuda
