// Real GPUs, through the real driver.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "coroutine_runtime/device.h"

namespace detshare {

struct CudaOptions {
  // Path of the real libcuda.so.1; empty: OpenDriver() searches for it.
  std::string driver_path;
  // The SMs of a partition come in groups of this size: 8, or 2 for finer groups, on which clusters
  // may not fit.
  int sm_group = 8;
  // Whether to use time-slice groups, if the driver honours their slices.
  bool preemption = true;
  // A directory of this daemon's processes that use the GPUs; "": this is the only one.
  std::string shared_directory;
};

// Returns one device for each GPU that the driver shows, in its order. The daemon's
// CUDA_VISIBLE_DEVICES applies. Called once in a process, before other threads use the environment.
// Returns NotFound if there is no driver or no GPU.
absl::StatusOr<std::vector<std::unique_ptr<Device>>> CreateCudaDevices(const CudaOptions& options);

}  // namespace detshare
