// Element-wise instructions. Each lane's result depends on that lane's operands alone and takes a
// few machine instructions, so the compiler can vectorise the loop over the lanes. The code is
// compiled twice, for any x86-64 CPU and for CPUs with AVX2 and FMA. Both return the same results.
#pragma once

#include "server/backends/soft/ptx/instr.h"

namespace detshare::soft::ptx {

enum class VectorOp : uint8_t {
  kMov,
  kAdd,
  kSub,
  kMulLo,
  kMulHi,
  kMulWide,
  kMadLo,
  kMadHi,
  kMadWide,
  kMul24Lo,
  kMul24Hi,
  kMad24Lo,
  kMad24Hi,
  kSad,
  kDiv,
  kDivApprox,  // div.approx.f32
  kRem,
  kSqrt,
  kRcp,
  kRsqrt,
  kAbs,
  kNeg,
  kMin,
  kMax,
  kMin3,
  kMax3,
  kAnd,
  kOr,
  kXor,
  kNot,
  kCnot,
  kShl,
  kShr,
  kShfL,
  kShfR,
  kLop3,
  kPrmt,
  kBfe,
  kBfi,
  kBfind,
  kClz,
  kPopc,
  kBrev,
  kSzext,
  kBmsk,
  kFns,
  kDp4a,
  kDp2a,
  kAddCc,
  kAddc,
  kSubCc,
  kSubc,
  kMadLoCc,
  kMadLoc,
  kMadHiCc,
  kMadHic,
  kSelp,
  kSlct,
  kSlctF,
  kSetp,
  kSet,
  kFma,
  kCopysign,
  kTestp,
  kPredMov,
  kPredAnd,
  kPredOr,
  kPredXor,
  kPredNot,
  kZext32To64,
  kSext32To64,
  kTrunc64To32,  // between register widths
  // To the type, with the operand's own width; floats round to nearest.
  kFromS32,
  kFromU32,
  kFromF32,
  kFromF64,
  kFromF16,
  kFromBF16,
  // From f32 to the type s32.
  kToNearest,
  kToZero,
  kToLower,
  kToHigher,
  // From f32 to the type tf32; ties go away from zero.
  kToNearestAway,
  kPack2x8,
  kPack2x16,
  kPack2x32,
  kPack2x64,
  kPack4x16,
  kPack4x8,
  kUnpack2x8,
  kUnpack2x16,
  kUnpack2x32,
  kUnpack2x64,
  kUnpack4x16,
  kUnpack4x8,
};

// Modifiers that choose a handler.
struct VectorFlags {
  bool ftz = false;
  bool sat = false;
  bool nan = false;  // min.NaN
  bool is_signed = false;
  bool clamp = false;  // shf
  bool relu = false;
};

enum class Compare : uint8_t {
  kEq,
  kNe,
  kLt,
  kLe,
  kGt,
  kGe,
  kEqu,
  kNeu,
  kLtu,
  kLeu,
  kGtu,
  kGeu,
  kNum,
  kNan,
};

// How setp combines its result with another predicate, in Instr::aux of kSetp.
enum class BoolOp : uint8_t { kNone, kAnd, kOr, kXor };

// Returns null when PTX has no such instruction. Instr fields besides a, b, c:
//   kSetp: d result, d2 complement or kNoOperand, c predicate to combine,
//          aux: BoolOp, | 4 when c is negated
//   kSet: d result; aux as for kSetp; flags.is_signed: true is 1.0f instead of ~0
//   kSelp: c predicate
//   kSlct: c value
//   kLop3: imm table
//   kPrmt: imm mode
//   kTestp: imm kind
//   carries: c (for kMad*c: e) the carry in, d2 the carry out or kNoOperand
//   packs and unpacks: extra/count the parts
ExecFn SelectVectorOp(VectorOp op, Type type, VectorFlags flags, Compare compare = Compare::kEq);

// The two compilations. SelectVectorOp selects the one for the CPU.
namespace base {
ExecFn Select(VectorOp op, Type type, VectorFlags flags, Compare compare);
}
namespace avx2 {
ExecFn Select(VectorOp op, Type type, VectorFlags flags, Compare compare);
}

}  // namespace detshare::soft::ptx
