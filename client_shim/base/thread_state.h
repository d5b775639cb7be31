// The shim's state of each thread of the program.
#pragma once

#include <cstdint>

#include "proto/driver_api/cuda_unrenamed.h"
#include "proto/ring_abi.h"

namespace detshare::shim {

struct Context;
struct PerThreadStreams;

// Plain data, so that reading it needs no initialisation check. The code that stores a resource
// here releases it with a ThreadExit. The struct is in static TLS, whose space is scarce: keep it
// small.
struct ThreadState {
  // The stack of current contexts. `current` is its top, and `context` the object that it was last
  // found to be.
  CUcontext current;
  Context* context;   // valid only while context->handle == current
  CUcontext* below;   // the contexts under the top, oldest first
  uint32_t depth;     // contexts on the stack, the top included
  uint32_t capacity;  // of `below`

  PerThreadStreams* streams;  // the thread's own default streams, one for each context
  uint32_t reply_hint;        // the reply slot that the thread used last
  // The fence of the thread's own waits. The thread waits for each value of it before it asks for
  // the next one.
  FenceIndex fence_plus_one;
  uint64_t fence_value;
  bool per_thread_default;  // set by PerThreadDefaultScope
  bool in_host_function;    // a host function or stream callback of the program runs
  int capture_mode;         // CUstreamCaptureMode, or another number
};

extern thread_local ThreadState thread_state __attribute__((tls_model("initial-exec")));

}  // namespace detshare::shim
