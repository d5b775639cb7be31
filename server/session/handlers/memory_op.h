// Reads a client's memory operations on a stream.
#pragma once

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "coroutine_runtime/memory_op.h"
#include "server/session/handlers/common.h"

namespace detshare::handlers {

using MemoryOps = absl::InlinedVector<MemoryOp, 4>;

// Reads the `count` operations of a payload. Every operation must be known. Its word must be
// aligned and lie in the session's memory on the current device, and a wait must be able to end.
// Otherwise the error says which rule is broken.
absl::Status ReadMemoryOps(Session& session, Payload payload, uint32_t count,
                           MemoryOps* operations);

}  // namespace detshare::handlers
