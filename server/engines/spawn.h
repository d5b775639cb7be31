// Starts processes of the daemon's program.
#pragma once

#include <sys/types.h>

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace detshare {

// Starts a process of `program`, which inherits the standard descriptors and `descriptors`, each by
// its number there, above those, and the environment without the service manager's variables, which
// are meant for the supervisor. `variable`, "NAME=VALUE" or "", replaces that variable. Returns the
// process, which is this process's child. Any thread may call it.
absl::StatusOr<pid_t> Spawn(const std::string& program, std::vector<std::string> command,
                            const std::map<int, int>& descriptors, std::string variable);

}  // namespace detshare
