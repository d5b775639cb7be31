// Sets of events. A tenant gets no events. DetShare reports a card's failure to the session, and
// the card's condition is the operator's concern.
#include <chrono>
#include <new>
#include <thread>

#include "client_shim/nvml/devices.h"
#include "client_shim/nvml/export.h"

// It has no content. Its address is the handle.
struct nvmlEventSet_st {
  char unused;
};

namespace detshare::nvml {
namespace {

nvmlReturn_t Wait(nvmlEventSet_t set, const void* data, unsigned int timeoutms) {
  if (const nvmlReturn_t result = CheckInitialised(); result != NVML_SUCCESS) return result;
  if (set == nullptr || data == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  std::this_thread::sleep_for(std::chrono::milliseconds(timeoutms));
  return NVML_ERROR_TIMEOUT;
}

}  // namespace

DETSHARE_EXPORT nvmlReturn_t nvmlEventSetCreate(nvmlEventSet_t* set) {
  if (const nvmlReturn_t result = CheckInitialised(); result != NVML_SUCCESS) return result;
  if (set == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  *set = new (std::nothrow) nvmlEventSet_st();
  return *set != nullptr ? NVML_SUCCESS : NVML_ERROR_MEMORY;
}

DETSHARE_EXPORT nvmlReturn_t nvmlEventSetFree(nvmlEventSet_t set) {
  if (const nvmlReturn_t result = CheckInitialised(); result != NVML_SUCCESS) return result;
  if (set == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  delete set;
  return NVML_SUCCESS;
}

DETSHARE_EXPORT nvmlReturn_t nvmlDeviceGetSupportedEventTypes(nvmlDevice_t device,
                                                              unsigned long long* eventTypes) {
  if (const nvmlReturn_t result = CheckInitialised(); result != NVML_SUCCESS) return result;
  if (PositionOf(device) < 0 || eventTypes == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  *eventTypes = 0;
  return NVML_SUCCESS;
}

DETSHARE_EXPORT nvmlReturn_t nvmlDeviceRegisterEvents(nvmlDevice_t device,
                                                      unsigned long long eventTypes,
                                                      nvmlEventSet_t set) {
  if (const nvmlReturn_t result = CheckInitialised(); result != NVML_SUCCESS) return result;
  if (PositionOf(device) < 0 || set == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  return eventTypes == 0 ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
}

DETSHARE_EXPORT nvmlReturn_t nvmlEventSetWait(nvmlEventSet_t set, void* data,
                                              unsigned int timeoutms) {
  return Wait(set, data, timeoutms);
}
DETSHARE_EXPORT nvmlReturn_t nvmlEventSetWait_v2(nvmlEventSet_t set, nvmlEventData_t* data,
                                                 unsigned int timeoutms) {
  return Wait(set, data, timeoutms);
}

}  // namespace detshare::nvml
