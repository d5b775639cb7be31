// Events. Transport: ring.
#pragma once

#include <cstdint>

#include "proto/ring_abi.h"
#include "proto/wire/common.h"

namespace detshare::wire {

struct cuEventCreate {
  EventId event;
  ContextId context;
  uint32_t flags;  // CUevent_flags
  uint32_t reserved;
};

struct cuEventDestroy_v2 {
  EventId event;
  uint32_t reserved;
};

struct cuEventRecordWithFlags {
  EventId event;
  StreamId stream;
  Signal signal;  // the client polls its fence; set once the program has queried the event
};

// For an event whose last recording had no signal, and for an interprocess event, whose fences the
// client does not see. CUDA_ERROR_NOT_READY while the last recording, of any process, is not
// complete.
struct cuEventQuery {
  EventId event;
  uint32_t reserved;
};

// For interprocess events only. The reply comes when the recording that is the last one at the time
// of the call is complete.
struct cuEventSynchronize {
  EventId event;
  uint32_t reserved;
};

// CUDA_ERROR_NOT_READY until both events have completed.
struct cuEventElapsedTime_v2 {
  EventId start;
  EventId end;
};
struct cuEventElapsedTime_v2_Reply {
  float milliseconds;
  uint32_t reserved;
};

}  // namespace detshare::wire
