#include "server/backends/soft/soft_telemetry.h"

#include <cuda.h>
#include <sched.h>

#include <functional>
#include <map>
#include <string_view>

#include "proto/nvml/nvml_types.h"
#include "server/backends/soft/soft_properties.h"

namespace detshare::soft {
namespace {

// The version of a driver for the CUDA version in soft_properties.cc.
constexpr char kDriverVersion[] = "580.00.00";
constexpr char kNvmlVersion[] = "13.580.00.00";

constexpr unsigned kMemoryClock = 2;  // NVML_CLOCK_MEM; the other clocks are those of the SMs
constexpr unsigned kClocks = 4;
constexpr int kCudaCoresPerSm = 128;

HostResult Number(unsigned value) { return Packed(NVML_SUCCESS, value); }
HostResult Text(const char* text) { return {NVML_SUCCESS, text}; }

// Clocks never change.
HostResult Clock(const DeviceProperties& device, uint32_t type) {
  if (type >= kClocks) return {NVML_ERROR_INVALID_ARGUMENT, {}};
  const int kilohertz =
      AttributeOf(device, type == kMemoryClock ? CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE
                                               : CU_DEVICE_ATTRIBUTE_CLOCK_RATE);
  return Number(static_cast<unsigned>(kilohertz / 1000));
}

// The device runs on the CPUs that the daemon may use.
HostResult Processors() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return {NVML_ERROR_NOT_SUPPORTED, {}};
  return Packed(NVML_SUCCESS, set);
}

// Agrees with SoftDevice::PeerAttributes: each device accesses the memory of the others, also with
// atomic operations, but has no links.
HostResult PeerStatus(const HostQuestion& question) {
  constexpr unsigned kOk = 0, kNotSupported = 5;                         // nvmlGpuP2PStatus_t
  constexpr unsigned kRead = 0, kWrite = 1, kAtomics = 3, kIndices = 5;  // nvmlGpuP2PCapsIndex_t
  const unsigned index = question.arguments[0];
  if (index >= kIndices || question.device == question.peer)
    return {NVML_ERROR_INVALID_ARGUMENT, {}};
  return Number(index == kRead || index == kWrite || index == kAtomics ? kOk : kNotSupported);
}

using OfDevice = std::function<HostResult(const DeviceProperties&, const HostQuestion&)>;

const std::map<std::string_view, OfDevice>& Functions() {
  static const auto* const functions = new std::map<std::string_view, OfDevice>{
      {"nvmlDeviceGetBrand", [](auto&, auto&) { return Number(NVML_BRAND_NVIDIA); }},
      {"nvmlDeviceGetBusType", [](auto&, auto&) { return Number(NVML_BUS_TYPE_PCIE); }},
      {"nvmlDeviceGetMinorNumber", [](auto&, auto& q) { return Number(q.device); }},
      {"nvmlDeviceGetBoardId", [](auto&, auto& q) { return Number(q.device); }},
      {"nvmlDeviceGetMultiGpuBoard", [](auto&, auto&) { return Number(0); }},
      {"nvmlDeviceGetNumGpuCores",
       [](auto& d, auto&) { return Number(d.sm_count * kCudaCoresPerSm); }},
      {"nvmlDeviceGetMemoryBusWidth",
       [](auto& d, auto&) {
         return Number(AttributeOf(d, CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH));
       }},
      {"nvmlDeviceGetVirtualizationMode", [](auto&, auto&) { return Number(0); }},
      {"nvmlDeviceGetDisplayActive", [](auto&, auto&) { return Number(0); }},
      {"nvmlDeviceGetDisplayMode", [](auto&, auto&) { return Number(0); }},
      {"nvmlDeviceGetPersistenceMode", [](auto&, auto&) { return Number(1); }},
      {"nvmlDeviceGetPerformanceState", [](auto&, auto&) { return Number(0); }},
      {"nvmlDeviceGetClockInfo", [](auto& d, auto& q) { return Clock(d, q.arguments[0]); }},
      {"nvmlDeviceGetMaxClockInfo", [](auto& d, auto& q) { return Clock(d, q.arguments[0]); }},
      {"nvmlDeviceGetEccMode",
       [](auto& d, auto&) {
         const unsigned on = AttributeOf(d, CU_DEVICE_ATTRIBUTE_ECC_ENABLED);
         return Packed(NVML_SUCCESS, on, on);
       }},
      {"nvmlDeviceGetCpuAffinity", [](auto&, auto&) { return Processors(); }},
      {"nvmlDeviceGetCpuAffinityWithinScope", [](auto&, auto&) { return Processors(); }},
      {"nvmlDeviceGetP2PStatus", [](auto&, auto& q) { return PeerStatus(q); }},
      {"nvmlDeviceGetTopologyCommonAncestor",
       [](auto&, auto& q) {
         return Number(q.device == q.peer ? NVML_TOPOLOGY_INTERNAL : NVML_TOPOLOGY_NODE);
       }},
  };
  return *functions;
}

}  // namespace

HostResult SoftTelemetry::Ask(const HostQuestion& question) {
  if (question.function == "nvmlSystemGetDriverVersion") return Text(kDriverVersion);
  if (question.function == "nvmlSystemGetNVMLVersion") return Text(kNvmlVersion);
  const auto found = Functions().find(question.function);
  if (found == Functions().end()) return {NVML_ERROR_NOT_SUPPORTED, {}};
  return found->second(devices_.at(question.device), question);
}

}  // namespace detshare::soft
