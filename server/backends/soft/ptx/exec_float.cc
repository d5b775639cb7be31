// Directed rounding, transcendental functions and half precision.
#include <cmath>

#include "server/backends/soft/ptx/compare.h"
#include "server/backends/soft/ptx/context.h"
#include "server/backends/soft/ptx/float_ops.h"
#include "server/backends/soft/ptx/half.h"
#include "server/backends/soft/ptx/rounding_scope.h"

namespace detshare::soft::ptx {
namespace {

float Flush(float v) {
  const uint32_t bits = std::bit_cast<uint32_t>(v);
  return (bits & 0x7f800000u) == 0 ? std::bit_cast<float>(bits & 0x80000000u) : v;
}
double Flush(double v) { return v; }
// On NVIDIA hardware every f32 operation returns this NaN.
float Canonical(float v) { return v != v ? std::bit_cast<float>(0x7fffffffu) : v; }
double Canonical(double v) { return v; }

template <class T>
T Saturate(T v) {
  v = v > T{0} ? v : T{0};
  return v < T{1} ? v : T{1};
}

template <FloatOp kOp, class T>
inline T Compute(T a, T b, T e) {
  switch (kOp) {
    case FloatOp::kAdd:
      return a + b;
    case FloatOp::kSub:
      return a - b;
    case FloatOp::kMul:
      return a * b;
    case FloatOp::kFma:
      return std::fma(a, b, e);
    case FloatOp::kDiv:
      return a / b;
    case FloatOp::kSqrt:
      return std::sqrt(a);
    case FloatOp::kRcp:
      return T{1} / a;
    case FloatOp::kSin:
      return std::sin(a);
    case FloatOp::kCos:
      return std::cos(a);
    case FloatOp::kEx2:
      return std::exp2(a);
    case FloatOp::kLg2:
      return std::log2(a);
    case FloatOp::kTanh:
      return std::tanh(a);
    default:
      return a;
  }
}

template <FloatOp kOp, class T>
void Arithmetic(Context& c, const Instr& in, uint32_t mask) {
  T* d = c.Dst<T>(in.d);
  const T* a = c.Src<T>(in.a);
  const T* b = in.b == kNoOperand ? a : c.Src<T>(in.b);
  const T* e = in.c == kNoOperand ? a : c.Src<T>(in.c);
  const bool ftz = (in.aux & FloatAux::kFtz) != 0, sat = (in.aux & FloatAux::kSat) != 0;
  const Rounding rounding = static_cast<Rounding>(in.aux & FloatAux::kRoundingMask);
  const RoundingScope scope(rounding);
  ForEachLane(mask, [&](uint32_t i) {
    // Volatile keeps the operation from moving across the changes of the rounding mode.
    const volatile T x = ftz ? Flush(a[i]) : a[i];
    const volatile T y = ftz ? Flush(b[i]) : b[i];
    const volatile T z = ftz ? Flush(e[i]) : e[i];
    const volatile T raw = Compute<kOp, T>(x, y, z);
    T r = raw;
    if (ftz) r = Flush(r);
    if (sat) r = Saturate(r);
    d[i] = Canonical(r);
  });
}

// min and max with .xorsign.abs: min or max of the magnitudes, with the sign of the product.
template <bool kMax>
void MinMaxXorSign(Context& c, const Instr& in, uint32_t mask) {
  float* d = c.Dst<float>(in.d);
  const float* a = c.Src<float>(in.a);
  const float* b = c.Src<float>(in.b);
  const bool ftz = (in.aux & FloatAux::kFtz) != 0, nan = (in.aux & FloatAux::kNan) != 0;
  ForEachLane(mask, [&](uint32_t i) {
    const float x = std::fabs(ftz ? Flush(a[i]) : a[i]), y = std::fabs(ftz ? Flush(b[i]) : b[i]);
    const uint32_t sign =
        (std::bit_cast<uint32_t>(a[i]) ^ std::bit_cast<uint32_t>(b[i])) & 0x80000000u;
    float r = (kMax ? x > y : x < y) ? x : y;
    if (x != x) r = y;
    if (y != y) r = x;
    if ((nan && (x != x || y != y)) || (x != x && y != y)) {
      d[i] = std::bit_cast<float>(0x7fffffffu);
    } else {
      d[i] = std::bit_cast<float>(std::bit_cast<uint32_t>(r) | sign);
    }
  });
}

template <class T>
ExecFn SelectFor(FloatOp op) {
  switch (op) {
    case FloatOp::kAdd:
      return Arithmetic<FloatOp::kAdd, T>;
    case FloatOp::kSub:
      return Arithmetic<FloatOp::kSub, T>;
    case FloatOp::kMul:
      return Arithmetic<FloatOp::kMul, T>;
    case FloatOp::kFma:
      return Arithmetic<FloatOp::kFma, T>;
    case FloatOp::kDiv:
      return Arithmetic<FloatOp::kDiv, T>;
    case FloatOp::kSqrt:
      return Arithmetic<FloatOp::kSqrt, T>;
    case FloatOp::kRcp:
      return Arithmetic<FloatOp::kRcp, T>;
    default:
      return nullptr;
  }
}

// --- half precision ---

enum class HalfKind { kF16, kBF16 };

template <HalfKind kKind>
inline float Widen(uint16_t h) {
  return kKind == HalfKind::kF16 ? HalfToFloat(h) : Bf16ToFloat(h);
}
template <HalfKind kKind>
inline uint16_t Narrow(float v) {
  return kKind == HalfKind::kF16 ? FloatToHalf(v) : FloatToBf16(v);
}

template <FloatOp kOp, HalfKind kKind>
inline uint16_t HalfCompute(uint16_t a, uint16_t b, uint16_t e, uint32_t aux) {
  auto flush = [&](uint16_t h) -> uint16_t {
    const uint16_t exponent = kKind == HalfKind::kF16 ? 0x7c00 : 0x7f80;
    return (aux & FloatAux::kFtz) != 0 && (h & exponent) == 0 ? h & 0x8000 : h;
  };
  a = flush(a);
  if (kOp == FloatOp::kAbs || kOp == FloatOp::kNeg) {
    if ((a & 0x7fff) > (kKind == HalfKind::kF16 ? 0x7c00 : 0x7f80)) return 0x7fff;
    return kOp == FloatOp::kAbs ? a & 0x7fff : a ^ 0x8000;
  }
  b = flush(b);
  e = flush(e);
  const float x = Widen<kKind>(a), y = Widen<kKind>(b);
  uint16_t r = 0;
  switch (kOp) {
    case FloatOp::kAdd:
      r = Narrow<kKind>(x + y);
      break;
    case FloatOp::kSub:
      r = Narrow<kKind>(x - y);
      break;
    case FloatOp::kMul:
      r = Narrow<kKind>(x * y);
      break;
    case FloatOp::kFma:
      r = static_cast<uint16_t>(DoubleToSmall(kKind == HalfKind::kF16 ? kF16Format : kBF16Format,
                                              FmaRoundedToOdd(x, y, Widen<kKind>(e)),
                                              SmallRounding::kNearest, false));
      break;
    case FloatOp::kEx2:
      r = Narrow<kKind>(std::exp2(x));
      break;
    case FloatOp::kTanh:
      r = Narrow<kKind>(std::tanh(x));
      break;
    case FloatOp::kMin:
    case FloatOp::kMax: {
      const bool abs = (aux & FloatAux::kAbs) != 0;
      const uint16_t p = abs ? a & 0x7fff : a, q = abs ? b & 0x7fff : b;
      const float u = Widen<kKind>(p), v = Widen<kKind>(q);
      const bool v_less = v < u || (u == v && (q & 0x8000) != 0);
      r = (kOp == FloatOp::kMin) == v_less ? q : p;
      if (u != u) r = q;
      if (v != v) r = p;
      if ((u != u && v != v) || ((aux & FloatAux::kNan) != 0 && (u != u || v != v))) return 0x7fff;
      if (abs) r = static_cast<uint16_t>(r | ((a ^ b) & 0x8000));
      return r;
    }
    default:
      break;
  }
  r = flush(r);
  const float result = Widen<kKind>(r);
  if ((aux & FloatAux::kSat) != 0) r = Narrow<kKind>(Saturate(result));
  if ((aux & FloatAux::kRelu) != 0) r = result != result ? 0x7fff : (r & 0x8000) != 0 ? 0 : r;
  return r;
}

template <FloatOp kOp, HalfKind kKind, bool kPair>
void Half(Context& c, const Instr& in, uint32_t mask) {
  uint32_t* d = c.Dst<uint32_t>(in.d);
  const uint32_t* a = c.Src<uint32_t>(in.a);
  const uint32_t* b = in.b == kNoOperand ? a : c.Src<uint32_t>(in.b);
  const uint32_t* e = in.c == kNoOperand ? a : c.Src<uint32_t>(in.c);
  ForEachLane(mask, [&](uint32_t i) {
    auto part = [&](int shift) -> uint32_t {
      return HalfCompute<kOp, kKind>(static_cast<uint16_t>(a[i] >> shift),
                                     static_cast<uint16_t>(b[i] >> shift),
                                     static_cast<uint16_t>(e[i] >> shift), in.aux);
    };
    d[i] = kPair ? part(0) | part(16) << 16 : part(0);
  });
}

template <HalfKind kKind, bool kPair>
ExecFn SelectHalfFor(FloatOp op) {
  switch (op) {
    case FloatOp::kAdd:
      return Half<FloatOp::kAdd, kKind, kPair>;
    case FloatOp::kSub:
      return Half<FloatOp::kSub, kKind, kPair>;
    case FloatOp::kMul:
      return Half<FloatOp::kMul, kKind, kPair>;
    case FloatOp::kFma:
      return Half<FloatOp::kFma, kKind, kPair>;
    case FloatOp::kMin:
      return Half<FloatOp::kMin, kKind, kPair>;
    case FloatOp::kMax:
      return Half<FloatOp::kMax, kKind, kPair>;
    case FloatOp::kAbs:
      return Half<FloatOp::kAbs, kKind, kPair>;
    case FloatOp::kNeg:
      return Half<FloatOp::kNeg, kKind, kPair>;
    case FloatOp::kEx2:
      return Half<FloatOp::kEx2, kKind, kPair>;
    case FloatOp::kTanh:
      return Half<FloatOp::kTanh, kKind, kPair>;
    default:
      return nullptr;
  }
}

template <HalfKind kKind>
uint32_t CompareLanes(Context& c, const Instr& in, uint32_t mask, Compare compare, int shift) {
  const uint32_t* a = c.Src<uint32_t>(in.a);
  const uint32_t* b = c.Src<uint32_t>(in.b);
  uint32_t result = 0;
  ForEachLane(mask, [&](uint32_t i) {
    float x = Widen<kKind>(static_cast<uint16_t>(a[i] >> shift)),
          y = Widen<kKind>(static_cast<uint16_t>(b[i] >> shift));
    if ((in.aux & FloatAux::kFtz) != 0) {
      const float least = kKind == HalfKind::kF16 ? 0x1p-14f : 0x1p-126f;
      if (std::fabs(x) < least) x = 0;
      if (std::fabs(y) < least) y = 0;
    }
    result |= static_cast<uint32_t>(Holds(compare, x, y)) << i;
  });
  const BoolOp op = static_cast<BoolOp>(in.aux & 3);
  if (op == BoolOp::kNone) return result;
  uint32_t other = c.Pred(in.c);
  if ((in.aux & 4) != 0) other = ~other;
  return op == BoolOp::kAnd ? result & other : op == BoolOp::kOr ? result | other : result ^ other;
}

template <HalfKind kKind, bool kPair>
[[gnu::noinline]] void HalfSetpBy(Context& c, const Instr& in, uint32_t mask, Compare compare) {
  const uint32_t low = CompareLanes<kKind>(c, in, mask, compare, 0);
  uint32_t second = 0;
  if (in.d2 != kNoOperand) {
    if (kPair) {
      second = CompareLanes<kKind>(c, in, mask, compare, 16);
    } else {
      // The complement is combined with the predicate in the same way.
      Instr plain = in;
      plain.aux &= ~3u;
      second = ~CompareLanes<kKind>(c, plain, mask, compare, 0);
      const BoolOp op = static_cast<BoolOp>(in.aux & 3);
      if (op != BoolOp::kNone) {
        uint32_t other = c.Pred(in.c);
        if ((in.aux & 4) != 0) other = ~other;
        second = op == BoolOp::kAnd  ? second & other
                 : op == BoolOp::kOr ? second | other
                                     : second ^ other;
      }
    }
  }
  if (in.d != kNoOperand) c.SetPred(in.d, low, mask);
  if (in.d2 != kNoOperand) c.SetPred(in.d2, second, mask);
}

template <HalfKind kKind, bool kPair>
[[gnu::noinline]] void HalfSetBy(Context& c, const Instr& in, uint32_t mask, Compare compare) {
  uint32_t* d = c.Dst<uint32_t>(in.d);
  const uint32_t yes = static_cast<uint32_t>(in.imm);
  const uint32_t low = CompareLanes<kKind>(c, in, mask, compare, 0);
  if (!kPair) {
    ForEachLane(mask, [&](uint32_t i) { d[i] = (low >> i & 1) != 0 ? yes : 0; });
    return;
  }
  const uint32_t high = CompareLanes<kKind>(c, in, mask, compare, 16);
  ForEachLane(mask, [&](uint32_t i) {
    d[i] =
        ((low >> i & 1) != 0 ? yes & 0xffffu : 0) | ((high >> i & 1) != 0 ? yes & 0xffff0000u : 0);
  });
}

template <HalfKind kKind, bool kPair, Compare kCompare>
void HalfSetp(Context& c, const Instr& in, uint32_t mask) {
  HalfSetpBy<kKind, kPair>(c, in, mask, kCompare);
}
template <HalfKind kKind, bool kPair, Compare kCompare>
void HalfSet(Context& c, const Instr& in, uint32_t mask) {
  HalfSetBy<kKind, kPair>(c, in, mask, kCompare);
}

template <HalfKind kKind, bool kPair>
ExecFn SelectHalfCompareFor(bool set, Compare compare) {
#define DETSHARE_COMPARE(name) \
  case Compare::name:          \
    return set ? HalfSet<kKind, kPair, Compare::name> : HalfSetp<kKind, kPair, Compare::name>;
  switch (compare) {
    DETSHARE_COMPARE(kEq)
    DETSHARE_COMPARE(kNe)
    DETSHARE_COMPARE(kLt)
    DETSHARE_COMPARE(kLe)
    DETSHARE_COMPARE(kGt)
    DETSHARE_COMPARE(kGe)
    DETSHARE_COMPARE(kEqu)
    DETSHARE_COMPARE(kNeu)
    DETSHARE_COMPARE(kLtu)
    DETSHARE_COMPARE(kLeu)
    DETSHARE_COMPARE(kGtu)
    DETSHARE_COMPARE(kGeu)
    DETSHARE_COMPARE(kNum)
    DETSHARE_COMPARE(kNan)
  }
#undef DETSHARE_COMPARE
  return nullptr;
}

ExecFn SelectHalfCompareType(bool set, Type type, Compare compare) {
  switch (type) {
    case Type::kF16:
      return SelectHalfCompareFor<HalfKind::kF16, false>(set, compare);
    case Type::kF16x2:
      return SelectHalfCompareFor<HalfKind::kF16, true>(set, compare);
    case Type::kBF16:
      return SelectHalfCompareFor<HalfKind::kBF16, false>(set, compare);
    case Type::kBF16x2:
      return SelectHalfCompareFor<HalfKind::kBF16, true>(set, compare);
    default:
      return nullptr;
  }
}

}  // namespace

ExecFn SelectFloat(FloatOp op, Type type) {
  if (type == Type::kF64) return SelectFor<double>(op);
  if (type != Type::kF32) return nullptr;
  switch (op) {
    case FloatOp::kSin:
      return Arithmetic<FloatOp::kSin, float>;
    case FloatOp::kCos:
      return Arithmetic<FloatOp::kCos, float>;
    case FloatOp::kEx2:
      return Arithmetic<FloatOp::kEx2, float>;
    case FloatOp::kLg2:
      return Arithmetic<FloatOp::kLg2, float>;
    case FloatOp::kTanh:
      return Arithmetic<FloatOp::kTanh, float>;
    case FloatOp::kMin:
      return MinMaxXorSign<false>;
    case FloatOp::kMax:
      return MinMaxXorSign<true>;
    default:
      return SelectFor<float>(op);
  }
}

ExecFn SelectHalf(FloatOp op, Type type) {
  switch (type) {
    case Type::kF16:
      return SelectHalfFor<HalfKind::kF16, false>(op);
    case Type::kF16x2:
      return SelectHalfFor<HalfKind::kF16, true>(op);
    case Type::kBF16:
      return SelectHalfFor<HalfKind::kBF16, false>(op);
    case Type::kBF16x2:
      return SelectHalfFor<HalfKind::kBF16, true>(op);
    default:
      return nullptr;
  }
}

ExecFn SelectHalfCompare(Type type, Compare compare) {
  return SelectHalfCompareType(false, type, compare);
}
ExecFn SelectHalfSet(Type type, Compare compare) {
  return SelectHalfCompareType(true, type, compare);
}

}  // namespace detshare::soft::ptx
