// The CPUs and the memory that are near a device, and the devices that are near each other.
#include <sched.h>

#include <cstring>

#include "client_shim/nvml/ask.h"
#include "client_shim/nvml/devices.h"
#include "client_shim/nvml/export.h"

namespace detshare::nvml {

DETSHARE_EXPORT nvmlReturn_t nvmlDeviceGetCpuAffinity(nvmlDevice_t device, unsigned int cpuSetSize,
                                                      unsigned long* cpuSet) {
  return AskWords("nvmlDeviceGetCpuAffinity", Age::kFixed, Subject(device), {}, cpuSetSize, cpuSet);
}

DETSHARE_EXPORT nvmlReturn_t nvmlDeviceGetCpuAffinityWithinScope(nvmlDevice_t device,
                                                                 unsigned int cpuSetSize,
                                                                 unsigned long* cpuSet,
                                                                 unsigned int scope) {
  return AskWords("nvmlDeviceGetCpuAffinityWithinScope", Age::kFixed, Subject(device), {scope},
                  cpuSetSize, cpuSet);
}

DETSHARE_EXPORT nvmlReturn_t nvmlDeviceGetMemoryAffinity(nvmlDevice_t device,
                                                         unsigned int nodeSetSize,
                                                         unsigned long* nodeSet,
                                                         unsigned int scope) {
  return AskWords("nvmlDeviceGetMemoryAffinity", Age::kFixed, Subject(device), {scope}, nodeSetSize,
                  nodeSet);
}

// Sets the affinity of the calling thread.
DETSHARE_EXPORT nvmlReturn_t nvmlDeviceSetCpuAffinity(nvmlDevice_t device) {
  cpu_set_t set;
  static_assert(sizeof(set) % sizeof(unsigned long) == 0);
  unsigned long words[sizeof(set) / sizeof(unsigned long)];
  const nvmlReturn_t result = nvmlDeviceGetCpuAffinity(device, std::size(words), words);
  if (result != NVML_SUCCESS) return result;
  memcpy(&set, words, sizeof(set));
  return sched_setaffinity(0, sizeof(set), &set) == 0 ? NVML_SUCCESS : NVML_ERROR_UNKNOWN;
}

DETSHARE_EXPORT nvmlReturn_t nvmlDeviceClearCpuAffinity(nvmlDevice_t device) {
  if (const nvmlReturn_t result = CheckInitialised(); result != NVML_SUCCESS) return result;
  if (PositionOf(device) < 0) return NVML_ERROR_INVALID_ARGUMENT;
  cpu_set_t set;
  memset(&set, 0xFF, sizeof(set));
  return sched_setaffinity(0, sizeof(set), &set) == 0 ? NVML_SUCCESS : NVML_ERROR_UNKNOWN;
}

DETSHARE_EXPORT nvmlReturn_t nvmlDeviceGetTopologyNearestGpus(nvmlDevice_t device,
                                                              unsigned int level,
                                                              unsigned int* count,
                                                              nvmlDevice_t* deviceArray) {
  Snapshot snapshot;
  const proto::VisibleDevice* found = nullptr;
  if (const nvmlReturn_t result = FindDevice(device, &snapshot, &found); result != NVML_SUCCESS)
    return result;
  if (count == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  const unsigned room = deviceArray != nullptr ? *count : 0;
  *count = 0;
  for (int i = 0; i < snapshot->devices_size(); ++i) {
    if (i == PositionOf(device)) continue;
    unsigned ancestor = 0;
    const nvmlReturn_t result = AskPlain("nvmlDeviceGetTopologyCommonAncestor", Age::kFixed,
                                         Subject(device, HandleOf(i)), {}, {Out(&ancestor)});
    if (result != NVML_SUCCESS) return result;
    if (ancestor != level) continue;
    if (*count < room) deviceArray[*count] = HandleOf(i);
    ++*count;
  }
  return NVML_SUCCESS;
}

}  // namespace detshare::nvml
