// Events: ring.
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
  Signal signal;  // what the client polls, where it has asked about the event before
};

// Of an event whose last recording named no fence, and of one between processes, whose fences the client does not see:
// CUDA_ERROR_NOT_READY while the last recording, by whichever process, is not complete.
struct cuEventQuery {
  EventId event;
  uint32_t reserved;
};

// Of events between processes only: answered when the recording that is the last one now is complete.
struct cuEventSynchronize {
  EventId event;
  uint32_t reserved;
};

// CUDA_ERROR_NOT_READY while either has not completed.
struct cuEventElapsedTime_v2 {
  EventId start;
  EventId end;
};
struct cuEventElapsedTime_v2_Answer {
  float milliseconds;
  uint32_t reserved;
};

}  // namespace detshare::wire
