// Copies and fills as tasks of the engine.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "coroutine_runtime/device.h"
#include "server/backends/soft/soft_engine.h"

namespace detshare::soft {

// Both check that all of the memory is the session's: CUDA_ERROR_INVALID_VALUE when it is not.
// Null: nothing to do.
absl::StatusOr<std::unique_ptr<Task>> MakeCopy(std::shared_ptr<SpaceState> space,
                                               const CopyRequest& request);
absl::StatusOr<std::unique_ptr<Task>> MakeFill(std::shared_ptr<SpaceState> space,
                                               const FillRequest& request);

}  // namespace detshare::soft
