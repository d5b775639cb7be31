// Checks whether the process's limits leave room for what a session needs at its start. gRPC aborts
// the whole program when it cannot get a descriptor, so the shim checks first.
#pragma once

#include "proto/driver_api/cuda_unrenamed.h"

namespace detshare::shim {

// Returns CUDA_SUCCESS, or else the CUresult of cuInit. On failure *lacking names the scarce
// resource: descriptors (RLIMIT_NOFILE) or address space (RLIMIT_AS). Another thread may use it up
// right after the check.
CUresult CheckStartLimits(const char** lacking);

}  // namespace detshare::shim
