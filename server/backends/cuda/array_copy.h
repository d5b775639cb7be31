// Copies with an array on at least one side.
#pragma once

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "coroutine_runtime/device.h"
#include "server/backends/cuda/cuda_address_space.h"
#include "server/backends/cuda/cuda_context.h"

namespace detshare::cuda {

// Divides the copy into calls of the driver, as few as the registered pieces of host memory allow.
// Passes each call to `take` and stops at the first error.
absl::Status ForEachArrayCopy(const CudaAddressSpace& space, const CopyRequest& request,
                              absl::FunctionRef<absl::Status(const CUDA_MEMCPY3D&)> take);

// Queues the copy on the stream, in as few calls as the registered pieces of host memory allow. If
// the driver refuses a call, the calls before it are queued already.
absl::Status CopyWithArrays(CudaContext& context, CUstream stream, const CudaAddressSpace& space,
                            const CopyRequest& request);

}  // namespace detshare::cuda
