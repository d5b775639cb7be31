// Sets up the urgent time-slice group of a GPU, and proves that the hardware honours time slices.
//
// The ordinary group gets the shortest slice, so that it gives way at once. A short slice costs
// nothing while no other group has work. The urgent group gets a slice that is longer than its
// bursts of work. Two groups with short slices that both have work would make no progress: the
// hardware would only save and restore them. So there is one ordinary group, and the daemon is the
// only process that uses the GPU.
#pragma once

#include <memory>
#include <vector>

#include "coroutine_runtime/device.h"
#include "server/backends/cuda/cuda_context.h"
#include "server/backends/cuda/cuda_hold.h"
#include "server/backends/cuda/time_slices.h"

namespace detshare::cuda {

// Creates a second context, and sets `gpu.urgent` and `*holds`, if urgent work then really stops
// ordinary work. Otherwise leaves the GPU as it was, and the result has the reason. `primary`: the
// channel groups of the primary context. Takes about 0.3 s. Called before other threads use `gpu`.
Preemption SetUpPreemption(CudaContext& gpu, const std::vector<ChannelGroup>& primary,
                           std::unique_ptr<HoldPool>* holds);

}  // namespace detshare::cuda
