// Calls of the host's NVML, one function each. They are generated from proto/nvml/nvml.table if a
// pattern fits, and otherwise written in host_nvml.cc.
#pragma once

#include <dlfcn.h>

#include <cstdint>
#include <cstring>

#include "coroutine_runtime/host_telemetry.h"
#include "proto/nvml/nvml_types.h"

namespace detshare::cuda {

// The opened library.
struct HostNvml {
  void* library = nullptr;
  template <typename Function>
  Function Find(const char* name) const {
    return reinterpret_cast<Function>(dlsym(library, name));
  }
};

// `arguments` has as many elements as the function's row.
using HostCall = HostResult (*)(const HostNvml& nvml, nvmlDevice_t device, nvmlDevice_t peer,
                                const uint32_t* arguments);

// In the order of nvml::kHostFunctions.
extern const HostCall kHostCalls[];

HostResult Special_nvmlDeviceGetCpuAffinity(const HostNvml&, nvmlDevice_t, nvmlDevice_t,
                                            const uint32_t*);
HostResult Special_nvmlDeviceGetCpuAffinityWithinScope(const HostNvml&, nvmlDevice_t, nvmlDevice_t,
                                                       const uint32_t*);
HostResult Special_nvmlDeviceGetMemoryAffinity(const HostNvml&, nvmlDevice_t, nvmlDevice_t,
                                               const uint32_t*);
HostResult Special_nvmlDeviceGetFieldValues(const HostNvml&, nvmlDevice_t, nvmlDevice_t,
                                            const uint32_t*);

// NVML's texts are shorter than this.
inline constexpr unsigned int kTextBytes = 256;

template <typename Call>
HostResult CallForText(const Call& call) {
  char text[kTextBytes + 1] = {};
  const nvmlReturn_t result = call(text, kTextBytes);
  return {result, text};
}

template <typename Call>
HostResult CallForText80(const Call& call) {
  char text[kTextBytes + 1] = {};
  const nvmlReturn_t result = call(text);
  return {result, text};
}

template <typename Call>
HostResult CallForList(const Call& call) {
  unsigned int list[1024];
  unsigned int count = 1024;
  const nvmlReturn_t result = call(&count, list);
  if (result != NVML_SUCCESS || count > 1024) return {result, {}};
  return {result, std::string(reinterpret_cast<const char*>(list), count * sizeof(list[0]))};
}

// Calls a function whose struct begins with its version, which the client chose. The library
// compares the version with those that it knows. So it writes no more than the size that is part of
// the version.
template <typename Call>
HostResult CallVersioned(const Call& call, uint32_t version) {
  constexpr uint32_t kMaxBytes = 4096;
  const uint32_t bytes = version & 0xFFFFFF;
  if (bytes < sizeof(version) || bytes > kMaxBytes)
    return {NVML_ERROR_ARGUMENT_VERSION_MISMATCH, {}};
  alignas(16) char data[2 * kMaxBytes] = {};
  std::memcpy(data, &version, sizeof(version));
  const nvmlReturn_t result = call(data);
  return {result, std::string(data, bytes)};
}

}  // namespace detshare::cuda
