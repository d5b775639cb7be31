// Copies and fills as tasks of the engine.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "coroutine_runtime/device.h"
#include "server/backends/soft/soft_engine.h"

namespace detshare::soft {

// Both return CUDA_ERROR_INVALID_VALUE when a part of the memory does not belong to the session,
// and null when there is nothing to do. The copy is work of `space`. `destination` and `source` are
// the spaces that hold the two sides: `space`, or the session's space on another device.
absl::StatusOr<std::unique_ptr<Job>> MakeCopy(std::shared_ptr<SpaceState> space,
                                              std::shared_ptr<SpaceState> destination,
                                              std::shared_ptr<SpaceState> source,
                                              const CopyRequest& request);
inline absl::StatusOr<std::unique_ptr<Job>> MakeCopy(const std::shared_ptr<SpaceState>& space,
                                                     const CopyRequest& request) {
  return MakeCopy(space, space, space, request);
}
absl::StatusOr<std::unique_ptr<Job>> MakeFill(std::shared_ptr<SpaceState> space,
                                              const FillRequest& request);

}  // namespace detshare::soft
