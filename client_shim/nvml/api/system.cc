// Initialisation and shutdown, versions, errors, the machine.
#include <cstdio>
#include <string>

#include "client_shim/nvml/export.h"
#include "client_shim/nvml/reply_cache.h"
#include "proto/version.h"

namespace detshare::nvml {

DETSHARE_EXPORT nvmlReturn_t nvmlInit() { return Initialise(); }
DETSHARE_EXPORT nvmlReturn_t nvmlInit_v2() { return Initialise(); }
// One flag allows a machine without GPUs, which is no error here. The other leaves GPUs unattached,
// which they always are here.
DETSHARE_EXPORT nvmlReturn_t nvmlInitWithFlags(unsigned int) { return Initialise(); }
DETSHARE_EXPORT nvmlReturn_t nvmlShutdown() { return ShutDown(); }

DETSHARE_EXPORT const char* nvmlErrorString(nvmlReturn_t result) {
  switch (result) {
    case 0:
      return "Success";
    case 1:
      return "Uninitialized";
    case 2:
      return "Invalid Argument";
    case 3:
      return "Not Supported";
    case 4:
      return "Insufficient Permissions";
    case 5:
      return "Already Initialized";
    case 6:
      return "Not Found";
    case 7:
      return "Insufficient Size";
    case 8:
      return "Insufficient External Power";
    case 9:
      return "Driver Not Loaded";
    case 10:
      return "Timeout";
    case 11:
      return "Interrupt Request Issue";
    case 12:
      return "NVML Shared Library Not Found";
    case 13:
      return "Function Not Found";
    case 14:
      return "Corrupted infoROM";
    case 15:
      return "GPU is lost";
    case 16:
      return "GPU requires reset";
    case 17:
      return "GPU access blocked by the operating system";
    case 18:
      return "Driver/library version mismatch";
    case 19:
      return "In use by another client";
    case 20:
      return "Insufficient Memory";
    case 21:
      return "No data";
    case 22:
      return "The requested vgpu operation is not available on target device, because ECC is "
             "enabled";
    case 23:
      return "Insufficient Resources";
    case 24:
      return "Frequency not supported";
    case 25:
      return "Argument version mismatch";
    case 26:
      return "Deprecated";
    case 27:
      return "System is not in ready state";
    case 28:
      return "No GPUs were found";
    case 29:
      return "Invalid state";
    default:
      return "Unknown Error";
  }
}

// Works before nvmlInit, as NVML's own function does.
DETSHARE_EXPORT nvmlReturn_t nvmlSystemGetCudaDriverVersion(int* cudaDriverVersion) {
  if (cudaDriverVersion == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  Snapshot snapshot;
  const nvmlReturn_t result =
      CheckInitialised() == NVML_SUCCESS ? GetSnapshot(&snapshot) : AskForSnapshot(&snapshot);
  if (result == NVML_SUCCESS) *cudaDriverVersion = snapshot->driver_version();
  return result;
}

DETSHARE_EXPORT nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int* cudaDriverVersion) {
  return nvmlSystemGetCudaDriverVersion(cudaDriverVersion);
}

// Returns the first word of the command line, cut to the caller's room.
DETSHARE_EXPORT nvmlReturn_t nvmlSystemGetProcessName(unsigned int pid, char* name,
                                                      unsigned int length) {
  if (const nvmlReturn_t result = CheckInitialised(); result != NVML_SUCCESS) return result;
  if (name == nullptr || length == 0) return NVML_ERROR_INVALID_ARGUMENT;
  FILE* const file = fopen(("/proc/" + std::to_string(pid) + "/cmdline").c_str(), "re");
  if (file == nullptr) return NVML_ERROR_NOT_FOUND;
  size_t count = 0;
  for (int c; count + 1 < length && (c = fgetc(file)) != EOF && c != '\0';)
    name[count++] = static_cast<char>(c);
  name[count] = '\0';
  fclose(file);
  return NVML_SUCCESS;
}

// No GPU is hidden from the tenant that was granted it.
DETSHARE_EXPORT nvmlReturn_t nvmlGetExcludedDeviceCount(unsigned int* deviceCount) {
  if (const nvmlReturn_t result = CheckInitialised(); result != NVML_SUCCESS) return result;
  if (deviceCount == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  *deviceCount = 0;
  return NVML_SUCCESS;
}

DETSHARE_EXPORT nvmlReturn_t nvmlGetBlacklistDeviceCount(unsigned int* deviceCount) {
  return nvmlGetExcludedDeviceCount(deviceCount);
}

// The daemon distinguishes the shim from the real library by this symbol.
extern "C" __attribute__((visibility("default"))) const char detshare_shim_version[] =
    DETSHARE_VERSION;

}  // namespace detshare::nvml
