// The plugin's arguments in plugstack.conf.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace detshare::slurm {

struct Arguments {
  std::string socket = "/run/detshare/detshared.sock";  // of the daemon
  // The directory of the libraries that programs of jobs load.
  std::string libraries = "/usr/lib/x86_64-linux-gnu/detshare";
  std::string detsharectl = "/usr/bin/detsharectl";
  // The directory for what the node remembers about jobs. Like endpoints it does not survive a
  // restart of the host, so it lies on a tmpfs.
  std::string state = "/run/detshare-slurm";
  std::string slurm = "/usr/bin";  // the directory of Slurm's own commands
};

// Takes texts NAME=VALUE, where the value is an absolute path. InvalidArgument for other texts.
absl::StatusOr<Arguments> ParseArguments(const std::vector<std::string>& texts);

}  // namespace detshare::slurm
