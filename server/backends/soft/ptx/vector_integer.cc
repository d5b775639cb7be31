// Integer arithmetic.
#include <algorithm>

// Must follow all other headers.
#include "server/backends/soft/ptx/vector_lanes.h"

namespace detshare::soft::ptx::DETSHARE_VECTOR_ISA {
namespace {

template <class T>
using Wide =
    std::conditional_t<std::is_signed_v<T>,
                       std::conditional_t<sizeof(T) == 8, __int128,
                                          std::conditional_t<sizeof(T) == 4, int64_t, int32_t>>,
                       std::conditional_t<sizeof(T) == 8, unsigned __int128,
                                          std::conditional_t<sizeof(T) == 4, uint64_t, uint32_t>>>;

template <class T>
inline Wide<T> WideProduct(T a, T b) {
  return static_cast<Wide<T>>(a) * static_cast<Wide<T>>(b);
}
template <class T>
inline T HighProduct(T a, T b) {
  return static_cast<T>(WideProduct(a, b) >> (8 * sizeof(T)));
}

struct OpAdd {
  template <class T>
  static T Do(T a, T b) {
    return static_cast<T>(Arith<T>(a) + Arith<T>(b));
  }
};
struct OpSub {
  template <class T>
  static T Do(T a, T b) {
    return static_cast<T>(Arith<T>(a) - Arith<T>(b));
  }
};
struct OpMulLo {
  template <class T>
  static T Do(T a, T b) {
    return static_cast<T>(Arith<T>(a) * Arith<T>(b));
  }
};
struct OpMulHi {
  template <class T>
  static T Do(T a, T b) {
    return HighProduct(a, b);
  }
};
template <class W>
struct OpMulWide {
  template <class T>
  static W Do(T a, T b) {
    return static_cast<W>(WideProduct(a, b));
  }
};
template <class W>
struct OpMadWide {
  template <class T>
  static W Do(T a, T b, W e) {
    using U = Unsigned<W>;
    return static_cast<W>(static_cast<U>(static_cast<U>(WideProduct(a, b)) + static_cast<U>(e)));
  }
};
struct OpMadLo {
  template <class T>
  static T Do(T a, T b, T e) {
    return static_cast<T>(Arith<T>(a) * Arith<T>(b) + Arith<T>(e));
  }
};
struct OpMadHi {
  template <class T>
  static T Do(T a, T b, T e) {
    return static_cast<T>(Arith<T>(HighProduct(a, b)) + Arith<T>(e));
  }
};
struct OpMadHiSat {
  static int32_t Do(int32_t a, int32_t b, int32_t e) {
    const int64_t sum = int64_t{HighProduct(a, b)} + e;
    return static_cast<int32_t>(std::clamp<int64_t>(sum, INT32_MIN, INT32_MAX));
  }
};
template <class T>
inline int64_t Low24(T a) {
  if constexpr (std::is_signed_v<T>) {
    return static_cast<int32_t>(static_cast<uint32_t>(a) << 8) >> 8;
  } else {
    return a & 0xffffffu;
  }
}
// The product of two 24-bit numbers has 48 bits. .lo returns its lower 32 bits, .hi its upper 32.
struct OpMul24Lo {
  template <class T>
  static T Do(T a, T b) {
    return static_cast<T>(Low24(a) * Low24(b));
  }
};
struct OpMul24Hi {
  template <class T>
  static T Do(T a, T b) {
    return static_cast<T>((Low24(a) * Low24(b)) >> 16);
  }
};
struct OpMad24Lo {
  template <class T>
  static T Do(T a, T b, T e) {
    return OpAdd::Do(OpMul24Lo::Do(a, b), e);
  }
};
struct OpMad24Hi {
  template <class T>
  static T Do(T a, T b, T e) {
    return OpAdd::Do(OpMul24Hi::Do(a, b), e);
  }
};
struct OpMad24HiSat {
  static int32_t Do(int32_t a, int32_t b, int32_t e) {
    return static_cast<int32_t>(
        std::clamp<int64_t>(((Low24(a) * Low24(b)) >> 16) + e, INT32_MIN, INT32_MAX));
  }
};
struct OpAddSat {
  static int32_t Do(int32_t a, int32_t b) {
    return static_cast<int32_t>(std::clamp<int64_t>(int64_t{a} + b, INT32_MIN, INT32_MAX));
  }
};
struct OpSubSat {
  static int32_t Do(int32_t a, int32_t b) {
    return static_cast<int32_t>(std::clamp<int64_t>(int64_t{a} - b, INT32_MIN, INT32_MAX));
  }
};
struct OpSad {
  template <class T>
  static T Do(T a, T b, T e) {
    const Arith<T> diff = a < b ? Arith<T>(b) - Arith<T>(a) : Arith<T>(a) - Arith<T>(b);
    return static_cast<T>(Arith<T>(e) + diff);
  }
};
// As on hardware, quotient and remainder of a division by zero are all ones.
struct OpDiv {
  template <class T>
  static T Do(T a, T b) {
    if (b == 0) return static_cast<T>(~Arith<T>{0});
    if constexpr (std::is_signed_v<T>) {
      if (b == T{-1}) return static_cast<T>(Arith<T>{0} - Arith<T>(a));
    }
    return static_cast<T>(a / b);
  }
};
struct OpRem {
  template <class T>
  static T Do(T a, T b) {
    if (b == 0) return static_cast<T>(~Arith<T>{0});
    if constexpr (std::is_signed_v<T>) {
      if (b == T{-1}) return 0;
    }
    return static_cast<T>(a % b);
  }
};
struct OpAbs {
  template <class T>
  static T Do(T a) {
    return a < 0 ? static_cast<T>(Arith<T>{0} - Arith<T>(a)) : a;
  }
};
struct OpNeg {
  template <class T>
  static T Do(T a) {
    return static_cast<T>(Arith<T>{0} - Arith<T>(a));
  }
};
struct OpMin {
  template <class T>
  static T Do(T a, T b) {
    return a < b ? a : b;
  }
};
struct OpMax {
  template <class T>
  static T Do(T a, T b) {
    return a > b ? a : b;
  }
};
struct OpMinRelu {
  template <class T>
  static T Do(T a, T b) {
    const T m = a < b ? a : b;
    return m > 0 ? m : 0;
  }
};
struct OpMaxRelu {
  template <class T>
  static T Do(T a, T b) {
    const T m = a > b ? a : b;
    return m > 0 ? m : 0;
  }
};
struct OpMin3 {
  template <class T>
  static T Do(T a, T b, T e) {
    return OpMin::Do(OpMin::Do(a, b), e);
  }
};
struct OpMax3 {
  template <class T>
  static T Do(T a, T b, T e) {
    return OpMax::Do(OpMax::Do(a, b), e);
  }
};

// dp4a and dp2a: imm bit 0: a signed, bit 1: b signed, bit 2: dp2a takes the upper half of b.
void Dp4a(Context& c, const Instr& in, uint32_t mask) {
  uint32_t* d = c.Dst<uint32_t>(in.d);
  const uint32_t* a = c.Src<uint32_t>(in.a);
  const uint32_t* b = c.Src<uint32_t>(in.b);
  const uint32_t* e = c.Src<uint32_t>(in.c);
  const bool sa = (in.imm & 1) != 0, sb = (in.imm & 2) != 0;
  ForLanes(mask, [=](uint32_t i) {
    uint32_t sum = e[i];
    for (int k = 0; k < 4; ++k) {
      const uint32_t x = a[i] >> (8 * k) & 0xff, y = b[i] >> (8 * k) & 0xff;
      const int32_t xs = sa ? static_cast<int8_t>(x) : static_cast<int32_t>(x);
      const int32_t ys = sb ? static_cast<int8_t>(y) : static_cast<int32_t>(y);
      sum += static_cast<uint32_t>(xs * ys);
    }
    d[i] = sum;
  });
}
void Dp2a(Context& c, const Instr& in, uint32_t mask) {
  uint32_t* d = c.Dst<uint32_t>(in.d);
  const uint32_t* a = c.Src<uint32_t>(in.a);
  const uint32_t* b = c.Src<uint32_t>(in.b);
  const uint32_t* e = c.Src<uint32_t>(in.c);
  const bool sa = (in.imm & 1) != 0, sb = (in.imm & 2) != 0;
  const int shift = (in.imm & 4) != 0 ? 16 : 0;
  ForLanes(mask, [=](uint32_t i) {
    uint32_t sum = e[i];
    for (int k = 0; k < 2; ++k) {
      const uint32_t x = a[i] >> (16 * k) & 0xffff, y = b[i] >> (8 * k + shift) & 0xff;
      const int32_t xs = sa ? static_cast<int16_t>(x) : static_cast<int32_t>(x);
      const int32_t ys = sb ? static_cast<int8_t>(y) : static_cast<int32_t>(y);
      sum += static_cast<uint32_t>(xs * ys);
    }
    d[i] = sum;
  });
}

// a + b + carry, with the carry flag in a predicate register.
template <class T, bool kIn>
void AddCarry(Context& c, const Instr& in, uint32_t mask) {
  T* d = c.Dst<T>(in.d);
  const T* a = c.Src<T>(in.a);
  const T* b = c.Src<T>(in.b);
  const uint32_t carry = kIn ? c.Pred(in.c) : 0;
  uint32_t out = 0;
  for (uint32_t m = mask; m != 0; m &= m - 1) {
    const uint32_t i = static_cast<uint32_t>(__builtin_ctz(m));
    const unsigned __int128 sum = static_cast<unsigned __int128>(a[i]) + b[i] + (carry >> i & 1);
    d[i] = static_cast<T>(sum);
    out |= static_cast<uint32_t>(sum >> (8 * sizeof(T))) << i;
  }
  if (in.d2 != kNoOperand) c.SetPred(in.d2, out, mask);
}
// a - b - 1 + carry. The hardware adds the complement of b, so the flag is set when nothing is
// borrowed. nvcc's division of 128-bit integers adds the flag of a subtraction.
template <class T, bool kIn>
void SubCarry(Context& c, const Instr& in, uint32_t mask) {
  T* d = c.Dst<T>(in.d);
  const T* a = c.Src<T>(in.a);
  const T* b = c.Src<T>(in.b);
  const uint32_t borrow = kIn ? ~c.Pred(in.c) : 0;
  uint32_t out = 0;
  for (uint32_t m = mask; m != 0; m &= m - 1) {
    const uint32_t i = static_cast<uint32_t>(__builtin_ctz(m));
    const unsigned __int128 minuend = a[i],
                            subtrahend = static_cast<unsigned __int128>(b[i]) + (borrow >> i & 1);
    d[i] = static_cast<T>(minuend - subtrahend);
    out |= static_cast<uint32_t>(minuend >= subtrahend) << i;
  }
  if (in.d2 != kNoOperand) c.SetPred(in.d2, out, mask);
}
template <class T, bool kHigh, bool kIn>
void MadCarry(Context& c, const Instr& in, uint32_t mask) {
  using U = Unsigned<T>;
  U* d = c.Dst<U>(in.d);
  const U* a = c.Src<U>(in.a);
  const U* b = c.Src<U>(in.b);
  const U* e = c.Src<U>(in.c);
  const uint32_t carry = kIn ? c.Pred(in.e) : 0;
  uint32_t out = 0;
  for (uint32_t m = mask; m != 0; m &= m - 1) {
    const uint32_t i = static_cast<uint32_t>(__builtin_ctz(m));
    const U product = kHigh
                          ? static_cast<U>(HighProduct(static_cast<T>(a[i]), static_cast<T>(b[i])))
                          : static_cast<U>(a[i] * b[i]);
    const unsigned __int128 sum = static_cast<unsigned __int128>(product) + e[i] + (carry >> i & 1);
    d[i] = static_cast<U>(sum);
    out |= static_cast<uint32_t>(sum >> (8 * sizeof(T))) << i;
  }
  if (in.d2 != kNoOperand) c.SetPred(in.d2, out, mask);
}

// --- selection of handlers ---

template <class Op>
ExecFn SignedMap1(Type t) {
  switch (t) {
    case Type::kS16:
      return Map1<int16_t, int16_t, Op>;
    case Type::kS32:
      return Map1<int32_t, int32_t, Op>;
    case Type::kS64:
      return Map1<int64_t, int64_t, Op>;
    default:
      return nullptr;
  }
}
template <class Op>
ExecFn IntMap2(Type t) {
  switch (t) {
    case Type::kU16:
    case Type::kB16:
      return Map2<uint16_t, uint16_t, uint16_t, Op>;
    case Type::kU32:
    case Type::kB32:
      return Map2<uint32_t, uint32_t, uint32_t, Op>;
    case Type::kU64:
    case Type::kB64:
      return Map2<uint64_t, uint64_t, uint64_t, Op>;
    case Type::kS16:
      return Map2<int16_t, int16_t, int16_t, Op>;
    case Type::kS32:
      return Map2<int32_t, int32_t, int32_t, Op>;
    case Type::kS64:
      return Map2<int64_t, int64_t, int64_t, Op>;
    default:
      return nullptr;
  }
}
template <class Op>
ExecFn IntMap3(Type t) {
  switch (t) {
    case Type::kU16:
      return Map3<uint16_t, uint16_t, uint16_t, uint16_t, Op>;
    case Type::kU32:
      return Map3<uint32_t, uint32_t, uint32_t, uint32_t, Op>;
    case Type::kU64:
      return Map3<uint64_t, uint64_t, uint64_t, uint64_t, Op>;
    case Type::kS16:
      return Map3<int16_t, int16_t, int16_t, int16_t, Op>;
    case Type::kS32:
      return Map3<int32_t, int32_t, int32_t, int32_t, Op>;
    case Type::kS64:
      return Map3<int64_t, int64_t, int64_t, int64_t, Op>;
    default:
      return nullptr;
  }
}
// For operations whose result bits do not depend on the signedness of the type.
template <class Op>
ExecFn AnySignMap2(Type t) {
  switch (t) {
    case Type::kU16:
    case Type::kB16:
    case Type::kS16:
      return Map2<uint16_t, uint16_t, uint16_t, Op>;
    case Type::kU32:
    case Type::kB32:
    case Type::kS32:
      return Map2<uint32_t, uint32_t, uint32_t, Op>;
    case Type::kU64:
    case Type::kB64:
    case Type::kS64:
      return Map2<uint64_t, uint64_t, uint64_t, Op>;
    default:
      return nullptr;
  }
}
template <class Op>
ExecFn AnySignMap3(Type t) {
  switch (t) {
    case Type::kU16:
    case Type::kS16:
      return Map3<uint16_t, uint16_t, uint16_t, uint16_t, Op>;
    case Type::kU32:
    case Type::kS32:
      return Map3<uint32_t, uint32_t, uint32_t, uint32_t, Op>;
    case Type::kU64:
    case Type::kS64:
      return Map3<uint64_t, uint64_t, uint64_t, uint64_t, Op>;
    default:
      return nullptr;
  }
}
template <class Op>
ExecFn Word32Map2(Type t) {
  if (t == Type::kU32) return Map2<uint32_t, uint32_t, uint32_t, Op>;
  if (t == Type::kS32) return Map2<int32_t, int32_t, int32_t, Op>;
  return nullptr;
}
template <class Op>
ExecFn Word32Map3(Type t) {
  if (t == Type::kU32) return Map3<uint32_t, uint32_t, uint32_t, uint32_t, Op>;
  if (t == Type::kS32) return Map3<int32_t, int32_t, int32_t, int32_t, Op>;
  return nullptr;
}
ExecFn SelectMulWide(Type t) {
  switch (t) {
    case Type::kU16:
      return Map2<uint32_t, uint16_t, uint16_t, OpMulWide<uint32_t>>;
    case Type::kS16:
      return Map2<int32_t, int16_t, int16_t, OpMulWide<int32_t>>;
    case Type::kU32:
      return Map2<uint64_t, uint32_t, uint32_t, OpMulWide<uint64_t>>;
    case Type::kS32:
      return Map2<int64_t, int32_t, int32_t, OpMulWide<int64_t>>;
    default:
      return nullptr;
  }
}
ExecFn SelectMadWide(Type t) {
  switch (t) {
    case Type::kU16:
      return Map3<uint32_t, uint16_t, uint16_t, uint32_t, OpMadWide<uint32_t>>;
    case Type::kS16:
      return Map3<int32_t, int16_t, int16_t, int32_t, OpMadWide<int32_t>>;
    case Type::kU32:
      return Map3<uint64_t, uint32_t, uint32_t, uint64_t, OpMadWide<uint64_t>>;
    case Type::kS32:
      return Map3<int64_t, int32_t, int32_t, int64_t, OpMadWide<int64_t>>;
    default:
      return nullptr;
  }
}
template <bool kHigh>
ExecFn SelectMadCarry(Type t, bool carry_in) {
  switch (t) {
    case Type::kU32:
      return carry_in ? MadCarry<uint32_t, kHigh, true> : MadCarry<uint32_t, kHigh, false>;
    case Type::kS32:
      return carry_in ? MadCarry<int32_t, kHigh, true> : MadCarry<int32_t, kHigh, false>;
    case Type::kU64:
      return carry_in ? MadCarry<uint64_t, kHigh, true> : MadCarry<uint64_t, kHigh, false>;
    case Type::kS64:
      return carry_in ? MadCarry<int64_t, kHigh, true> : MadCarry<int64_t, kHigh, false>;
    default:
      return nullptr;
  }
}
ExecFn SelectProduct(VectorOp op, Type t, VectorFlags f) {
  switch (op) {
    case VectorOp::kMulLo:
      return AnySignMap2<OpMulLo>(t);
    case VectorOp::kMulHi:
      return IntMap2<OpMulHi>(t);
    case VectorOp::kMulWide:
      return SelectMulWide(t);
    case VectorOp::kMadLo:
      return AnySignMap3<OpMadLo>(t);
    case VectorOp::kMadHi:
      if (f.sat)
        return t == Type::kS32 ? Map3<int32_t, int32_t, int32_t, int32_t, OpMadHiSat> : nullptr;
      return IntMap3<OpMadHi>(t);
    case VectorOp::kMadWide:
      return SelectMadWide(t);
    case VectorOp::kMul24Lo:
      return Word32Map2<OpMul24Lo>(t);
    case VectorOp::kMul24Hi:
      return Word32Map2<OpMul24Hi>(t);
    case VectorOp::kMad24Lo:
      return Word32Map3<OpMad24Lo>(t);
    case VectorOp::kMad24Hi:
      if (f.sat)
        return t == Type::kS32 ? Map3<int32_t, int32_t, int32_t, int32_t, OpMad24HiSat> : nullptr;
      return Word32Map3<OpMad24Hi>(t);
    case VectorOp::kDp4a:
      return Dp4a;
    case VectorOp::kDp2a:
      return Dp2a;
    default:
      return nullptr;
  }
}
ExecFn SelectCarry(VectorOp op, Type t) {
  const bool wide = SizeOf(t) == 8;
  switch (op) {
    case VectorOp::kAddCc:
      return wide ? AddCarry<uint64_t, false> : AddCarry<uint32_t, false>;
    case VectorOp::kAddc:
      return wide ? AddCarry<uint64_t, true> : AddCarry<uint32_t, true>;
    case VectorOp::kSubCc:
      return wide ? SubCarry<uint64_t, false> : SubCarry<uint32_t, false>;
    case VectorOp::kSubc:
      return wide ? SubCarry<uint64_t, true> : SubCarry<uint32_t, true>;
    case VectorOp::kMadLoCc:
      return SelectMadCarry<false>(t, false);
    case VectorOp::kMadLoc:
      return SelectMadCarry<false>(t, true);
    case VectorOp::kMadHiCc:
      return SelectMadCarry<true>(t, false);
    case VectorOp::kMadHic:
      return SelectMadCarry<true>(t, true);
    default:
      return nullptr;
  }
}

}  // namespace

ExecFn SelectInteger(VectorOp op, Type t, VectorFlags f) {
  switch (op) {
    case VectorOp::kAdd:
      if (f.sat) return t == Type::kS32 ? Map2<int32_t, int32_t, int32_t, OpAddSat> : nullptr;
      return AnySignMap2<OpAdd>(t);
    case VectorOp::kSub:
      if (f.sat) return t == Type::kS32 ? Map2<int32_t, int32_t, int32_t, OpSubSat> : nullptr;
      return AnySignMap2<OpSub>(t);
    case VectorOp::kSad:
      return IntMap3<OpSad>(t);
    case VectorOp::kDiv:
      return IntMap2<OpDiv>(t);
    case VectorOp::kRem:
      return IntMap2<OpRem>(t);
    case VectorOp::kAbs:
      return SignedMap1<OpAbs>(t);
    case VectorOp::kNeg:
      return SignedMap1<OpNeg>(t);
    case VectorOp::kMin:
      if (f.relu) return t == Type::kS32 ? Map2<int32_t, int32_t, int32_t, OpMinRelu> : nullptr;
      return IntMap2<OpMin>(t);
    case VectorOp::kMax:
      if (f.relu) return t == Type::kS32 ? Map2<int32_t, int32_t, int32_t, OpMaxRelu> : nullptr;
      return IntMap2<OpMax>(t);
    case VectorOp::kMin3:
      return Word32Map3<OpMin3>(t);
    case VectorOp::kMax3:
      return Word32Map3<OpMax3>(t);
    default:
      break;
  }
  const ExecFn product = SelectProduct(op, t, f);
  return product != nullptr ? product : SelectCarry(op, t);
}

}  // namespace detshare::soft::ptx::DETSHARE_VECTOR_ISA
