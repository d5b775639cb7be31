// Logic, shifts, fields and counts of bits.
// Must follow all other headers.
#include "server/backends/soft/ptx/vector_lanes.h"

namespace detshare::soft::ptx::DETSHARE_VECTOR_ISA {
namespace {

struct OpAnd {
  template <class T>
  static T Do(T a, T b) {
    return static_cast<T>(a & b);
  }
};
struct OpOr {
  template <class T>
  static T Do(T a, T b) {
    return static_cast<T>(a | b);
  }
};
struct OpXor {
  template <class T>
  static T Do(T a, T b) {
    return static_cast<T>(a ^ b);
  }
};
struct OpNot {
  template <class T>
  static T Do(T a) {
    return static_cast<T>(~a);
  }
};
struct OpCnot {
  template <class T>
  static T Do(T a) {
    return a == 0 ? 1 : 0;
  }
};
struct OpShl {
  template <class T>
  static T Do(T a, uint32_t n) {
    return n >= 8 * sizeof(T) ? T{0} : static_cast<T>(Arith<T>(a) << (n & (8 * sizeof(T) - 1)));
  }
};
struct OpShr {
  template <class T>
  static T Do(T a, uint32_t n) {
    constexpr uint32_t kBits = 8 * sizeof(T);
    if constexpr (std::is_signed_v<T>) return static_cast<T>(a >> (n >= kBits ? kBits - 1 : n));
    return n >= kBits ? T{0} : static_cast<T>(a >> (n & (kBits - 1)));
  }
};
// Funnel shifts of the 64-bit value b:a, by shifts of 32 bits, of which a vector holds twice as many.
template <bool kClamp>
struct OpShfL {
  static uint32_t Do(uint32_t a, uint32_t b, uint32_t n) {
    const uint32_t by = n & 31, shifted = b << by | a >> 1 >> (31 - by);
    return kClamp && n > 31 ? a : shifted;
  }
};
template <bool kClamp>
struct OpShfR {
  static uint32_t Do(uint32_t a, uint32_t b, uint32_t n) {
    const uint32_t by = n & 31, shifted = a >> by | b << 1 << (31 - by);
    return kClamp && n > 31 ? b : shifted;
  }
};
// As on hardware, 32-bit fields take position and length modulo 256; 64-bit fields take them
// unchanged.
template <class T>
inline uint64_t FieldOperand(uint32_t v) {
  return sizeof(T) == 8 ? v : v & 0xff;
}
struct OpBfe {
  template <class T>
  static T Do(T a, uint32_t position, uint32_t length) {
    constexpr uint64_t kBits = 8 * sizeof(T);
    using U = Unsigned<T>;
    const uint64_t pos = FieldOperand<T>(position), len = FieldOperand<T>(length);
    if (len == 0) return 0;
    const uint64_t sign_at = pos + len - 1 < kBits - 1 ? pos + len - 1 : kBits - 1;
    U value = pos >= kBits ? U{0} : static_cast<U>(static_cast<U>(a) >> pos);
    if (len < kBits) value &= (U{1} << len) - 1;
    if constexpr (std::is_signed_v<T>) {
      const bool sign = (static_cast<U>(a) >> sign_at & 1) != 0;
      if (sign) {
        const uint64_t have = pos >= kBits ? 0 : (len < kBits - pos ? len : kBits - pos);
        if (have < kBits) value |= ~U{0} << have;
      }
    }
    return static_cast<T>(value);
  }
};
template <class T>
void Bfi(Context& c, const Instr& in, uint32_t mask) {
  T* d = c.Dst<T>(in.d);
  const T* a = c.Src<T>(in.a);
  const T* b = c.Src<T>(in.b);
  const uint32_t* p = c.Src<uint32_t>(in.c);
  const uint32_t* l = c.Src<uint32_t>(in.e);
  constexpr uint32_t kBits = 8 * sizeof(T);
  ForLanes(mask, [=](uint32_t i) {
    const uint64_t pos = FieldOperand<T>(p[i]), len = FieldOperand<T>(l[i]);
    T field = len >= kBits ? ~T{0} : (T{1} << len) - 1;
    field = pos >= kBits ? T{0} : static_cast<T>(field << pos);
    const T value = pos >= kBits ? T{0} : static_cast<T>(a[i] << pos);
    d[i] = (b[i] & ~field) | (value & field);
  });
}
template <bool kShift>
struct OpBfind {
  template <class T>
  static uint32_t Do(T a) {
    using U = Unsigned<T>;
    U v = static_cast<U>(a);
    if constexpr (std::is_signed_v<T>) {
      if (a < 0) v = static_cast<U>(~v);
    }
    if (v == 0) return 0xffffffffu;
    const uint32_t at = 63 - static_cast<uint32_t>(__builtin_clzll(v));
    return kShift ? 8 * sizeof(T) - 1 - at : at;
  }
};
struct OpClz {
  template <class T>
  static uint32_t Do(T a) {
    return a == 0 ? 8 * sizeof(T)
                  : static_cast<uint32_t>(__builtin_clzll(a)) - (64 - 8 * sizeof(T));
  }
};
struct OpPopc {
  template <class T>
  static uint32_t Do(T a) {
    return static_cast<uint32_t>(__builtin_popcountll(a));
  }
};
struct OpBrev {
  template <class T>
  static T Do(T a) {
    uint64_t v = a;
    v = (v >> 1 & 0x5555555555555555u) | (v & 0x5555555555555555u) << 1;
    v = (v >> 2 & 0x3333333333333333u) | (v & 0x3333333333333333u) << 2;
    v = (v >> 4 & 0x0f0f0f0f0f0f0f0fu) | (v & 0x0f0f0f0f0f0f0f0fu) << 4;
    return static_cast<T>(__builtin_bswap64(v) >> (64 - 8 * sizeof(T)));
  }
};
template <bool kClamp>
struct OpSzext {
  template <class T>
  static T Do(T a, uint32_t n) {
    if (kClamp)
      n = n > 32 ? 32 : n;
    else
      n &= 31;
    if (n == 0) return 0;
    if (n == 32) return a;
    const uint32_t up = static_cast<uint32_t>(a) << (32 - n);
    return std::is_signed_v<T> ? static_cast<T>(static_cast<int32_t>(up) >> (32 - n))
                               : static_cast<T>(up >> (32 - n));
  }
};
template <bool kClamp>
struct OpBmsk {
  static uint32_t Do(uint32_t pos, uint32_t len) {
    if (!kClamp) {
      pos &= 31;
      len &= 31;
    }
    if (pos >= 32 || len == 0) return 0;
    const uint32_t field = len >= 32 ? ~0u : (1u << len) - 1;
    return field << pos;
  }
};
struct OpFns {
  static uint32_t Do(uint32_t bits, uint32_t base, int32_t offset) {
    if (base > 31) return 0xffffffffu;
    if (offset == 0) return (bits >> base & 1) != 0 ? base : 0xffffffffu;
    int64_t left = offset > 0 ? int64_t{offset} - 1 : -int64_t{offset} - 1;
    const int32_t step = offset > 0 ? 1 : -1;
    for (int32_t pos = static_cast<int32_t>(base); pos >= 0 && pos < 32; pos += step) {
      if ((bits >> pos & 1) != 0 && left-- == 0) return static_cast<uint32_t>(pos);
    }
    return 0xffffffffu;
  }
};

void Lop3(Context& c, const Instr& in, uint32_t mask) {
  uint32_t* d = c.Dst<uint32_t>(in.d);
  const uint32_t* a = c.Src<uint32_t>(in.a);
  const uint32_t* b = c.Src<uint32_t>(in.b);
  const uint32_t* e = c.Src<uint32_t>(in.c);
  // Selects from the table by z, the results by y, and their results by x.
  uint32_t t[4], difference[4];
  const auto entry = [&](uint32_t i) { return (in.imm >> i & 1) != 0 ? ~0u : 0u; };
  for (uint32_t i = 0; i < 4; ++i) {
    t[i] = entry(2 * i);
    difference[i] = t[i] ^ entry(2 * i + 1);
  }
  const auto select = [](uint32_t bits, uint32_t zero, uint32_t one) {
    return zero ^ ((zero ^ one) & bits);
  };
  ForLanes(mask, [&](uint32_t i) {
    const uint32_t x = a[i], y = b[i], z = e[i];
    const uint32_t by_z[4] = {t[0] ^ (difference[0] & z), t[1] ^ (difference[1] & z),
                              t[2] ^ (difference[2] & z), t[3] ^ (difference[3] & z)};
    d[i] = select(x, select(y, by_z[0], by_z[1]), select(y, by_z[2], by_z[3]));
  });
}

inline uint32_t PrmtByte(uint64_t source, uint32_t selector) {
  const uint32_t byte = static_cast<uint32_t>(source >> (8 * (selector & 7))) & 0xff;
  return (selector & 8) == 0 ? byte : ((byte & 0x80) != 0 ? 0xffu : 0u);
}
void Prmt(Context& c, const Instr& in, uint32_t mask) {
  uint32_t* d = c.Dst<uint32_t>(in.d);
  const uint32_t* a = c.Src<uint32_t>(in.a);
  const uint32_t* b = c.Src<uint32_t>(in.b);
  const uint32_t* s = c.Src<uint32_t>(in.c);
  // Selectors of f4e, b4e, rc8, ecl, ecr, rc16 for each value of the two (or one) control bits.
  static constexpr uint16_t kModes[7][4] = {{0, 0, 0, 0},
                                            {0x3210, 0x4321, 0x5432, 0x6543},
                                            {0x5670, 0x6701, 0x7012, 0x0123},
                                            {0x0000, 0x1111, 0x2222, 0x3333},
                                            {0x3210, 0x3211, 0x3222, 0x3333},
                                            {0x0000, 0x1110, 0x2210, 0x3210},
                                            {0x1010, 0x3232, 0x1010, 0x3232}};
  const uint32_t mode = static_cast<uint32_t>(in.imm);
  ForLanes(mask, [=](uint32_t i) {
    const uint64_t source = uint64_t{b[i]} << 32 | a[i];
    const uint32_t selector = mode == 0 ? s[i] : kModes[mode][s[i] & 3];
    d[i] = PrmtByte(source, selector) | PrmtByte(source, selector >> 4) << 8 |
           PrmtByte(source, selector >> 8) << 16 | PrmtByte(source, selector >> 12) << 24;
  });
}

// --- selection of handlers ---

template <class Op>
ExecFn BitsMap1(Type t) {
  switch (SizeOf(t)) {
    case 2:
      return Map1<uint16_t, uint16_t, Op>;
    case 4:
      return Map1<uint32_t, uint32_t, Op>;
    case 8:
      return Map1<uint64_t, uint64_t, Op>;
    default:
      return nullptr;
  }
}
template <class Op>
ExecFn BitsMap2(Type t) {
  switch (SizeOf(t)) {
    case 2:
      return Map2<uint16_t, uint16_t, uint16_t, Op>;
    case 4:
      return Map2<uint32_t, uint32_t, uint32_t, Op>;
    case 8:
      return Map2<uint64_t, uint64_t, uint64_t, Op>;
    default:
      return nullptr;
  }
}
// Bit counts: operands of any width, 32-bit results.
template <class Op>
ExecFn CountMap(Type t) {
  switch (t) {
    case Type::kU32:
    case Type::kB32:
      return Map1<uint32_t, uint32_t, Op>;
    case Type::kU64:
    case Type::kB64:
      return Map1<uint32_t, uint64_t, Op>;
    case Type::kS32:
      return Map1<uint32_t, int32_t, Op>;
    case Type::kS64:
      return Map1<uint32_t, int64_t, Op>;
    default:
      return nullptr;
  }
}
ExecFn SelectShift(VectorOp op, Type t) {
  if (op == VectorOp::kShl) {
    switch (SizeOf(t)) {
      case 2:
        return Map2<uint16_t, uint16_t, uint32_t, OpShl>;
      case 4:
        return Map2<uint32_t, uint32_t, uint32_t, OpShl>;
      case 8:
        return Map2<uint64_t, uint64_t, uint32_t, OpShl>;
      default:
        return nullptr;
    }
  }
  switch (t) {
    case Type::kU16:
    case Type::kB16:
      return Map2<uint16_t, uint16_t, uint32_t, OpShr>;
    case Type::kU32:
    case Type::kB32:
      return Map2<uint32_t, uint32_t, uint32_t, OpShr>;
    case Type::kU64:
    case Type::kB64:
      return Map2<uint64_t, uint64_t, uint32_t, OpShr>;
    case Type::kS16:
      return Map2<int16_t, int16_t, uint32_t, OpShr>;
    case Type::kS32:
      return Map2<int32_t, int32_t, uint32_t, OpShr>;
    case Type::kS64:
      return Map2<int64_t, int64_t, uint32_t, OpShr>;
    default:
      return nullptr;
  }
}
ExecFn SelectBfe(Type t) {
  switch (t) {
    case Type::kU32:
      return Map3<uint32_t, uint32_t, uint32_t, uint32_t, OpBfe>;
    case Type::kS32:
      return Map3<int32_t, int32_t, uint32_t, uint32_t, OpBfe>;
    case Type::kU64:
      return Map3<uint64_t, uint64_t, uint32_t, uint32_t, OpBfe>;
    case Type::kS64:
      return Map3<int64_t, int64_t, uint32_t, uint32_t, OpBfe>;
    default:
      return nullptr;
  }
}
ExecFn SelectField(VectorOp op, Type t, VectorFlags f) {
  const bool wide = SizeOf(t) == 8;
  switch (op) {
    case VectorOp::kBfe:
      return SelectBfe(t);
    case VectorOp::kBfi:
      return wide ? Bfi<uint64_t> : Bfi<uint32_t>;
    case VectorOp::kBfind:
      return f.clamp ? CountMap<OpBfind<true>>(t) : CountMap<OpBfind<false>>(t);
    case VectorOp::kClz:
      return wide ? Map1<uint32_t, uint64_t, OpClz> : Map1<uint32_t, uint32_t, OpClz>;
    case VectorOp::kPopc:
      return wide ? Map1<uint32_t, uint64_t, OpPopc> : Map1<uint32_t, uint32_t, OpPopc>;
    case VectorOp::kBrev:
      return wide ? Map1<uint64_t, uint64_t, OpBrev> : Map1<uint32_t, uint32_t, OpBrev>;
    case VectorOp::kSzext:
      if (t == Type::kS32) {
        return f.clamp ? Map2<int32_t, int32_t, uint32_t, OpSzext<true>>
                       : Map2<int32_t, int32_t, uint32_t, OpSzext<false>>;
      }
      return f.clamp ? Map2<uint32_t, uint32_t, uint32_t, OpSzext<true>>
                     : Map2<uint32_t, uint32_t, uint32_t, OpSzext<false>>;
    case VectorOp::kBmsk:
      return f.clamp ? Map2<uint32_t, uint32_t, uint32_t, OpBmsk<true>>
                     : Map2<uint32_t, uint32_t, uint32_t, OpBmsk<false>>;
    case VectorOp::kFns:
      return Map3<uint32_t, uint32_t, uint32_t, int32_t, OpFns>;
    default:
      return nullptr;
  }
}

}  // namespace

ExecFn SelectBits(VectorOp op, Type t, VectorFlags f) {
  switch (op) {
    case VectorOp::kAnd:
      return BitsMap2<OpAnd>(t);
    case VectorOp::kOr:
      return BitsMap2<OpOr>(t);
    case VectorOp::kXor:
      return BitsMap2<OpXor>(t);
    case VectorOp::kNot:
      return BitsMap1<OpNot>(t);
    case VectorOp::kCnot:
      return BitsMap1<OpCnot>(t);
    case VectorOp::kShl:
    case VectorOp::kShr:
      return SelectShift(op, t);
    case VectorOp::kShfL:
      return f.clamp ? Map3<uint32_t, uint32_t, uint32_t, uint32_t, OpShfL<true>>
                     : Map3<uint32_t, uint32_t, uint32_t, uint32_t, OpShfL<false>>;
    case VectorOp::kShfR:
      return f.clamp ? Map3<uint32_t, uint32_t, uint32_t, uint32_t, OpShfR<true>>
                     : Map3<uint32_t, uint32_t, uint32_t, uint32_t, OpShfR<false>>;
    case VectorOp::kLop3:
      return Lop3;
    case VectorOp::kPrmt:
      return Prmt;
    default:
      return SelectField(op, t, f);
  }
}

}  // namespace detshare::soft::ptx::DETSHARE_VECTOR_ISA
