// Becoming another program.
#pragma once

#include <string>
#include <vector>

namespace detshare::tools {

// Exit codes of whoever starts a program; every other one is the program's (128 + signal when it
// was killed).
inline constexpr int kExitLauncher = 125;
inline constexpr int kExitNotExecutable = 126;
inline constexpr int kExitNotFound = 127;

// Replaces this process by `command`, found on the PATH. Returns only when that fails: the exit
// code, after a message.
int Execute(const std::vector<std::string>& command);

}  // namespace detshare::tools
