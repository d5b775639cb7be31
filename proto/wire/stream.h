// Streams and host functions. Transport: ring.
#pragma once

#include <cstdint>

#include "proto/ring_abi.h"
#include "proto/wire/common.h"

namespace detshare::wire {

// A flag of the context's legacy default stream. Each context has one.
inline constexpr uint32_t kStreamLegacyDefault = 0x80000000;
// `flags` is CU_STREAM_NON_BLOCKING or 0, and kStreamLegacyDefault. The client chooses the id,
// which must be free.
struct cuStreamCreateWithPriority {
  StreamId stream;
  ContextId context;
  uint32_t flags;
  int32_t priority;
};

struct cuStreamDestroy_v2 {
  StreamId stream;  // work that was submitted before still runs; the id is free at once
  uint32_t reserved;
};

struct cuStreamSynchronize {
  StreamId stream;
  uint32_t reserved;
  Signal signal;  // with a reply slot, the reply comes at the same time, so the client can sleep
};

struct cuStreamWaitEvent {
  StreamId stream;
  EventId event;
};

// The stream signals `reached`, then waits until the client stores resume_value to fence
// resume_index.
struct cuLaunchHostFunc {
  StreamId stream;
  FenceIndex resume_index;
  uint64_t resume_value;
  Signal reached;
};

}  // namespace detshare::wire
