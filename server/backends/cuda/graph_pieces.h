// What one copy or fill is for the driver: as many operations as registered pieces of host memory
// demand (CudaAddressSpace::Reach).
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "coroutine_runtime/device.h"
#include "server/backends/cuda/cuda_address_space.h"

namespace detshare::cuda {

// Of one node. More is CUDA_ERROR_OUT_OF_MEMORY: a client could ask for any number of rows.
inline constexpr size_t kMaxPieces = 4096;

// Empty when there is nothing to do.
absl::StatusOr<std::vector<CUDA_MEMCPY3D>> PiecesOf(const CudaAddressSpace& space,
                                                    const CopyRequest& request);
// Without the context.
absl::StatusOr<std::vector<CUDA_MEMSET_NODE_PARAMS_v2>> PiecesOf(const CudaAddressSpace& space,
                                                                 const FillRequest& request);

}  // namespace detshare::cuda
