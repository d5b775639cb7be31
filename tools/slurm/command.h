// Runs a command without a shell.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace detshare::slurm {

struct CommandResult {
  int exit_code = 0;
  std::string output, errors;  // what it wrote to stdout and stderr; at most 64 KiB of each
};

// Runs the program at the path arguments[0], with an environment of its own: a PATH, and SLURM_CONF
// of this process. Waits until it ends. Unavailable if it cannot be started or is killed by a signal,
// and DeadlineExceeded if it has not ended after `timeout` and was killed.
//
// Threading: any thread. The caller must not wait for children of others at the same time.
absl::StatusOr<CommandResult> RunCommand(const std::vector<std::string>& arguments,
                                         std::chrono::milliseconds timeout);

}  // namespace detshare::slurm
