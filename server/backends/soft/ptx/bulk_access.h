// Checked access of bulk copies to memory.
#pragma once

#include "server/backends/soft/ptx/mbarrier.h"
#include "server/backends/soft/ptx/memory_access.h"

namespace detshare::soft::ptx {

// Return the host pointer for `bytes` bytes. On a violation they raise the fault of lane `lane` and
// return null. No byte needs to exist for an access of 0 bytes.
uint8_t* BulkGlobal(Context& c, const Instr& in, uint32_t lane, uint64_t address, uint64_t bytes,
                    bool write);
uint8_t* BulkShared(Context& c, const Instr& in, uint32_t lane, uint64_t address, uint64_t bytes,
                    uint64_t align);

// Counts an access to global memory.
inline void CountBulk(Context& c, uint64_t bytes, bool write) {
  (write ? c.counters->global_bytes_written : c.counters->global_bytes_read) += bytes;
  c.counters->global_sectors += (bytes + 31) / 32;
}

// Calls f(destination, mbarrier) with shared addresses: for the addresses of the instruction, or
// for the same places in each block of a multicast. Stops and returns false when f does so, or when
// the mask names a block that does not exist.
template <class F>
bool ForEachTarget(Context& c, const Instr& in, uint32_t lane, uint64_t to, F f) {
  const uint64_t barrier = c.Src<uint64_t>(in.e)[lane];
  if (in.c == kNoOperand) return f(to, barrier);
  const uint32_t blocks = c.Src<uint32_t>(in.c)[lane] & 0xffff;
  if (blocks >> c.unit->blocks.size() != 0) {
    RaiseFault(c, in, FaultKind::kIllegalInstruction, blocks, lane);
    return false;
  }
  for (uint32_t m = blocks; m != 0; m &= m - 1) {
    const uint64_t block = (uint64_t{FirstLane(m)} + 1) * kClusterStride;
    if (!f(block + to % kClusterStride, block + barrier % kClusterStride)) return false;
  }
  return true;
}

}  // namespace detshare::soft::ptx
