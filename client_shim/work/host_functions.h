// Functions of the program that streams call: cuLaunchHostFunc and cuStreamAddCallback. They run on
// one thread of the process, started with the first; each stands in its stream, in order, and what
// follows waits for its return.
#pragma once

#include <functional>

#include "client_shim/objects/objects.h"
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

// Something that the thread of host functions does when a fence has a value.
struct HostTask {
  FenceIndex reached = kNoFence;  // kNoFence: at once
  uint64_t reached_value = 0;
  FenceIndex resume = kNoFence;  // is given resume_value afterwards; kNoFence: none
  uint64_t resume_value = 0;
  std::function<void(CUresult status)> run;  // the session's sticky error
};

// False when there can be no thread. Tasks of a session that has ended are dropped.
bool EnqueueHostTask(HostTask task);

// Calls a function of the program, from where it must not call CUDA.
void CallHostFunction(CUhostFn function, void* data);

}  // namespace detshare::shim
