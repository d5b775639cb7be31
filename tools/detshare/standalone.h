// A private daemon for the time of one command.
#pragma once

#include <string>
#include <vector>

#include "tools/detshare/launch.h"

namespace detshare::tools {

// Starts the first of `daemons` that exists in a directory of its own, runs the command against it
// and ends it. The program gets the signals that are sent to this process. Returns the program's
// exit code, 128 + signal when it was killed.
int RunStandalone(const RunOptions& options, const std::vector<std::string>& daemons);

}  // namespace detshare::tools
