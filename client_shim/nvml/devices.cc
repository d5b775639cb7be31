#include "client_shim/nvml/devices.h"

#include <cstring>

namespace detshare::nvml {
namespace {

// Only the addresses have a meaning.
uint64_t g_handles[kMaxDevices];

}  // namespace

nvmlDevice_t HandleOf(int position) { return reinterpret_cast<nvmlDevice_t>(&g_handles[position]); }

int PositionOf(nvmlDevice_t device) {
  const auto offset = reinterpret_cast<uintptr_t>(device) - reinterpret_cast<uintptr_t>(g_handles);
  if (offset >= sizeof(g_handles) || offset % sizeof(g_handles[0]) != 0) return -1;
  return static_cast<int>(offset / sizeof(g_handles[0]));
}

nvmlReturn_t FindDevice(nvmlDevice_t device, Snapshot* snapshot, const proto::VisibleDevice** found,
                        bool utilization) {
  if (const nvmlReturn_t result = CheckInitialised(); result != NVML_SUCCESS) return result;
  const int position = PositionOf(device);
  if (position < 0) return NVML_ERROR_INVALID_ARGUMENT;
  if (const nvmlReturn_t result = GetSnapshot(snapshot, utilization); result != NVML_SUCCESS)
    return result;
  if (position >= (*snapshot)->devices_size()) return NVML_ERROR_INVALID_ARGUMENT;
  *found = &(*snapshot)->devices(position);
  return NVML_SUCCESS;
}

nvmlReturn_t CopyText(const std::string& text, char* to, size_t length) {
  if (to == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  if (text.size() >= length) return NVML_ERROR_INSUFFICIENT_SIZE;
  memcpy(to, text.c_str(), text.size() + 1);
  return NVML_SUCCESS;
}

}  // namespace detshare::nvml
