// Stream operations on words of memory. Transport: ring. Graph nodes carry them, too.
#pragma once

#include <cstdint>

#include "proto/ring_abi.h"

namespace detshare::wire {

// CUstreamBatchMemOpParams without its union. Values and flags are CUDA's.
struct StreamMemoryOp {
  uint32_t operation;  // CUstreamBatchMemOpType
  uint32_t
      flags;  // CUstreamWaitValue_flags, CUstreamWriteValue_flags or CUstreamMemoryBarrier_flags
  uint64_t address;   // 0 where the operation has none
  uint64_t value;     // for 32-bit operations the upper half is 0
  uint64_t reserved;  // 0
};
static_assert(sizeof(StreamMemoryOp) == 32);

// Payload: `count` StreamMemoryOp.
struct cuStreamBatchMemOp_v2 {
  StreamId stream;
  uint32_t count;
};
inline constexpr uint32_t kMaxStreamMemoryOps = 255;

}  // namespace detshare::wire
