// Handles of devices, and the device's part of a reply. A handle is the device's position in the
// daemon's reply. It is the same in every process and for ever.
#pragma once

#include "client_shim/nvml/reply_cache.h"

namespace detshare::nvml {

inline constexpr int kMaxDevices = 64;

nvmlDevice_t HandleOf(int position);
// Returns -1 if this is no handle.
int PositionOf(nvmlDevice_t device);

// Finds the device in a snapshot that is recent enough. The pointer is valid as long as *snapshot.
// NVML_ERROR_UNINITIALIZED comes first. NVML_ERROR_INVALID_ARGUMENT: there is no such device. Other
// errors are those of GetSnapshot.
nvmlReturn_t FindDevice(nvmlDevice_t device, Snapshot* snapshot, const proto::VisibleDevice** found,
                        bool utilization = false);

// Copies `text` with its terminator into `length` bytes. NVML_ERROR_INSUFFICIENT_SIZE: it does not
// fit. NVML_ERROR_INVALID_ARGUMENT: `to` is null.
nvmlReturn_t CopyText(const std::string& text, char* to, size_t length);

}  // namespace detshare::nvml
