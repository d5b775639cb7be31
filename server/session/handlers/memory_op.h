// Operations of streams on memory as clients name them.
#pragma once

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "coroutine_runtime/memory_op.h"
#include "server/session/handlers/common.h"

namespace detshare::handlers {

using MemoryOps = absl::InlinedVector<MemoryOp, 4>;

// The `count` operations of a payload. Each is known, its word is aligned and lies in the session's
// memory on the current device, and a wait can end: otherwise the error says what is wrong.
absl::Status ReadMemoryOps(Session& session, Payload payload, uint32_t count,
                           MemoryOps* operations);

}  // namespace detshare::handlers
