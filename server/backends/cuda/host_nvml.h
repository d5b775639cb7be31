// The real libnvidia-ml.so.1, found at run time as the driver is.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "coroutine_runtime/device.h"
#include "coroutine_runtime/host_telemetry.h"

namespace detshare {

// Answers for the devices with these properties (their UUIDs tell which cards they are), in this
// order. `path`: of the library; empty: looks for it. Passes over our own shim. The library stays
// open until the process ends. NotFound when there is none, or it does not know a device.
absl::StatusOr<std::unique_ptr<HostTelemetry>> OpenHostNvml(
    const std::vector<DeviceProperties>& devices, const std::string& path = "");

}  // namespace detshare
