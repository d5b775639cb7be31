// A program of the trial in a process of its own, natively or through DetShare. One thread. The
// process that uses it ignores SIGPIPE, because a program may end before it is told to start.
#pragma once

#include <sys/types.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace detshare::trial {

// How a program reaches the GPU: by the driver, or by the daemon with this socket.
struct Way {
  std::string socket;  // "": by the driver
  std::string tenant;
};

class Program {
 public:
  Program() = default;
  // Ends the process if it runs.
  ~Program();
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  absl::Status Start(const std::vector<std::string>& command, const Way& way);
  // Waits for the line "ready".
  absl::Status WaitUntilReady(absl::Duration limit);
  // Sends the line for which a program waits that is ready.
  void Go();
  // The line of JSON with which the program ends.
  absl::StatusOr<nlohmann::json> Result(absl::Duration limit);

 private:
  absl::StatusOr<std::string> Line(absl::Duration limit);

  std::string name_, text_;
  pid_t pid_ = -1;
  int in_ = -1, out_ = -1;
};

}  // namespace detshare::trial
