// Sets up preemption on a GPU, opens its urgent time-slice group, and proves that the hardware honours
// time slices.
//
// The urgent group is a second context, which takes half a gigabyte of the device's memory and as long as the
// first one. Most engines never have urgent work. So the first process of a daemon on the GPU opens the group
// for the proof, and the others open it when they have urgent work (Device::OpenUrgent).
//
// The ordinary group gets the shortest slice, so that it gives way at once. A short slice costs
// nothing while no other group has work. The urgent group gets a slice that is longer than its
// bursts of work. Two groups with short slices that both have work would make no progress: the
// hardware would only save and restore them. So a process has one ordinary group, several processes
// of the daemon take turns (coroutine_runtime/device_turn.h), and no other daemon has short slices on
// the GPU (gpu_claim.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "coroutine_runtime/device.h"
#include "coroutine_runtime/engine_page.h"
#include "server/backends/cuda/cuda_context.h"
#include "server/backends/cuda/cuda_hold.h"
#include "server/backends/cuda/time_slices.h"

namespace detshare::cuda {

// The daemon that this process belongs to, and what its processes have in common on one GPU.
struct DaemonOnGpu {
  uint64_t number = 0;           // as CudaOptions::daemon_number
  std::string node;              // the GPU's device file; "": unknown
  bool stand_in_groups = false;  // as in CudaOptions
  // A file for the result of the proof (kept_proof.h); "": this is the only process.
  std::string proof;
  // Preemption is not set up: the result says what the proof found, which is made if there is none.
  bool only_proof = false;
  // This process's words for the GPU, and the other processes, which have the GPU under the number
  // `device`; null: this is the only one.
  SliceWords* slice_words = nullptr;
  const EnginePeers* peers = nullptr;
  size_t device = 0;
};

// Sets `gpu.claim`, `gpu.graph_gate` and `gpu.ordinary.slice`, if no other daemon claims the GPU and urgent work
// really stops ordinary work. Otherwise leaves the GPU as it was, and the result has the reason. `primary`:
// the channel groups of the primary context. Without the proof of another process, opens the urgent group
// and takes about 0.3 s. Called before other threads use `gpu`.
Preemption SetUpPreemption(CudaContext& gpu, const std::vector<ChannelGroup>& primary,
                           const DaemonOnGpu& daemon, std::unique_ptr<HoldPool>* holds);

// Opens the urgent group of a GPU on which preemption is set up: sets `gpu.urgent()` and `*holds`. With an
// error nothing has changed: no memory is left, for instance. `stand_in`: as DaemonOnGpu::stand_in_groups.
// One thread at a time; others may use `gpu`.
absl::Status OpenUrgentGroup(CudaContext& gpu, bool stand_in, std::unique_ptr<HoldPool>* holds);

}  // namespace detshare::cuda
