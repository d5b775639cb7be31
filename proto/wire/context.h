// Contexts. Transport: ring.
#pragma once

#include <cstdint>

#include "proto/ring_abi.h"
#include "proto/wire/common.h"

namespace detshare::wire {

// Destroys all objects of context `context`: streams, events, memory, libraries, arrays, textures
// and surfaces. The reply comes when the context's work has completed.
struct cuCtxDestroy_v2 {
  ContextId context;
  uint32_t reserved;
};

// Signals when all work that was submitted in the context so far is complete. With a reply slot,
// the reply comes at that moment.
//
// kFlushOutput: waits for nothing, but for the text of kernels that have completed, which is in the
// text ring when the reply comes. The context and the signal are not looked at.
//
// kQueryWork: waits for nothing. The result is CUDA_SUCCESS if no work of the session is queued or
// running, else CUDA_ERROR_NOT_READY. The context and the signal are not looked at.
inline constexpr uint32_t kFlushOutput = 1, kQueryWork = 2;
struct cuCtxSynchronize {
  ContextId context;
  uint32_t flags;  // 0 or one of these
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
struct cuCtxSetLimit_Reply {
  uint64_t value;  // as rounded by the device
};

}  // namespace detshare::wire
