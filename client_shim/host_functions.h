// Functions of the program that streams call: cuLaunchHostFunc and cuStreamAddCallback. They run on
// one thread of the process, started with the first; each stands in its stream, in order, and what
// follows waits for its return.
#pragma once

#include "client_shim/objects.h"
#include "proto/driver_api/cuda_unrenamed.h"

namespace detshare::shim {

// Exactly one of the two functions.
struct HostFunction {
  CUhostFn function = nullptr;
  CUstreamCallback callback = nullptr;
  CUstream stream_handle = nullptr;  // as the program named it, for the callback
  void* data = nullptr;
};

CUresult EnqueueHostFunction(Stream& stream, const HostFunction& function);

}  // namespace detshare::shim
