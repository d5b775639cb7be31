// Divides a copy or fill into as many operations of the driver as the registered pieces of host
// memory demand (CudaAddressSpace::Reach).
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "coroutine_runtime/device.h"
#include "server/backends/cuda/cuda_address_space.h"

namespace detshare::cuda {

// The number of pieces of one node. A node with more pieces is CUDA_ERROR_OUT_OF_MEMORY, because a
// client could ask for any number of rows.
inline constexpr size_t kMaxPieces = 4096;

// Returns no pieces if there is nothing to copy.
absl::StatusOr<std::vector<CUDA_MEMCPY3D>> PiecesOf(const CudaAddressSpace& space,
                                                    const CopyRequest& request);
// Leaves the context out.
absl::StatusOr<std::vector<CUDA_MEMSET_NODE_PARAMS_v2>> PiecesOf(const CudaAddressSpace& space,
                                                                 const FillRequest& request);

}  // namespace detshare::cuda
