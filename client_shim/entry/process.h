// The life of the shim in its process.
//
//   no session --Initialise (cuInit)--> session --exit handler--> torn down
//                                          |
//                                          +--fork, in the child--> dead
//
// A dead process gets CUDA_ERROR_NOT_INITIALIZED for ever. The child of a process without a session
// may open its own session. If the daemon refused its parent a session, the child is dead, too.
#pragma once

#include "proto/driver_api/cuda_unrenamed.h"

namespace detshare::shim {

// Does what cuInit does: opens the session. Later calls return the same result. After a failure the
// next call tries again. Any thread.
CUresult Initialise();

}  // namespace detshare::shim
