// The software GPU: coroutine_runtime/device.h on this machine's CPUs, with virtual SMs and virtual
// time.
//
// It runs the PTX of unmodified programs (ptx/), places their blocks on virtual SMs, and computes
// how long the work would take on a GPU (soft_timing.h); what its markers measure is that time.
// Sessions are isolated: an access outside a session's memory is that session's fault alone.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "coroutine_runtime/device.h"
#include "server/backends/soft/soft_properties.h"

namespace detshare::soft {

// InvalidArgument when the options describe no device.
absl::StatusOr<std::unique_ptr<Device>> CreateSoftDevice(const SoftDeviceOptions& options);

}  // namespace detshare::soft
