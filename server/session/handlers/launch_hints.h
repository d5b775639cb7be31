// Hints of launches, as clients name them.
#pragma once

#include "absl/status/status.h"
#include "coroutine_runtime/launch_hints.h"
#include "proto/wire/launch_hints.h"
#include "server/session/handlers/common.h"

namespace detshare::handlers {

// Checks every number. A window of memory that is not the session's is left out, as a hint may be.
absl::Status ReadHints(Session& session, const wire::LaunchHints& named, LaunchHints* hints);

}  // namespace detshare::handlers
