// What `detshare run` does: finds the shim, sets the environment, executes.
#pragma once

#include <string>
#include <vector>

namespace detshare::tools {

struct RunOptions {
  std::string tenant;
  std::vector<std::string> devices;
  std::string device_count;  // how many of them, or of all; "": nothing said
  std::string socket;
  std::string standalone;  // "", "auto", "soft" or "cuda"
  std::string log_level;
  // Digests of what the program reads back: "" none, "-" on stderr, else a file; and a file with a
  // line for each read, or "".
  std::string digest, digest_log;
  std::vector<std::string> command;  // program and arguments
};

// Of this program's file.
std::string OwnDirectory();
// Directories in which the shim (`libcuda.so.1`) and the daemon (`detshared`) are looked for, given
// the directory of the launcher's own binary: $DETSHARE_LIB_DIR or $DETSHARE_DAEMON alone when set;
// else the bundle's, the Debian package's, the build tree's.
std::vector<std::string> ShimDirectories(const std::string& own_directory);
std::vector<std::string> DaemonPaths(const std::string& own_directory);

// Replaces this process by the program (without `standalone`), or runs it as a child beside a
// private daemon. Returns an exit code; what went wrong, and what to do about it, is on stderr.
int Run(const RunOptions& options);

}  // namespace detshare::tools
