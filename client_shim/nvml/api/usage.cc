// Memory, processes and utilisation of the tenant.
#include <chrono>
#include <cstring>
#include <type_traits>
#include <vector>

#include "client_shim/nvml/devices.h"
#include "client_shim/nvml/export.h"

namespace detshare::nvml {
namespace {

nvmlReturn_t Device(nvmlDevice_t device, Snapshot* snapshot, const proto::VisibleDevice** found,
                    bool pointers, bool utilization = false) {
  if (const nvmlReturn_t result = CheckInitialised(); result != NVML_SUCCESS) return result;
  return pointers ? FindDevice(device, snapshot, found, utilization) : NVML_ERROR_INVALID_ARGUMENT;
}

// `Info` is any version of the struct.
template <typename Info>
nvmlReturn_t ComputeProcesses(nvmlDevice_t device, unsigned int* count, Info* infos) {
  Snapshot snapshot;
  const proto::VisibleDevice* found = nullptr;
  const bool pointers = count != nullptr && (infos != nullptr || *count == 0);
  if (const nvmlReturn_t result = Device(device, &snapshot, &found, pointers);
      result != NVML_SUCCESS)
    return result;
  const unsigned room = *count;
  *count = static_cast<unsigned int>(found->processes_size());
  if (room < *count) return NVML_ERROR_INSUFFICIENT_SIZE;
  for (int i = 0; i < found->processes_size(); ++i) {
    Info& info = infos[i];
    info = {};
    info.pid = found->processes(i).pid();
    info.usedGpuMemory = found->processes(i).memory();
    if constexpr (std::is_same_v<Info, nvmlProcessInfo_v2_t>)
      info.gpuInstanceId = info.computeInstanceId = 0xFFFFFFFF;
  }
  return NVML_SUCCESS;
}

// No process uses graphics or MPS.
nvmlReturn_t NoProcesses(nvmlDevice_t device, unsigned int* count) {
  Snapshot snapshot;
  const proto::VisibleDevice* found = nullptr;
  const nvmlReturn_t result = Device(device, &snapshot, &found, count != nullptr);
  if (result == NVML_SUCCESS) *count = 0;
  return result;
}

}  // namespace

DETSHARE_EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t* memory) {
  Snapshot snapshot;
  const proto::VisibleDevice* found = nullptr;
  const nvmlReturn_t result = Device(device, &snapshot, &found, memory != nullptr);
  if (result != NVML_SUCCESS) return result;
  const uint64_t free = std::min(found->free_memory(), found->total_memory());
  *memory = {found->total_memory(), free, found->total_memory() - free};
  return NVML_SUCCESS;
}

DETSHARE_EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device,
                                                        nvmlMemory_v2_t* memory) {
  if (const nvmlReturn_t result = CheckInitialised(); result != NVML_SUCCESS) return result;
  if (memory == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  const unsigned int version = NvmlStructVersion(sizeof(*memory), 2);
  if (memory->version != version) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
  nvmlMemory_t plain;
  if (const nvmlReturn_t result = nvmlDeviceGetMemoryInfo(device, &plain); result != NVML_SUCCESS)
    return result;
  *memory = {version, plain.total, 0, plain.free, plain.used};
  return NVML_SUCCESS;
}

// The share of the last second in which work of this tenant was queued or running. The shim does
// not know which parts of the card the work used, so it reports the same share for the memory.
DETSHARE_EXPORT nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device,
                                                           nvmlUtilization_t* utilization) {
  Snapshot snapshot;
  const proto::VisibleDevice* found = nullptr;
  const nvmlReturn_t result = Device(device, &snapshot, &found, utilization != nullptr, true);
  if (result != NVML_SUCCESS) return result;
  *utilization = {found->busy_percent(), found->busy_percent()};
  return NVML_SUCCESS;
}

// Ignores `lastSeenTimeStamp`: each process has one sample, of the last second.
DETSHARE_EXPORT nvmlReturn_t
nvmlDeviceGetProcessUtilization(nvmlDevice_t device, nvmlProcessUtilizationSample_t* utilization,
                                unsigned int* processSamplesCount, unsigned long long) {
  Snapshot snapshot;
  const proto::VisibleDevice* found = nullptr;
  const bool pointers = processSamplesCount != nullptr;
  if (const nvmlReturn_t result = Device(device, &snapshot, &found, pointers, true);
      result != NVML_SUCCESS)
    return result;
  const unsigned room = utilization != nullptr ? *processSamplesCount : 0;
  *processSamplesCount = static_cast<unsigned int>(found->processes_size());
  if (*processSamplesCount == 0) return NVML_ERROR_NOT_FOUND;
  if (room < *processSamplesCount) return NVML_ERROR_INSUFFICIENT_SIZE;
  const auto now = std::chrono::duration_cast<std::chrono::microseconds>(
                       std::chrono::system_clock::now().time_since_epoch())
                       .count();
  for (int i = 0; i < found->processes_size(); ++i) {
    const proto::VisibleProcess& process = found->processes(i);
    utilization[i] = {process.pid(),
                      static_cast<unsigned long long>(now),
                      process.busy_percent(),
                      process.busy_percent(),
                      0,
                      0};
  }
  return NVML_SUCCESS;
}

DETSHARE_EXPORT nvmlReturn_t nvmlDeviceGetComputeRunningProcesses(nvmlDevice_t device,
                                                                  unsigned int* infoCount,
                                                                  nvmlProcessInfo_v1_t* infos) {
  return ComputeProcesses(device, infoCount, infos);
}
DETSHARE_EXPORT nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v2(nvmlDevice_t device,
                                                                     unsigned int* infoCount,
                                                                     nvmlProcessInfo_v2_t* infos) {
  return ComputeProcesses(device, infoCount, infos);
}
DETSHARE_EXPORT nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device,
                                                                     unsigned int* infoCount,
                                                                     nvmlProcessInfo_v2_t* infos) {
  return ComputeProcesses(device, infoCount, infos);
}

#define DETSHARE_NO_PROCESSES(function)                                               \
  DETSHARE_EXPORT nvmlReturn_t function(nvmlDevice_t device, unsigned int* infoCount, \
                                        const void*) {                                \
    return NoProcesses(device, infoCount);                                            \
  }
DETSHARE_NO_PROCESSES(nvmlDeviceGetGraphicsRunningProcesses)
DETSHARE_NO_PROCESSES(nvmlDeviceGetGraphicsRunningProcesses_v2)
DETSHARE_NO_PROCESSES(nvmlDeviceGetGraphicsRunningProcesses_v3)
DETSHARE_NO_PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses)
DETSHARE_NO_PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses_v2)
DETSHARE_NO_PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses_v3)
#undef DETSHARE_NO_PROCESSES

}  // namespace detshare::nvml
