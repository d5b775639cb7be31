// The gate: one word that says whether the shim accepts driver calls. Every entry point reads it
// first (client_shim/entry/entry.h).
#pragma once

#include <atomic>

#include "proto/driver_api/cuda_unrenamed.h"

namespace detshare::shim {

// The result that entry points return before they do anything:
// - CUDA_ERROR_NOT_INITIALIZED before cuInit, and in the child of an initialised process;
// - CUDA_SUCCESS while there is a session;
// - CUDA_ERROR_DEINITIALIZED after the library is torn down.
//
// The release store of CUDA_SUCCESS publishes the session and its objects to every thread that
// loads the gate with acquire.
extern std::atomic<CUresult> g_gate;

}  // namespace detshare::shim
