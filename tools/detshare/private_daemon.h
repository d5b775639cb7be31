// A daemon of one's own, in a fresh directory, for as long as the object lives.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace detshare::tools {

class PrivateDaemon {
 public:
  struct Options {
    std::string backend = "auto";  // "soft" or "cuda"
    std::string log_level = "warning";
    std::vector<std::string> flags;  // more of them
  };

  PrivateDaemon() = default;
  // Ends it and everything that it serves, and removes the directory.
  ~PrivateDaemon();
  PrivateDaemon(const PrivateDaemon&) = delete;
  PrivateDaemon& operator=(const PrivateDaemon&) = delete;

  // Once. Starts the program `daemon` and waits until it serves. False after a message on stderr.
  bool Start(const std::string& daemon, const Options& options);
  const std::string& socket() const { return socket_; }

 private:
  std::string directory_, socket_;
  pid_t pid_ = -1;
};

// The first of the paths that may be executed, or "".
std::string FindProgram(const std::vector<std::string>& paths);

}  // namespace detshare::tools
