// Which GPUs the daemon serves.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "coroutine_runtime/device.h"
#include "coroutine_runtime/host_telemetry.h"

namespace detshare {

struct BackendOptions {
  std::string backend = "auto";  // auto, cuda or soft
  std::string cuda_driver;       // path of the real libcuda.so.1; "": looks for it
  int cuda_sm_group = 8;         // SMs of a partition come in groups of this size
  int soft_devices = 1;
  int soft_sms = 0;          // 0: the default device's
  uint64_t soft_memory = 0;  // bytes; 0: the default device's
  std::string soft_cc;       // "9.0"; "": the default device's
  int soft_threads = 0;      // 0: one for each core
};

struct OpenedBackend {
  std::string name;  // cuda or soft
  std::vector<std::unique_ptr<Device>> devices;
  std::shared_ptr<HostTelemetry> telemetry;  // null: nothing is known
};

// Opens the devices. Once, before the process has other threads. auto: the real ones when there is
// a driver and a device, else one in software; the log says which and why.
absl::StatusOr<OpenedBackend> OpenBackend(const BackendOptions& options);

}  // namespace detshare
