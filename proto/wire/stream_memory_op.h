// One operation of a stream on a word of memory, as cuStreamBatchMemOp and graph nodes carry it.
#pragma once

#include <cstdint>

namespace detshare::wire {

// What CUstreamBatchMemOpParams says, without its union. Numbers and flags are CUDA's.
struct StreamMemoryOp {
  uint32_t operation;  // CUstreamBatchMemOpType
  uint32_t
      flags;  // CUstreamWaitValue_flags, CUstreamWriteValue_flags or CUstreamMemoryBarrier_flags
  uint64_t address;   // 0 where the operation has none
  uint64_t value;     // 32-bit operations use the lower half, the upper is 0
  uint64_t reserved;  // 0
};
static_assert(sizeof(StreamMemoryOp) == 32);

}  // namespace detshare::wire
