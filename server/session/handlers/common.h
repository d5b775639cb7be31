// What the handlers share. A handler checks what its client claims, does the work or hands it to
// the session's coroutine, and answers through `reply`; one that must wait moves the reply into a
// Task, spawned on the session's executor.
#pragma once

#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "coroutine_runtime/status_cuda.h"
#include "proto/driver_api/server_dispatch.h"
#include "proto/wire/common.h"
#include "server/session/reply.h"
#include "server/session/session.h"

namespace detshare::handlers {

// Signals what a record asks for on its stream; nothing when it asks for nothing.
absl::Status SignalStream(Session& session, StreamId stream, const wire::Signal& signal);

}  // namespace detshare::handlers
