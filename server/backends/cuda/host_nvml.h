// Opens the real libnvidia-ml.so.1 at run time.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "coroutine_runtime/device.h"
#include "coroutine_runtime/host_telemetry.h"

namespace detshare {

// Returns an object that replies for the devices with these properties, in this order; their UUIDs
// identify the cards. `path` is the path of the library; empty: looks for it, and skips the shim.
// The library stays open until the process ends. Returns NotFound if there is no library, or it
// does not know a device.
absl::StatusOr<std::unique_ptr<HostTelemetry>> OpenHostNvml(
    const std::vector<DeviceProperties>& devices, const std::string& path = "");

}  // namespace detshare
