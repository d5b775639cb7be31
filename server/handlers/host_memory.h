// Pinned host memory.
#pragma once

#include "proto/ring_abi.h"

namespace detshare {
class Session;
}

namespace detshare::handlers {

// Frees the pinned memory of a context whose work is complete.
void FreePinnedOf(Session& session, ContextId context);

}  // namespace detshare::handlers
