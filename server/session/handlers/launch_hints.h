// Reads a client's hints for a launch.
#pragma once

#include "absl/status/status.h"
#include "coroutine_runtime/launch_hints.h"
#include "proto/wire/launch_hints.h"
#include "server/session/handlers/common.h"

namespace detshare::handlers {

// Checks every number. Drops a memory window outside of the session's memory, because a hint may be
// ignored.
absl::Status ReadHints(Session& session, const wire::LaunchHints& named, LaunchHints* hints);

}  // namespace detshare::handlers
