// The life of the shim in its process.
//
//   no session --Initialise (cuInit)--> session --exit handler--> torn down
//                                          |
//                                          +--fork, in the child--> dead:
//                                          CUDA_ERROR_NOT_INITIALIZED for ever
//
// The child of a process that had no session may open one of its own, unless the daemon refused its
// parent one: then it is dead, too.
#pragma once

#include "proto/driver_api/cuda_unrenamed.h"

namespace detshare::shim {

// What cuInit does: opens the session, once; later calls answer the same. After a failure the next
// call tries again.
CUresult Initialise();

}  // namespace detshare::shim
