// The rules for launches: which shapes a kernel takes, and what CUDA answers to the others.
#pragma once

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "coroutine_runtime/device.h"
#include "server/backends/soft/soft_grid.h"
#include "server/backends/soft/soft_library.h"

namespace detshare::soft {

// Where a launch may run.
struct SmRange {
  int first = 0;
  int count = 0;
};

// Everything of the request but its number, quantum and log.
absl::StatusOr<GridRequest> PlanLaunch(const DeviceProperties& device, SmRange sms,
                                       std::shared_ptr<SpaceState> space, SoftKernel& kernel,
                                       const LaunchShape& shape,
                                       absl::Span<const std::byte> parameters);

// The number of the launch within its session, and its times, which follow from it alone.
void NumberLaunch(GridRequest& request, uint64_t number);

}  // namespace detshare::soft
