// The launch of a kernel as a task, with the kernels that it launches.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "server/backends/soft/soft_grid.h"

namespace detshare::soft {

// Returns a GridJob for a kernel that launches none. Errors: those of GridJob::Create.
absl::StatusOr<std::unique_ptr<Job>> MakeKernelJob(GridRequest request);

}  // namespace detshare::soft
