// Bulk copies of bytes in a row.
#include <algorithm>

#include "server/backends/soft/ptx/bulk_access.h"
#include "server/backends/soft/ptx/bulk_ops.h"

namespace detshare::soft::ptx {
namespace {

// Copies or combines `bytes` bytes.
void Move(uint8_t* to, const uint8_t* from, uint64_t bytes, Reduction reduction, uint32_t step) {
  if (reduction == nullptr) {
    std::memmove(to, from, bytes);
    return;
  }
  for (uint64_t at = 0; at < bytes; at += step) reduction(to + at, from + at);
}

struct Bulk {
  uint64_t to, from;
  uint32_t bytes;
};

// Calls copy(lane, bulk) for each lane until one returns false, which has raised its fault.
template <class F>
void ForEachBulk(Context& c, const Instr& in, uint32_t mask, F copy) {
  const uint64_t* to = c.Src<uint64_t>(in.a);
  const uint64_t* from = c.Src<uint64_t>(in.b);
  const uint32_t* bytes = c.Src<uint32_t>(c.frame->function->extras[in.extra]);
  for (uint32_t m = mask; m != 0; m &= m - 1) {
    const uint32_t lane = FirstLane(m);
    const Bulk bulk{to[lane], from[lane], bytes[lane]};
    if (bulk.bytes % 16 != 0)
      return RaiseFault(c, in, FaultKind::kIllegalInstruction, bulk.bytes, lane);
    if (!copy(lane, bulk)) return;
  }
}

}  // namespace

void ExecBulkGlobalToShared(Context& c, const Instr& in, uint32_t mask) {
  ForEachBulk(c, in, mask, [&](uint32_t lane, const Bulk& bulk) {
    const uint8_t* from = BulkGlobal(c, in, lane, bulk.from, bulk.bytes, false);
    if (from == nullptr) return false;
    return ForEachTarget(c, in, lane, bulk.to, [&](uint64_t to, uint64_t barrier) {
      uint8_t* const p = BulkShared(c, in, lane, to, bulk.bytes, 16);
      if (p == nullptr) return false;
      std::memcpy(p, from, bulk.bytes);
      return CompleteBytes(c, in, lane, barrier, bulk.bytes);
    });
  });
}

void ExecBulkSharedToGlobal(Context& c, const Instr& in, uint32_t mask) {
  const Type type = BulkReduction::TypeOf(in.aux);
  const Reduction reduction =
      in.aux == BulkReduction::kNone ? nullptr : SelectReduction(BulkReduction::Op(in.aux), type);
  ForEachBulk(c, in, mask, [&](uint32_t lane, const Bulk& bulk) {
    const uint8_t* from = BulkShared(c, in, lane, bulk.from, bulk.bytes, 16);
    if (from == nullptr) return false;
    uint8_t* const to = BulkGlobal(c, in, lane, bulk.to, bulk.bytes, true);
    if (to == nullptr) return false;
    Move(to, from, bulk.bytes, reduction, SizeOf(type));
    return true;
  });
}

void ExecBulkSharedToShared(Context& c, const Instr& in, uint32_t mask) {
  const Type type = BulkReduction::TypeOf(in.aux);
  const Reduction reduction =
      in.aux == BulkReduction::kNone ? nullptr : SelectReduction(BulkReduction::Op(in.aux), type);
  ForEachBulk(c, in, mask, [&](uint32_t lane, const Bulk& bulk) {
    const uint8_t* from = BulkShared(c, in, lane, bulk.from, bulk.bytes, 16);
    if (from == nullptr) return false;
    uint8_t* const to = BulkShared(c, in, lane, bulk.to, bulk.bytes, 16);
    if (to == nullptr) return false;
    Move(to, from, bulk.bytes, reduction, SizeOf(type));
    return CompleteBytes(c, in, lane, c.Src<uint64_t>(in.e)[lane], bulk.bytes);
  });
}

}  // namespace detshare::soft::ptx
