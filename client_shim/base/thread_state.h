// What the shim knows of a thread of the program.
#pragma once

#include <cstdint>

#include "proto/driver_api/cuda_unrenamed.h"
#include "proto/ring_abi.h"

namespace detshare::shim {

struct Context;
struct PerThreadStreams;

// Plain data, so that reading it costs no initialisation check; what owns something here releases
// it by a ThreadExit. It is in static TLS: keep it small.
struct ThreadState {
  // The stack of current contexts. The top is kept here, with the object it was last found to be.
  CUcontext current;
  Context* context;   // only valid while context->handle == current
  CUcontext* below;   // what lies under the top, oldest first
  uint32_t depth;     // contexts on the stack, the top included
  uint32_t capacity;  // of `below`

  PerThreadStreams* streams;  // the thread's own default streams, one a context
  uint32_t reply_hint;        // the reply slot that it used last
  // The fence of the thread's own waits: whatever it asked to be signalled has been signalled
  // before it asks again.
  FenceIndex fence_plus_one;
  uint64_t fence_value;
  bool per_thread_default;  // PerThreadDefaultScope
  bool in_host_function;    // runs a host function or stream callback, from where CUDA must not be
                            // called
  uint8_t capture_mode;     // CUstreamCaptureMode
};

extern thread_local ThreadState thread_state __attribute__((tls_model("initial-exec")));

}  // namespace detshare::shim
