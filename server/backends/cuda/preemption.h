// Sets up the urgent time-slice group of a GPU, and proves that the hardware honours time slices.
//
// The ordinary group gets the shortest slice, so that it gives way at once. A short slice costs
// nothing while no other group has work. The urgent group gets a slice that is longer than its
// bursts of work. Two groups with short slices that both have work would make no progress: the
// hardware would only save and restore them. So a process has one ordinary group, several processes
// of the daemon take turns (coroutine_runtime/device_turn.h), and no other process uses the GPU.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "coroutine_runtime/device.h"
#include "server/backends/cuda/cuda_context.h"
#include "server/backends/cuda/cuda_hold.h"
#include "server/backends/cuda/time_slices.h"

namespace detshare::cuda {

// Creates a second context, and sets `gpu.urgent`, `*holds` and, with `proof`, `gpu.ordinary.slice`,
// if urgent work then really stops ordinary work. Otherwise leaves the GPU as it was, and the result
// has the reason. `primary`: the channel groups of the primary context. Takes about 0.3 s. Called before other threads use `gpu`.
//
// `proof`: a file that all processes of the daemon on this GPU name; "": there are no others. The
// first process keeps its result there, and the others take it, because work of other processes
// disturbs the proof. They wait for each other.
Preemption SetUpPreemption(CudaContext& gpu, const std::vector<ChannelGroup>& primary,
                           const std::string& proof, std::unique_ptr<HoldPool>* holds);

}  // namespace detshare::cuda
