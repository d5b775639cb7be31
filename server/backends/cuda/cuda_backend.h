// Real GPUs, through the real driver.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "coroutine_runtime/device.h"
#include "coroutine_runtime/managed_addresses.h"

namespace detshare {

struct EnginePage;
struct EnginePeers;

struct CudaOptions {
  // Path of the real libcuda.so.1; empty: OpenDriver() searches for it.
  std::string driver_path;
  // The SMs of a partition come in groups of this size: 8, or 2 for finer groups, on which clusters
  // may not fit.
  int sm_group = 8;
  // Whether to use time-slice groups, if the driver honours their slices.
  bool preemption = true;
  // For tests whose driver has no time slices: the groups only stand in for such, and nothing preempts.
  bool stand_in_groups = false;
  // How many streams of a context the hardware can execute independently of each other
  // (CUDA_DEVICE_MAX_CONNECTIONS, which the daemon's environment may set instead). Each takes channels.
  // With c channels on the GPU, the driver takes some 16 us * c for each that a process creates.
  int connections = kMostConnections;
  static constexpr int kMostConnections = 32,
                       kUsualConnections = 8;  // the most, and the driver's own
  // A directory for what this daemon's processes find out about the GPUs; "": this is the only one.
  std::string proof_directory;
  // The process runs nothing on the devices: preemption is proved at most, and not set up.
  bool only_describes = false;
  // The same for all processes of this daemon, and another one in other daemons of the host; 0: this
  // is its only process.
  uint64_t daemon_number = 0;
  // Of this process and the daemon's others, which number the GPUs in the same order; null: this is the
  // only one. Both outlive the devices.
  EnginePage* page = nullptr;
  const EnginePeers* peers = nullptr;
  ManagedWindow managed;  // no bytes: no managed memory
};

// Returns one device for each GPU that the driver shows, in its order. The daemon's
// CUDA_VISIBLE_DEVICES applies. Called once in a process, before other threads use the environment.
// Returns NotFound if there is no driver or no GPU.
absl::StatusOr<std::vector<std::unique_ptr<Device>>> CreateCudaDevices(const CudaOptions& options);

}  // namespace detshare
