// Replaces this process by another program.
#pragma once

#include <string>
#include <vector>

namespace detshare::tools {

// Exit codes of the launcher's own errors. All other codes are the program's: its exit code, or 128
// + signal if a signal killed it.
inline constexpr int kExitLauncher = 125;
inline constexpr int kExitNotExecutable = 126;
inline constexpr int kExitNotFound = 127;

// Replaces this process by `command`, which is looked for on the PATH. Returns only if that fails:
// prints a message on stderr and returns the exit code.
int Execute(const std::vector<std::string>& command);

}  // namespace detshare::tools
