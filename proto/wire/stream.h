// Streams and host functions: ring.
#pragma once

#include <cstdint>

#include "proto/ring_abi.h"
#include "proto/wire/common.h"

namespace detshare::wire {

inline constexpr uint32_t kStreamLegacyDefault = 0x80000000;  // the context's legacy default stream; one per context
// `flags`: CU_STREAM_NON_BLOCKING or 0, and kStreamLegacyDefault. The id is the client's choice and must be free.
struct cuStreamCreateWithPriority {
  StreamId stream;
  ContextId context;
  uint32_t flags;
  int32_t priority;
};

struct cuStreamDestroy_v2 {
  StreamId stream;  // its work goes on; the id is free at once
  uint32_t reserved;
};

struct cuStreamSynchronize {
  StreamId stream;
  uint32_t reserved;
  Signal signal;  // with a reply slot: answered at that moment, so that a client can sleep
};

struct cuStreamWaitEvent {
  StreamId stream;
  EventId event;
};

// The stream signals `reached`, then stands still until the client has stored resume_value to fence resume_index.
struct cuLaunchHostFunc {
  StreamId stream;
  FenceIndex resume_index;
  uint64_t resume_value;
  Signal reached;
};

}  // namespace detshare::wire
