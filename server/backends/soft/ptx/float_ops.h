// Floating-point instructions whose handlers are not vectorised: directed rounding, transcendental
// functions, half precision with modifiers, and conversions that vector_ops.h does not have.
#pragma once

#include "server/backends/soft/ptx/instr.h"
#include "server/backends/soft/ptx/vector_ops.h"

namespace detshare::soft::ptx {

enum class Rounding : uint8_t { kNone, kRn, kRz, kRm, kRp, kRna, kRni, kRzi, kRmi, kRpi };

enum class FloatOp : uint8_t {
  kAdd,
  kSub,
  kMul,
  kFma,
  kDiv,
  kSqrt,
  kRcp,
  kSin,
  kCos,
  kEx2,
  kLg2,
  kTanh,
  kMin,
  kMax,
  kAbs,
  kNeg,  // half types only
};

// Instr::aux of the handlers below.
struct FloatAux {
  static constexpr uint32_t kRoundingMask = 0xf;
  static constexpr uint32_t kFtz = 0x10;
  static constexpr uint32_t kSat = 0x20;
  static constexpr uint32_t kNan = 0x40;
  static constexpr uint32_t kRelu = 0x80;
  static constexpr uint32_t kAbs = 0x100;  // min and max: .xorsign.abs
  static constexpr uint32_t kSatFinite = 0x200;
};

// For f32 and f64. Returns null when PTX has no such instruction.
ExecFn SelectFloat(FloatOp op, Type type);
// For f16, f16x2, bf16, bf16x2.
ExecFn SelectHalf(FloatOp op, Type type);
// setp on f16 and bf16 (aux and operands as for VectorOp::kSetp), and on the x2 types, for which d
// and d2 are the results of the two halves.
ExecFn SelectHalfCompare(Type type, Compare compare);
// set with a half source. imm: the value that means true, for each half.
ExecFn SelectHalfSet(Type type, Compare compare);

// cvt.dst.src. A packed destination has two f32 sources: a for the upper half, b for the lower
// half.
ExecFn SelectConvert(Type dst, Type src);

// cvt.pack: a and b, bounded to a few bits each, with b in the lowest; c, or zeros, above both.
// aux: the bits of an element, and whether it is signed.
constexpr uint32_t kCvtPackSigned = 32;
void ExecCvtPack(Context& c, const Instr& in, uint32_t mask);

}  // namespace detshare::soft::ptx
