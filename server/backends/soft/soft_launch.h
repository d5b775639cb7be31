// The rules for launches: the shapes that a kernel takes, and the CUDA errors for other shapes.
#pragma once

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "coroutine_runtime/device.h"
#include "server/backends/soft/soft_grid.h"
#include "server/backends/soft/soft_library.h"

namespace detshare::soft {

// The SMs on which a launch may run.
struct SmRange {
  int first = 0;
  int count = 0;
};

// Checks a launch. Returns its request, in which the caller sets the number, quantum and log.
absl::StatusOr<GridRequest> PlanLaunch(const DeviceProperties& device, SmRange sms,
                                       std::shared_ptr<SpaceState> space, SoftKernel& kernel,
                                       const LaunchShape& shape,
                                       absl::Span<const std::byte> parameters);

// Sets the number of the launch within its session, and the times that follow from the number.
void NumberLaunch(GridRequest& request, uint64_t number);

}  // namespace detshare::soft
