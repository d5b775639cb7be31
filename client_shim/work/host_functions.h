// Functions of the program that streams call: cuLaunchHostFunc and cuStreamAddCallback. One thread
// of the process runs all of them; it starts with the first. Each function has its place in its
// stream, and the stream's later work waits for its return. So between two functions that thread
// waits neither for the daemon, nor for room in the ring, nor for a lock that is held during such a
// wait (GraphMutex()): work of this kind goes to CleanUpLater() (clean_up.h).
#pragma once

#include <functional>

#include "client_shim/objects/objects.h"
#include "proto/driver_api/cuda_unrenamed.h"

namespace detshare::shim {

// Exactly one of `function` and `callback` is set.
struct HostFunction {
  CUhostFn function = nullptr;
  CUstreamCallback callback = nullptr;
  CUstream stream_handle = nullptr;  // as the program named the stream, for the callback
  void* data = nullptr;
};

// Adds the function to the stream and does not wait. Any thread.
CUresult EnqueueHostFunction(Stream& stream, const HostFunction& function);

// A task of the thread of host functions. It runs when a fence has reached a value.
struct HostTask {
  FenceIndex reached = kNoFence;  // kNoFence: runs at once
  uint64_t reached_value = 0;
  FenceIndex resume = kNoFence;  // gets resume_value after the task; kNoFence: none
  uint64_t resume_value = 0;
  std::function<void(CUresult status)> run;  // gets the session's sticky error
};

// Returns false if the thread cannot be started. Tasks of a session that has ended are dropped. Any
// thread.
bool EnqueueHostTask(HostTask task);

// Calls a function of the program as a host function: its thread has no current context then, and
// entry points refuse what the table does not allow there.
void CallHostFunction(CUhostFn function, void* data);

}  // namespace detshare::shim
