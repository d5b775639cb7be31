// Values of the host in forms that the table of functions does not describe.
#include <cstring>
#include <vector>

#include "client_shim/nvml/ask.h"
#include "client_shim/nvml/devices.h"
#include "client_shim/nvml/export.h"

namespace detshare::nvml {

DETSHARE_EXPORT nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t device, int valuesCount,
                                                      nvmlFieldValue_t* values) {
  if (const nvmlReturn_t result = CheckInitialised(); result != NVML_SUCCESS) return result;
  const int position = PositionOf(device);
  if (position < 0 || valuesCount <= 0 || values == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  std::vector<HostQuery> queries;
  for (int i = 0; i < valuesCount; ++i)
    queries.push_back(
        {"nvmlDeviceGetFieldValues", position, -1, {values[i].fieldId, values[i].scopeId}});
  std::vector<proto::HostReply> replies;
  if (const nvmlReturn_t result = AskHost(queries, Age::kLive, &replies); result != NVML_SUCCESS)
    return result;
  for (int i = 0; i < valuesCount; ++i) {
    const proto::HostReply& reply = replies[i];
    if (reply.result() == NVML_SUCCESS && reply.data().size() == sizeof(values[i])) {
      memcpy(&values[i], reply.data().data(), sizeof(values[i]));
    } else {
      values[i].nvmlReturn = reply.result() != NVML_SUCCESS ? reply.result() : NVML_ERROR_UNKNOWN;
    }
  }
  return NVML_SUCCESS;
}

DETSHARE_EXPORT nvmlReturn_t nvmlDeviceGetTemperatureV(nvmlDevice_t device,
                                                       nvmlTemperature_t* temperature) {
  if (const nvmlReturn_t result = CheckInitialised(); result != NVML_SUCCESS) return result;
  if (temperature == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  if (temperature->version != NvmlStructVersion(sizeof(*temperature), 1))
    return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
  return AskPlain("nvmlDeviceGetTemperature", Age::kLive, Subject(device),
                  {temperature->sensorType}, {Out(&temperature->temperature)});
}

// This version of the struct ends before the long form of the bus id.
DETSHARE_EXPORT nvmlReturn_t nvmlDeviceGetNvLinkRemotePciInfo(nvmlDevice_t device,
                                                              unsigned int link, void* pci) {
  if (const nvmlReturn_t result = CheckInitialised(); result != NVML_SUCCESS) return result;
  if (pci == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  nvmlPciInfo_t whole;
  const nvmlReturn_t result = AskPlain("nvmlDeviceGetNvLinkRemotePciInfo_v2", Age::kFixed,
                                       Subject(device), {link}, {Out(&whole)});
  if (result == NVML_SUCCESS) memcpy(pci, &whole, offsetof(nvmlPciInfo_t, busId));
  return result;
}

}  // namespace detshare::nvml
