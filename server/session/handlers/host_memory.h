// Pinned host memory.
#pragma once

#include "absl/status/statusor.h"
#include "proto/ring_abi.h"
#include "server/shared_memory/shared_region.h"

namespace detshare {
class Session;
}

namespace detshare::handlers {

// Pinned memory that all devices of the session reach, with any contents, for the daemon's own use
// of it: no client can free it. CUDA_ERROR_OUT_OF_MEMORY, or the device's error.
absl::StatusOr<PinnedWindow::Allocation> AllocatePinned(Session& session, uint64_t bytes);
// No work touches it any more.
void FreePinned(Session& session, uint64_t address);

// Frees the pinned memory of a context whose work is complete.
void FreePinnedOf(Session& session, ContextId context);

}  // namespace detshare::handlers
