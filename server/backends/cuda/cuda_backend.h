// Real GPUs, through the real driver.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "coroutine_runtime/device.h"

namespace detshare {

struct CudaOptions {
  // Of the real libcuda.so.1; empty: looks for it.
  std::string driver_path;
  // SMs of a partition come in groups of this size: 8, or 2 for finer ones on which clusters may
  // not fit.
  int sm_group = 8;
};

// One device for each GPU that the driver shows (CUDA_VISIBLE_DEVICES of the daemon applies), in
// its order. Once in a process, before it has threads that use the environment. NotFound when there
// is no driver or no GPU.
absl::StatusOr<std::vector<std::unique_ptr<Device>>> CreateCudaDevices(const CudaOptions& options);

}  // namespace detshare
