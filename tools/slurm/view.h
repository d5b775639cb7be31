// What the processes of a job see of the daemon.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace detshare::slurm {

// Gives the calling process and its later children a mount namespace in which `endpoint` lies at
// `runtime`, the directory of the daemon's socket. So they reach the daemon through the endpoint
// only, whatever their user is. Other processes notice nothing. The caller must be root and have one
// thread.
absl::Status ShowEndpoint(const std::string& endpoint, const std::string& runtime);

}  // namespace detshare::slurm
