// Opens the GPUs that the daemon serves.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "coroutine_runtime/device.h"
#include "coroutine_runtime/host_telemetry.h"
#include "coroutine_runtime/managed_addresses.h"
#include "server/backends/cuda/cuda_backend.h"

namespace detshare {

struct BackendOptions {
  std::string backend = "auto";  // auto, cuda or soft
  std::string cuda_driver;       // path of the real libcuda.so.1; "": found by search
  // The SMs of a partition come in groups of this size.
  int cuda_sm_group = 8;
  // Whether devices that can preempt have an urgent time-slice group.
  bool preemption = true;
  bool cuda_stand_in_groups = false;                     // as in CudaOptions
  int cuda_connections = CudaOptions::kMostConnections;  // as in CudaOptions
  std::string proof_directory;                           // likewise
  bool only_describes = false;                           // likewise
  uint64_t daemon_number = 0;                            // likewise
  EnginePage* page = nullptr;                            // likewise
  const EnginePeers* peers = nullptr;                    // likewise
  // Where the daemon's processes have the memory of soft devices in common; "": this is the only one.
  std::string soft_directory;
  int soft_devices = 1;
  int soft_sms = 132;
  uint64_t soft_memory = uint64_t{8} << 30;  // bytes
  std::string soft_cc = "9.0";
  int soft_threads = 0;                        // 0: one for each core
  bool soft_kernels_outlive_sessions = false;  // as in SoftDeviceOptions
  // The addresses of managed memory whose pages move (coroutine_runtime/managed_memory.h). No bytes:
  // clients must not share it, because one could reach the memory of all.
  ManagedWindow managed;
};

struct OpenedBackend {
  std::string name;  // cuda or soft
  std::vector<std::unique_ptr<Device>> devices;
  std::shared_ptr<HostTelemetry> telemetry;  // null: NVML has no data
};

// Opens the devices. Called once, before the process has other threads. `auto` opens the real GPUs
// if there are any, else the software GPU, and logs a warning. NOT_FOUND: there is no driver, or it
// shows no GPU, and the backend is `cuda` or the host has NVIDIA GPUs.
absl::StatusOr<OpenedBackend> OpenBackend(const BackendOptions& options);

}  // namespace detshare
