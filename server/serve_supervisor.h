// Accepts connections, decides who they are, and leaves the programs to engines
// (server/engines/engines.h). This process opens no device. It owns what all engines have in common:
// identity, limits of sessions, settings, events, metrics and the dashboard.
#pragma once

#include "server/startup.h"

namespace detshare {

// Serves until a signal asks for the end. Returns the exit code.
int ServeSupervisor(const Startup& startup);

}  // namespace detshare
