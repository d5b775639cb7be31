// Launches: checks everything that CUDA checks in the call, and packs the parameters straight into
// the ring. Any thread.
#pragma once

#include <cstdint>

#include "client_shim/code/libraries.h"
#include "client_shim/objects/objects.h"
#include "proto/driver_api/cuda_unrenamed.h"
#include "proto/wire/launch.h"
#include "proto/wire/launch_hints.h"

namespace detshare::shim {

// The shape of a launch and how it runs.
struct LaunchRequest {
  uint32_t grid[3] = {1, 1, 1};
  uint32_t block[3] = {1, 1, 1};
  uint32_t cluster[3] = {0, 0, 0};
  uint32_t shared_bytes = 0;
  uint32_t flags = 0;  // wire::LaunchFlags
  int32_t priority = 0;
  friend bool operator==(const LaunchRequest&, const LaunchRequest&) = default;
};

// The additions of cuLaunchKernelEx to a launch.
struct LaunchEvents {
  Event* events[2] = {};  // recorded behind the kernel
  // In a capture: how a node that waits for the event depends on the kernel.
  CUgraphEdgeData edges[2] = {};
  int count = 0;
  wire::LaunchHints hints{};
};

// Makes the argument struct of the launch's record.
inline wire::cuLaunchKernelEx LaunchArguments(StreamId stream, KernelId kernel,
                                              const LaunchRequest& request) {
  return {stream,
          kernel,
          {request.grid[0], request.grid[1], request.grid[2]},
          {request.block[0], request.block[1], request.block[2]},
          {request.cluster[0], request.cluster[1], request.cluster[2]},
          request.shared_bytes,
          request.flags,
          request.priority};
}

// Reads the attributes of a launch. CUDA_ERROR_NOT_SUPPORTED: an attribute whose meaning DetShare
// cannot keep. `events` is null for the attributes of a node, which has no events.
CUresult ParseAttributes(const CUlaunchConfig& config, LaunchRequest* request,
                         LaunchEvents* events);

// Checks that a preferred cluster, if there is one, consists of whole clusters of the size that
// always holds. Natively this is checked after the grid.
CUresult CheckPreferredCluster(const LaunchRequest& request, const LaunchEvents& events);

// Whether every kernel could have such a grid.
bool GridAllowed(uint16_t device, const LaunchRequest& request);
// Whether every kernel could have such blocks.
bool BlockAllowed(uint16_t device, const uint32_t (&block)[3]);

// Checks the cluster of a launch, or the one that the kernel requires. `largest` is the number of
// blocks that a cluster of a kernel may have that allows sizes that are not portable.
CUresult CheckCluster(const KernelInstance& kernel, const LaunchRequest& request,
                      uint64_t largest = 16);

// Makes CUDA's own checks of a launch's shape. For a cooperative launch it may ask the daemon once
// about the kernel's occupancy.
CUresult CheckShape(KernelInstance& kernel, uint16_t device, ContextId context,
                    const LaunchRequest& request);

// Finds the parameters: an array of pointers (`params`), or the buffer that `extra` names. A kernel
// with parameters needs exactly one of them. `*buffer` is null for the array.
CUresult FindParameters(const KernelInstance& kernel, void** params, void** extra,
                        const void** buffer, size_t* buffer_bytes);
// Writes kernel.parameter_bytes to `to`.
void PackParameters(const KernelInstance& kernel, void** params, const void* buffer,
                    size_t buffer_bytes, std::byte* to);

// Does what cuLaunchKernelEx does. `events` may be null.
CUresult Launch(CUfunction function, CUstream stream, const LaunchRequest& request,
                const LaunchEvents* events, void** params, void** extra);

// The number of the kernel's blocks that fit an SM. Asks the daemon once for each shape.
CUresult MaxActiveBlocks(KernelInstance& kernel, uint16_t device, ContextId context, int block_size,
                         uint64_t shared_bytes, uint32_t flags, int* blocks);

}  // namespace detshare::shim
