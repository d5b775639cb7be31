#include "server/session/handlers/common.h"

#include "coroutine_runtime/gpu_coroutine.h"

namespace detshare::handlers {

absl::Status SignalStream(Session& session, StreamId stream, const wire::Signal& signal) {
  Fence* fence = nullptr;
  if (!session.FindFence(signal.index, &fence))
    return CudaError(kCudaErrorInvalidValue, "no such fence");
  if (fence == nullptr) return absl::OkStatus();
  return session.device().coroutine->Signal(stream, fence, signal.value);
}

}  // namespace detshare::handlers
