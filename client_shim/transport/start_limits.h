// Whether the process may have what a session needs at its start. gRPC ends the whole program when
// it cannot get a descriptor, so it is asked first.
#pragma once

#include "proto/driver_api/cuda_unrenamed.h"

namespace detshare::shim {

// CUDA_SUCCESS, or what cuInit answers and, in *lacking, what there is too little of: descriptors
// (RLIMIT_NOFILE) or address space (RLIMIT_AS). Another thread may use it up in the next moment.
CUresult CheckStartLimits(const char** lacking);

}  // namespace detshare::shim
