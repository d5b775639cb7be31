// `detshare run`: finds the shim, sets the environment, and executes the program.
#pragma once

#include <string>
#include <vector>

namespace detshare::tools {

struct RunOptions {
  std::string tenant;
  std::vector<std::string> devices;  // indices or UUIDs; empty: all
  std::string device_count;          // the daemon chooses so many of them; "": not set
  std::string socket;                // of the daemon; "": the default
  std::string standalone;            // backend of a private daemon: "auto", "soft", "cuda", or ""
  std::string log_level;             // of the shim and of a private daemon; "": the default
  // `digest` says where the digest of all that the program reads back goes: "-" for stderr, or a
  // file. `digest_log` is a file for the digest of each read. "": no digest.
  std::string digest, digest_log;
  std::vector<std::string> command;  // program and arguments
};

// The directory of this program's file; "." if it cannot be found.
std::string OwnDirectory();
// The directories that may hold the shim (`libcuda.so.1`): $DETSHARE_LIB_DIR if it is set,
// otherwise those of the bundle, the Debian package and the build tree. `own_directory` is that of
// the launcher's file.
std::vector<std::string> ShimDirectories(const std::string& own_directory);
// The first of the directories with a shim that can be read; "" if there is none.
std::string FindShim(const std::vector<std::string>& directories);
// As ShimDirectories() for the daemon, as paths of `detshared`. $DETSHARE_DAEMON is a path, too.
std::vector<std::string> DaemonPaths(const std::string& own_directory);

// Without `standalone`, replaces this process by the program. With it, runs the program as a child
// beside a private daemon. Returns an exit code (execute.h); after an error of the launcher, a
// message on stderr says what to do.
int Run(const RunOptions& options);

}  // namespace detshare::tools
