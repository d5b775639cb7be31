// Declarations that all handlers share. A handler checks the client's arguments, does the work or
// passes it to the session's GPU coroutine, and replies through `reply`. A handler that must wait
// moves the reply into a Task and spawns the task on the session's executor.
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

// Enqueues the record's signal on the stream. Does nothing when the record asks for no signal.
absl::Status SignalStream(Session& session, StreamId stream, const wire::Signal& signal);

}  // namespace detshare::handlers
