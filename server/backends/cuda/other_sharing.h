// Refuses to serve where MPS or MIG shares the GPU already. Any thread.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace detshare {

// The directory in which this process would look for the control daemon of MPS.
std::string MpsPipeDirectory();

// FAILED_PRECONDITION, with the next step, if a control daemon of MPS listens in `pipe_directory`:
// the driver would then make this process its client. A client has its kernels run by a process of
// MPS, where a fault of any client ends the work of all.
absl::Status RefuseMps(const std::string& pipe_directory);

// FAILED_PRECONDITION, with the next step, if the device of this name is a part of a GPU in MIG mode.
absl::Status RefuseMig(int ordinal, const std::string& device_name);

}  // namespace detshare
