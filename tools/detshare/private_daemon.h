// Runs a private daemon, with a socket in a directory of its own, as long as the object lives.
// `detshare run --standalone` and `detsharectl verify --standalone` use it.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace detshare::tools {

class PrivateDaemon {
 public:
  struct Options {
    std::string backend = "auto";  // "auto", "soft" or "cuda"
    std::string log_level = "warning";
    std::vector<std::string> flags;  // further flags of detshared
  };

  PrivateDaemon() = default;
  // Ends the daemon, and with it the sessions that it serves, and removes the directory. Kills the
  // daemon if it takes more than five seconds to end.
  ~PrivateDaemon();
  PrivateDaemon(const PrivateDaemon&) = delete;
  PrivateDaemon& operator=(const PrivateDaemon&) = delete;

  // Call it once. Starts the program `daemon` and waits at most 30 seconds until it serves. False
  // after a message on stderr.
  bool Start(const std::string& daemon, const Options& options);
  const std::string& socket() const { return socket_; }

 private:
  std::string directory_, socket_;
  pid_t pid_ = -1;
};

// The first of the paths that this process may execute, or "".
std::string FindProgram(const std::vector<std::string>& paths);

}  // namespace detshare::tools
