#include "server/backends/cuda/host_nvml.h"

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "policy/status_macros.h"
#include "proto/device_uuid.h"
#include "proto/nvml/host_functions.h"
#include "server/backends/cuda/host_nvml_calls.h"

namespace detshare {
namespace cuda {
namespace {

// The shim's libnvidia-ml.so.1 exports this symbol; a real one does not.
constexpr char kShimSymbol[] = "detshare_shim_version";

// Full paths come first: the shim may come first on the library path with which the daemon was
// started.
constexpr const char* kCandidates[] = {
    "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1",
    "/usr/lib64/libnvidia-ml.so.1",
    "/usr/lib/x86_64-linux-gnu/nvidia/current/libnvidia-ml.so.1",
    "/usr/local/nvidia/lib64/libnvidia-ml.so.1",
    "/usr/local/nvidia/lib/libnvidia-ml.so.1",
    "/run/opengl-driver/lib/libnvidia-ml.so.1",
    "/usr/lib/wsl/lib/libnvidia-ml.so.1",
    "libnvidia-ml.so.1",
};

absl::StatusOr<HostNvml> Open(const std::string& path) {
  std::vector<std::string> candidates(std::begin(kCandidates), std::end(kCandidates));
  if (!path.empty()) candidates = {path};
  std::string tried;
  for (const std::string& candidate : candidates) {
    HostNvml nvml{dlopen(candidate.c_str(), RTLD_NOW | RTLD_LOCAL)};
    std::string why;
    if (nvml.library == nullptr) {
      const char* const reason = dlerror();
      why = reason == nullptr ? candidate : reason;
    } else if (dlsym(nvml.library, kShimSymbol) != nullptr) {
      why = absl::StrCat(candidate, " is DetShare's own");
    } else if (const auto init = nvml.Find<nvmlReturn_t (*)()>("nvmlInit_v2"); init == nullptr) {
      why = absl::StrCat(candidate, " has no nvmlInit_v2");
    } else if (const nvmlReturn_t result = init(); result != NVML_SUCCESS) {
      why = absl::StrCat(candidate, ": nvmlInit_v2 returned ", result);
    } else {
      return nvml;
    }
    if (nvml.library != nullptr) dlclose(nvml.library);
    absl::StrAppend(&tried, tried.empty() ? "" : "; ", why);
  }
  return absl::NotFoundError(absl::StrCat("no NVML: ", tried));
}

class NvmlTelemetry final : public HostTelemetry {
 public:
  NvmlTelemetry(HostNvml nvml, std::vector<nvmlDevice_t> devices)
      : nvml_(nvml), devices_(std::move(devices)) {}

  HostResult Ask(const HostQuestion& question) override {
    const nvml::HostFunction* const function = nvml::FindHostFunction(question.function);
    if (function == nullptr) return {NVML_ERROR_FUNCTION_NOT_FOUND, {}};
    const auto handle = [this](int position) {
      return position >= 0 ? devices_.at(position) : nullptr;
    };
    return kHostCalls[function - std::begin(nvml::kHostFunctions)](
        nvml_, handle(question.device), handle(question.peer), question.arguments.data());
  }

 private:
  const HostNvml nvml_;
  const std::vector<nvmlDevice_t> devices_;
};

// Masks have room for more processors or memory nodes than a machine has.
constexpr unsigned int kWords = 64;

template <typename Call>
HostResult CallForWords(const Call& call) {
  unsigned long words[kWords] = {};
  const nvmlReturn_t result = call(kWords, words);
  return {result, std::string(reinterpret_cast<const char*>(words), sizeof(words))};
}

}  // namespace

HostResult Special_nvmlDeviceGetCpuAffinity(const HostNvml& nvml, nvmlDevice_t device, nvmlDevice_t,
                                            const uint32_t*) {
  const auto function = nvml.Find<nvmlReturn_t (*)(nvmlDevice_t, unsigned int, unsigned long*)>(
      "nvmlDeviceGetCpuAffinity");
  if (function == nullptr) return {NVML_ERROR_FUNCTION_NOT_FOUND, {}};
  return CallForWords(
      [&](unsigned int size, unsigned long* words) { return function(device, size, words); });
}

HostResult Special_nvmlDeviceGetCpuAffinityWithinScope(const HostNvml& nvml, nvmlDevice_t device,
                                                       nvmlDevice_t, const uint32_t* arguments) {
  const auto function =
      nvml.Find<nvmlReturn_t (*)(nvmlDevice_t, unsigned int, unsigned long*, unsigned int)>(
          "nvmlDeviceGetCpuAffinityWithinScope");
  if (function == nullptr) return {NVML_ERROR_FUNCTION_NOT_FOUND, {}};
  return CallForWords([&](unsigned int size, unsigned long* words) {
    return function(device, size, words, arguments[0]);
  });
}

HostResult Special_nvmlDeviceGetMemoryAffinity(const HostNvml& nvml, nvmlDevice_t device,
                                               nvmlDevice_t, const uint32_t* arguments) {
  const auto function =
      nvml.Find<nvmlReturn_t (*)(nvmlDevice_t, unsigned int, unsigned long*, unsigned int)>(
          "nvmlDeviceGetMemoryAffinity");
  if (function == nullptr) return {NVML_ERROR_FUNCTION_NOT_FOUND, {}};
  return CallForWords([&](unsigned int size, unsigned long* words) {
    return function(device, size, words, arguments[0]);
  });
}

HostResult Special_nvmlDeviceGetFieldValues(const HostNvml& nvml, nvmlDevice_t device, nvmlDevice_t,
                                            const uint32_t* arguments) {
  const auto function =
      nvml.Find<nvmlReturn_t (*)(nvmlDevice_t, int, nvmlFieldValue_t*)>("nvmlDeviceGetFieldValues");
  if (function == nullptr) return {NVML_ERROR_FUNCTION_NOT_FOUND, {}};
  nvmlFieldValue_t value{};
  value.fieldId = arguments[0];
  value.scopeId = arguments[1];
  const nvmlReturn_t result = function(device, 1, &value);
  return Packed(result, value);
}

}  // namespace cuda

absl::StatusOr<std::unique_ptr<HostTelemetry>> OpenHostNvml(
    const std::vector<DeviceProperties>& devices, const std::string& path) {
  DETSHARE_ASSIGN_OR_RETURN(cuda::HostNvml nvml, cuda::Open(path));
  const auto by_uuid =
      nvml.Find<nvmlReturn_t (*)(const char*, nvmlDevice_t*)>("nvmlDeviceGetHandleByUUID");
  std::vector<nvmlDevice_t> handles;
  for (const DeviceProperties& device : devices) {
    const std::string uuid = FormatUuid(device.uuid);
    nvmlDevice_t handle = nullptr;
    if (by_uuid == nullptr || by_uuid(uuid.c_str(), &handle) != NVML_SUCCESS)
      return absl::NotFoundError(absl::StrCat("NVML does not know device ", uuid));
    handles.push_back(handle);
  }
  return std::make_unique<cuda::NvmlTelemetry>(nvml, std::move(handles));
}

}  // namespace detshare
