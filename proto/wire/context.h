// Contexts: ring.
#pragma once

#include <cstdint>

#include "proto/ring_abi.h"
#include "proto/wire/common.h"

namespace detshare::wire {

// Ends every object of context `context`: streams, events, memory, libraries, arrays and what reads them. Answered when its work has completed.
struct cuCtxDestroy_v2 {
  ContextId context;
  uint32_t reserved;
};

// Signals when all work that was submitted in the context so far is complete. With a reply slot: answers at that moment.
struct cuCtxSynchronize {
  ContextId context;
  uint32_t reserved;
  Signal signal;
};

struct cuCtxResetPersistingL2Cache {
  uint64_t reserved;
};

struct cuCtxSetLimit {
  uint64_t value;
  uint32_t limit;  // CUlimit
  uint32_t reserved;
};
struct cuCtxSetLimit_Answer {
  uint64_t value;  // as rounded by the device
};

}  // namespace detshare::wire
