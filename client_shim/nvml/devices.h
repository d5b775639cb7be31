// Handles of devices: a position in the daemon's answer, the same in every process and for ever.
#pragma once

#include "client_shim/nvml/reply_cache.h"

namespace detshare::nvml {

inline constexpr int kMaxDevices = 64;

nvmlDevice_t HandleOf(int position);
// -1 for what is no handle.
int PositionOf(nvmlDevice_t device);

// The device's part of a snapshot that is recent enough. The pointer is valid as long as *snapshot.
// NVML_ERROR_UNINITIALIZED, then NVML_ERROR_INVALID_ARGUMENT when it is none of the devices, else
// as GetSnapshot.
nvmlReturn_t FindDevice(nvmlDevice_t device, Snapshot* snapshot, const proto::VisibleDevice** found,
                        bool utilization = false);

// "GPU-8a1b...", as NVML writes it.
std::string UuidText(const proto::VisibleDevice& device);

// Copies `text` with its end into `length` bytes. NVML_ERROR_INSUFFICIENT_SIZE,
// NVML_ERROR_INVALID_ARGUMENT.
nvmlReturn_t CopyText(const std::string& text, char* to, size_t length);

}  // namespace detshare::nvml
