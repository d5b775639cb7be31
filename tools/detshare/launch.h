// What `detshare run` does: finds the shim, sets the environment, executes.
#pragma once

#include <string>
#include <vector>

namespace detshare::tools {

struct RunOptions {
  std::string tenant;
  std::vector<std::string> devices;
  std::string socket;
  std::string standalone;  // "", "auto", "soft" or "cuda"
  std::string log_level;
  std::vector<std::string> command;  // program and arguments
};

// Exit codes of the launcher itself; every other one is the program's (128 + signal when it was
// killed).
inline constexpr int kExitLauncher = 125;
inline constexpr int kExitNotExecutable = 126;
inline constexpr int kExitNotFound = 127;

// Directories in which the shim (`libcuda.so.1`) and the daemon (`detshared`) are looked for, given
// the directory of the launcher's own binary: $DETSHARE_LIB_DIR or $DETSHARE_DAEMON alone when set;
// else the bundle's, then the build tree's.
std::vector<std::string> ShimDirectories(const std::string& own_directory);
std::vector<std::string> DaemonPaths(const std::string& own_directory);

// Replaces this process by the program (without `standalone`), or runs it as a child beside a
// private daemon. Returns an exit code; what went wrong, and what to do about it, is on stderr.
int Run(const RunOptions& options);

}  // namespace detshare::tools
