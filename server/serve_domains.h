// Strict isolation: accepts connections and leaves them to one process for each user
// (server/strict/trust_domains.h).
#pragma once

#include "server/startup.h"

namespace detshare {

// Serves until a signal asks for the end. Returns the exit code.
int ServeDomains(const Startup& startup);

}  // namespace detshare
