// A libnvidia-ml.so.1 for the test. It has a few functions of the real library and knows one
// device.
#include <cstring>

#include "proto/nvml/nvml_types.h"

namespace {
char g_device;
nvmlDevice_t TheDevice() { return reinterpret_cast<nvmlDevice_t>(&g_device); }
}  // namespace

extern "C" {

nvmlReturn_t nvmlInit_v2() { return NVML_SUCCESS; }
nvmlReturn_t nvmlDeviceGetHandleByUUID(const char* uuid, nvmlDevice_t* device) {
  if (std::strcmp(uuid, "GPU-01020304-0506-0708-090a-0b0c0d0e0f10") != 0)
    return NVML_ERROR_NOT_FOUND;
  *device = TheDevice();
  return NVML_SUCCESS;
}
nvmlReturn_t nvmlSystemGetDriverVersion(char* version, unsigned int length) {
  if (length < 8) return NVML_ERROR_INSUFFICIENT_SIZE;
  std::strcpy(version, "1.2.3");
  return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetPowerUsage(nvmlDevice_t device, unsigned int* power) {
  if (device != TheDevice()) return NVML_ERROR_INVALID_ARGUMENT;
  *power = 123456;
  return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetMinMaxClockOfPState(nvmlDevice_t, unsigned int type, unsigned int pstate,
                                              unsigned int* min, unsigned int* max) {
  *min = type;
  *max = pstate;
  return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetP2PStatus(nvmlDevice_t device, nvmlDevice_t peer, unsigned int index,
                                    unsigned int* status) {
  *status = device == peer ? index : 99;
  return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetFanSpeed(nvmlDevice_t, unsigned int*) { return NVML_ERROR_NOT_SUPPORTED; }
nvmlReturn_t nvmlDeviceGetSupportedMemoryClocks(nvmlDevice_t, unsigned int* count,
                                                unsigned int* clocks) {
  if (*count < 2) return NVML_ERROR_INSUFFICIENT_SIZE;
  *count = 2;
  clocks[0] = 3201;
  clocks[1] = 1593;
  return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetGspFirmwareVersion(nvmlDevice_t, char* version) {
  std::strcpy(version, "firmware");
  return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetMarginTemperature(nvmlDevice_t, unsigned int* data) {
  if (data[0] != NvmlStructVersion(8, 1)) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
  data[1] = 48;
  return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetCpuAffinity(nvmlDevice_t, unsigned int size, unsigned long* words) {
  words[0] = 0xFF;
  words[size - 1] = 1;
  return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t, int count, nvmlFieldValue_t* values) {
  for (int i = 0; i < count; ++i) {
    values[i].value.ullVal = values[i].fieldId * 100 + values[i].scopeId;
    values[i].nvmlReturn = NVML_SUCCESS;
  }
  return NVML_SUCCESS;
}

}  // extern "C"
