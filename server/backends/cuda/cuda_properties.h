// Reads what the driver reports about a GPU.
#pragma once

#include "absl/status/statusor.h"
#include "coroutine_runtime/device.h"
#include "server/backends/cuda/cuda_context.h"

namespace detshare::cuda {

// Reads all properties except sm_group.
absl::StatusOr<DeviceProperties> ReadProperties(CudaContext& context);

}  // namespace detshare::cuda
