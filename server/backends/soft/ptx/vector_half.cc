// Arithmetic on f16 and bf16, rounded to nearest.

// Must follow all other headers.
#include "server/backends/soft/ptx/vector_half.h"

namespace detshare::soft::ptx::DETSHARE_VECTOR_ISA {
namespace {

struct F16 {
  static float Widen(uint32_t half) { return FromF16(half); }
  static uint32_t Narrow(double value) { return ToF16(value); }
};
struct BF16 {
  static float Widen(uint32_t half) { return FromBF16(half); }
  static uint32_t Narrow(double value) { return ToBF16(value); }
};

// A float holds the sum and the product of two halves well enough: the second rounding is correct.
struct OpHAdd {
  using Operand = float;
  static double Do(float a, float b, float) { return a + b; }
};
struct OpHSub {
  using Operand = float;
  static double Do(float a, float b, float) { return a - b; }
};
struct OpHMul {
  using Operand = float;
  static double Do(float a, float b, float) { return a * b; }
};
// Rounds to odd, so that the second rounding is correct (FmaRoundedToOdd of half.h).
struct OpHFma {
  using Operand = double;
  static double Do(double a, double b, double e) {
    const double product = a * b;  // exact
    const double sum = product + e;
    const double t = sum - product;
    const double error = (product - (sum - t)) + (e - t);
    const uint64_t bits = std::bit_cast<uint64_t>(sum);
    const bool finite = (bits & 0x7ff0000000000000u) != 0x7ff0000000000000u;
    const bool inexact = finite & (error != 0) & ((bits & 1) == 0);
    const uint64_t odd = (error > 0) == (sum > 0) ? bits + 1 : bits - 1;
    return std::bit_cast<double>(inexact ? odd : bits);
  }
};

// Computes all lanes, in several short loops, of which the compiler vectorises each.
template <class Format, class Op, bool kPair>
void HalfOp(Context& c, const Instr& in, uint32_t mask) {
  const uint32_t* a = c.Src<uint32_t>(in.a);
  const uint32_t* b = c.Src<uint32_t>(in.b);
  const uint32_t* e = in.c == kNoOperand ? b : c.Src<uint32_t>(in.c);
  uint32_t results[kLanes] = {};
  for (uint32_t shift = 0; shift < (kPair ? 32 : 16); shift += 16) {
    typename Op::Operand x[kLanes], y[kLanes], z[kLanes];
    double r[kLanes];
    for (uint32_t i = 0; i < kLanes; ++i) x[i] = Format::Widen(a[i] >> shift & 0xffff);
    for (uint32_t i = 0; i < kLanes; ++i) y[i] = Format::Widen(b[i] >> shift & 0xffff);
    for (uint32_t i = 0; i < kLanes; ++i) z[i] = Format::Widen(e[i] >> shift & 0xffff);
    for (uint32_t i = 0; i < kLanes; ++i) r[i] = Op::Do(x[i], y[i], z[i]);
    for (uint32_t i = 0; i < kLanes; ++i) results[i] |= Format::Narrow(r[i]) << shift;
  }
  uint32_t* d = c.Dst<uint32_t>(in.d);
  ForLanes(mask, [&](uint32_t i) { d[i] = results[i]; });
}

template <class Format, bool kPair>
ExecFn SelectFor(VectorOp op) {
  switch (op) {
    case VectorOp::kAdd:
      return HalfOp<Format, OpHAdd, kPair>;
    case VectorOp::kSub:
      return HalfOp<Format, OpHSub, kPair>;
    case VectorOp::kMulLo:
      return HalfOp<Format, OpHMul, kPair>;
    case VectorOp::kFma:
      return HalfOp<Format, OpHFma, kPair>;
    default:
      return nullptr;
  }
}

}  // namespace

ExecFn SelectHalf(VectorOp op, Type t) {
  if (t == Type::kF16) return SelectFor<F16, false>(op);
  if (t == Type::kF16x2) return SelectFor<F16, true>(op);
  if (t == Type::kBF16) return SelectFor<BF16, false>(op);
  return t == Type::kBF16x2 ? SelectFor<BF16, true>(op) : nullptr;
}

}  // namespace detshare::soft::ptx::DETSHARE_VECTOR_ISA
