// Launches: checks everything that CUDA answers at the call, packs the parameters straight into the
// ring.
#pragma once

#include <cstdint>

#include "client_shim/code/libraries.h"
#include "client_shim/objects/objects.h"
#include "proto/driver_api/cuda_unrenamed.h"
#include "proto/wire/launch.h"
#include "proto/wire/launch_hints.h"

namespace detshare::shim {

struct LaunchRequest {
  uint32_t grid[3] = {1, 1, 1};
  uint32_t block[3] = {1, 1, 1};
  uint32_t cluster[3] = {0, 0, 0};
  uint32_t shared_bytes = 0;
  uint32_t flags = 0;  // wire::LaunchFlags
  int32_t priority = 0;
  friend bool operator==(const LaunchRequest&, const LaunchRequest&) = default;
};

// What cuLaunchKernelEx adds to a launch.
struct LaunchEvents {
  Event* events[2] = {};  // recorded behind the kernel
  // In a capture: how whoever waits for it depends on the kernel.
  CUgraphEdgeData edges[2] = {};
  int count = 0;
  wire::LaunchHints hints{};
};

// A launch as it crosses.
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

// CUDA_ERROR_NOT_SUPPORTED for attributes whose meaning cannot be kept. `events` null: a question
// about a launch, for which events and hints do not count.
CUresult ParseAttributes(const CUlaunchConfig& config, LaunchRequest* request,
                         LaunchEvents* events);

// CUDA's own checks of a launch's shape. May ask the daemon once about a kernel's occupancy
// (cooperative launches).
CUresult CheckShape(KernelInstance& kernel, uint16_t device, ContextId context,
                    const LaunchRequest& request);

// Where the parameters come from: an array of pointers, or the buffer of `extra`. Exactly one of
// them where there are parameters. `buffer` is null for the array.
CUresult FindParameters(const KernelInstance& kernel, void** params, void** extra,
                        const void** buffer, size_t* buffer_bytes);
// Writes kernel.parameter_bytes to `to`.
void PackParameters(const KernelInstance& kernel, void** params, const void* buffer,
                    size_t buffer_bytes, std::byte* to);

CUresult Launch(CUfunction function, CUstream stream, const LaunchRequest& request,
                const LaunchEvents* events, void** params, void** extra);

// Blocks of the kernel that fit an SM. Asked once for each shape.
CUresult MaxActiveBlocks(KernelInstance& kernel, uint16_t device, ContextId context, int block_size,
                         uint64_t shared_bytes, uint32_t flags, int* blocks);

}  // namespace detshare::shim
