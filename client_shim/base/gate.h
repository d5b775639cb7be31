// Whether calls of the driver are let in.
#pragma once

#include <atomic>

#include "proto/driver_api/cuda_unrenamed.h"

namespace detshare::shim {

// What entry points answer before they do anything: CUDA_ERROR_NOT_INITIALIZED before cuInit and in
// the child of an initialised process, CUDA_SUCCESS while there is a session,
// CUDA_ERROR_DEINITIALIZED once the library is torn down. The release store of CUDA_SUCCESS
// publishes the session.
extern std::atomic<CUresult> g_gate;

}  // namespace detshare::shim
