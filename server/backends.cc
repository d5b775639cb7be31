#include "server/backends.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "policy/config/config.h"
#include "policy/status_macros.h"
#include "server/backends/cuda/cuda_backend.h"
#include "server/backends/cuda/host_nvml.h"
#include "server/backends/cuda/pci_gpus.h"
#include "server/backends/soft/soft_device.h"
#include "server/backends/soft/soft_managed_memory.h"
#include "server/backends/soft/soft_telemetry.h"
#include "server/base/logging.h"

namespace detshare {
namespace {

std::vector<DeviceProperties> PropertiesOf(const std::vector<std::unique_ptr<Device>>& devices) {
  std::vector<DeviceProperties> properties;
  for (const auto& device : devices) properties.push_back(device->properties());
  return properties;
}

void LogPreemption(const OpenedBackend& backend) {
  for (size_t i = 0; i < backend.devices.size(); ++i) {
    const Preemption& preemption = backend.devices[i]->properties().preemption;
    if (preemption.available) {
      LogInfo("device ", i, ": urgent work preempts after ", preemption.latency_ns / 1000,
              " us, by time-slice groups");
    } else if (preemption.switched_off) {
      LogInfo("device ", i, ": urgent work does not preempt running work: ", preemption.reason);
    } else {
      LogWarning("device ", i, ": urgent work cannot preempt running work: ", preemption.reason);
    }
  }
}

absl::StatusOr<OpenedBackend> OpenSoft(const BackendOptions& options) {
  OpenedBackend opened;
  opened.name = "soft";
  std::shared_ptr<ManagedMemory> managed;
  if (options.managed.bytes != 0) {
    DETSHARE_ASSIGN_OR_RETURN(
        managed, soft::SoftManagedMemory::Create(options.managed, options.soft_memory));
  }
  for (int i = 0; i < options.soft_devices; ++i) {
    soft::SoftDeviceOptions soft;
    soft.ordinal = i;
    soft.sm_count = options.soft_sms;
    soft.total_memory = options.soft_memory;
    if (!options.soft_directory.empty())
      soft.memory_file = absl::StrCat(options.soft_directory, "/soft-memory-", i);
    soft.managed_memory = managed;
    soft.worker_threads = options.soft_threads;
    soft.preemption = options.preemption;
    soft.kernels_outlive_sessions = options.soft_kernels_outlive_sessions;
    if (!ParseComputeCapability(options.soft_cc, &soft.compute_major, &soft.compute_minor))
      return absl::InvalidArgumentError("a compute capability is written as 9.0");
    soft.log = [](std::string_view line) { LogWarning("soft: ", std::string(line)); };
    DETSHARE_ASSIGN_OR_RETURN(std::unique_ptr<Device> device, soft::CreateSoftDevice(soft));
    opened.devices.push_back(std::move(device));
  }
  opened.telemetry = std::make_shared<soft::SoftTelemetry>(PropertiesOf(opened.devices));
  return opened;
}

absl::StatusOr<OpenedBackend> OpenCuda(const BackendOptions& options) {
  CudaOptions cuda;
  cuda.driver_path = options.cuda_driver;
  cuda.sm_group = options.cuda_sm_group;
  cuda.preemption = options.preemption;
  cuda.stand_in_groups = options.cuda_stand_in_groups;
  cuda.connections = options.cuda_connections;
  cuda.proof_directory = options.proof_directory;
  cuda.only_describes = options.only_describes;
  cuda.daemon_number = options.daemon_number;
  cuda.page = options.page;
  cuda.peers = options.peers;
  cuda.managed = options.managed;
  DETSHARE_ASSIGN_OR_RETURN(std::vector<std::unique_ptr<Device>> devices, CreateCudaDevices(cuda));
  OpenedBackend opened{"cuda", std::move(devices), nullptr};
  LogPreemption(opened);
  absl::StatusOr<std::unique_ptr<HostTelemetry>> telemetry =
      OpenHostNvml(PropertiesOf(opened.devices));
  if (telemetry.ok()) {
    opened.telemetry = *std::move(telemetry);
  } else {
    LogWarning("NVML tells programs little: ", std::string(telemetry.status().message()));
  }
  return opened;
}

}  // namespace

absl::StatusOr<OpenedBackend> OpenBackend(const BackendOptions& options) {
  if (options.backend == "soft") return OpenSoft(options);
  absl::StatusOr<OpenedBackend> cuda = OpenCuda(options);
  if (options.backend == "cuda") return cuda;
  if (cuda.ok()) {
    LogInfo("backend cuda: ", cuda->devices.size(), " device(s)");
    return cuda;
  }
  // A GPU that exists but cannot be used, for lack of a driver or of memory, is an error. The daemon
  // must not compute on the CPU instead.
  if (!absl::IsNotFound(cuda.status())) return cuda.status();
  const std::vector<std::string> gpus = NvidiaGpusOnPci();
  if (!gpus.empty()) {
    return absl::NotFoundError(absl::StrCat(
        cuda.status().message(), ", but the host has NVIDIA GPUs (PCI ", absl::StrJoin(gpus, ", "),
        "): install NVIDIA's driver, turn MIG off if it is on (nvidia-smi -mig 0), or choose "
        "backend "
        "soft to compute on the CPU"));
  }
  LogWarning("a software GPU computes on the CPU: ", std::string(cuda.status().message()));
  return OpenSoft(options);
}

}  // namespace detshare
