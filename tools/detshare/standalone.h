// `detshare run --standalone`: runs one command with a private daemon.
#pragma once

#include <string>
#include <vector>

#include "tools/detshare/launch.h"

namespace detshare::tools {

// Starts a private daemon from the first path in `daemons` that can be executed, runs the command
// with it, and ends the daemon. Passes the signals that this process gets on to the program.
// Returns the program's exit code, 128 + signal if a signal killed it, or kExitLauncher after a
// message.
int RunStandalone(const RunOptions& options, const std::vector<std::string>& daemons);

}  // namespace detshare::tools
