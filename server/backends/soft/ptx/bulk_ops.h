// Bulk asynchronous copies: cp.async.bulk and cp.reduce.async.bulk of bytes in a row, and those of
// the boxes of tensor maps.
//
// A copy is complete before its instruction ends. So its bytes arrive at the mbarrier at once, and
// bulk groups have nothing to wait for.
#pragma once

#include "server/backends/soft/ptx/instr.h"
#include "server/backends/soft/ptx/memory_ops.h"

namespace detshare::soft::ptx {

// What combines the copied values with those at the destination. Packed into Instr::aux.
struct BulkReduction {
  static constexpr uint32_t kNone = 0;
  static constexpr uint32_t kPresent = 1u << 31;
  static constexpr uint32_t Pack(AtomOp op, Type type) {
    return kPresent | static_cast<uint32_t>(op) << 8 | static_cast<uint32_t>(type);
  }
  static constexpr AtomOp Op(uint32_t aux) { return static_cast<AtomOp>(aux >> 8 & 0xff); }
  static constexpr Type TypeOf(uint32_t aux) { return static_cast<Type>(aux & 0xff); }
};

// For all handlers: addresses are 64-bit registers, and those of shared memory may lie in any block
// of the cluster. e is the mbarrier, and c the mask of a multicast or kNoOperand.

// Bytes in a row. a: the destination. b: the source. extras[0]: the number of bytes. aux: a
// BulkReduction.
void ExecBulkGlobalToShared(Context& c, const Instr& in, uint32_t mask);  // e, c
void ExecBulkSharedToGlobal(Context& c, const Instr& in, uint32_t mask);
void ExecBulkSharedToShared(Context& c, const Instr& in, uint32_t mask);  // e

// The box of a tensor. a: shared memory. b: the generic address of the tensor map. extras: the
// coordinates. aux, of stores: a BulkReduction without a type, because the map has one.
void ExecTensorLoad(Context& c, const Instr& in, uint32_t mask);  // e, c
void ExecTensorStore(Context& c, const Instr& in, uint32_t mask);

// tensormap.replace. a: the generic address of the map. b: the new value, 64 bits. imm: the number
// of the dimension. aux: a TensorMapField.
enum class TensorMapField : uint8_t {
  kAddress,
  kRank,
  kBox,
  kDimension,
  kStride,
  kElementStride,
  kType,
  kInterleave,
  kSwizzle,
  kFill
};
void ExecTensorMapReplace(Context& c, const Instr& in, uint32_t mask);

// tensormap.cp_fenceproxy. a: the global destination. b: the shared source.
void ExecTensorMapCopy(Context& c, const Instr& in, uint32_t mask);

}  // namespace detshare::soft::ptx
