// The types and numbers of NVML's C interface (driver 580) that DetShare uses. The shim offers the
// interface, and the daemon calls it in the host's library.
//
// Names are NVML's. The interface's enumerations are 32-bit numbers here.
#pragma once

#include <cstddef>
#include <cstdint>

extern "C" {

struct nvmlDevice_st;
using nvmlDevice_t = nvmlDevice_st*;
struct nvmlEventSet_st;
using nvmlEventSet_t = nvmlEventSet_st*;

using nvmlReturn_t = int;

enum : nvmlReturn_t {
  NVML_SUCCESS = 0,
  NVML_ERROR_UNINITIALIZED = 1,
  NVML_ERROR_INVALID_ARGUMENT = 2,
  NVML_ERROR_NOT_SUPPORTED = 3,
  NVML_ERROR_NO_PERMISSION = 4,
  NVML_ERROR_NOT_FOUND = 6,
  NVML_ERROR_INSUFFICIENT_SIZE = 7,
  NVML_ERROR_DRIVER_NOT_LOADED = 9,
  NVML_ERROR_TIMEOUT = 10,
  NVML_ERROR_FUNCTION_NOT_FOUND = 13,
  NVML_ERROR_MEMORY = 20,
  NVML_ERROR_ARGUMENT_VERSION_MISMATCH = 25,
  NVML_ERROR_UNKNOWN = 999,
};

struct nvmlPciInfo_t {
  char busIdLegacy[16];
  unsigned int domain, bus, device;
  unsigned int pciDeviceId;  // device << 16 | vendor
  unsigned int pciSubSystemId;
  char busId[32];
};
static_assert(sizeof(nvmlPciInfo_t) == 68);

struct nvmlMemory_t {
  unsigned long long total, free, used;  // bytes
};
struct nvmlMemory_v2_t {
  unsigned int version;
  unsigned long long total, reserved, free, used;  // bytes
};
static_assert(sizeof(nvmlMemory_v2_t) == 40);

struct nvmlBAR1Memory_t {
  unsigned long long bar1Total, bar1Free, bar1Used;  // bytes
};

struct nvmlUtilization_t {
  unsigned int gpu, memory;  // percent
};

struct nvmlProcessInfo_v1_t {
  unsigned int pid;
  unsigned long long usedGpuMemory;  // bytes
};
struct nvmlProcessInfo_v2_t {
  unsigned int pid;
  unsigned long long usedGpuMemory;
  unsigned int gpuInstanceId, computeInstanceId;  // 0xFFFFFFFF: no MIG
};
static_assert(sizeof(nvmlProcessInfo_v1_t) == 16 && sizeof(nvmlProcessInfo_v2_t) == 24);

struct nvmlProcessUtilizationSample_t {
  unsigned int pid;
  unsigned long long timeStamp;                    // microseconds since 1970
  unsigned int smUtil, memUtil, encUtil, decUtil;  // percent
};
static_assert(sizeof(nvmlProcessUtilizationSample_t) == 32);

struct nvmlEccErrorCounts_t {
  unsigned long long l1Cache, l2Cache, deviceMemory, registerFile;
};
struct nvmlRowRemapperHistogramValues_t {
  unsigned int max, high, partial, low, none;
};
struct nvmlViolationTime_t {
  unsigned long long referenceTime, violationTime;
};
struct nvmlC2cModeInfo_v1_t {
  unsigned int isC2cEnabled;
};
struct nvmlConfComputeMemSizeInfo_t {
  unsigned long long protectedMemSizeKib, unprotectedMemSizeKib;
};
struct nvmlConfComputeSystemState_t {
  unsigned int environment, ccFeature, devToolsMode;
};

struct nvmlGpuFabricInfo_t {
  unsigned char clusterUuid[16];
  nvmlReturn_t status;
  unsigned int cliqueId;
  unsigned char state;
};
static_assert(sizeof(nvmlGpuFabricInfo_t) == 28);

struct nvmlTemperature_t {
  unsigned int version, sensorType;
  int temperature;  // degrees Celsius
};

// A value that is requested by its number. `valueType` says which member of `value` is set.
struct nvmlFieldValue_t {
  unsigned int fieldId, scopeId;
  long long timestamp;  // microseconds since 1970
  long long latencyUsec;
  unsigned int valueType;
  nvmlReturn_t nvmlReturn;
  union {
    double dVal;
    unsigned long long ullVal;
  } value;
};
static_assert(sizeof(nvmlFieldValue_t) == 40);

struct nvmlUUID_t {
  unsigned int version, type;
  union {
    char str[41];
    unsigned char bytes[16];
  } value;
};
static_assert(sizeof(nvmlUUID_t) == 52);

struct nvmlEventData_t {
  nvmlDevice_t device;
  unsigned long long eventType, eventData;
  unsigned int gpuInstanceId, computeInstanceId;
};
static_assert(sizeof(nvmlEventData_t) == 32);

}  // extern "C"

// The version word of a versioned struct.
constexpr unsigned int NvmlStructVersion(size_t bytes, unsigned int version) {
  return static_cast<unsigned int>(bytes) | version << 24;
}

// Values for nvmlDeviceGetBrand, nvmlDeviceGetBusType and the topology functions.
inline constexpr unsigned int NVML_BRAND_NVIDIA = 14;
inline constexpr unsigned int NVML_BUS_TYPE_PCIE = 2;
inline constexpr unsigned int NVML_TOPOLOGY_INTERNAL = 0;
inline constexpr unsigned int NVML_TOPOLOGY_NODE = 40;
