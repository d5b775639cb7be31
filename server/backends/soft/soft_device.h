// The software GPU implements coroutine_runtime/device.h on the CPUs of the host, with virtual SMs
// and virtual time.
//
// It runs the PTX of unmodified programs (ptx/), places their blocks on virtual SMs, and computes
// how long the work would take on a GPU (soft_timing.h). Its markers measure this virtual time.
// Preemption between its two time-slice groups takes virtual time (soft_time_slices.h). In real time,
// ordinary kernels stand still beside urgent ones (ordinary_group.h). There is one copy of every
// variable, heap, texture and surface, for both groups. Sessions are isolated: when a kernel accesses
// an address outside its session's memory, only that session gets a fault.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "coroutine_runtime/device.h"
#include "server/backends/soft/soft_properties.h"

namespace detshare::soft {

// InvalidArgument when the options describe no device.
absl::StatusOr<std::unique_ptr<Device>> CreateSoftDevice(const SoftDeviceOptions& options);

}  // namespace detshare::soft
