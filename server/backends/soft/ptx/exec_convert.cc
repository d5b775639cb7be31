// cvt.
#include <algorithm>
#include <cfenv>
#include <cmath>
#include <limits>
#include <type_traits>

#include "server/backends/soft/ptx/context.h"
#include "server/backends/soft/ptx/float_ops.h"
#include "server/backends/soft/ptx/half.h"

namespace detshare::soft::ptx {
namespace {

struct F16 {};
struct BF16 {};

template <class T>
constexpr bool kIsFloat =
    std::is_same_v<T, F16> || std::is_same_v<T, BF16> || std::is_floating_point_v<T>;
template <class T>
using ConvertLane = std::conditional_t<std::is_same_v<T, F16> || std::is_same_v<T, BF16>, uint32_t,
                                       std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>>;

// Returns the value of a lane: an integer unchanged, a float as a float or double that holds it
// exactly.
template <class S>
inline auto Read(ConvertLane<S> lane) {
  if constexpr (std::is_same_v<S, F16>) {
    return HalfToFloat(static_cast<uint16_t>(lane));
  } else if constexpr (std::is_same_v<S, BF16>) {
    return Bf16ToFloat(static_cast<uint16_t>(lane));
  } else if constexpr (std::is_floating_point_v<S>) {
    return std::bit_cast<S>(lane);
  } else {
    return static_cast<S>(lane);
  }
}

// Extends a result to the width of the lane: a signed result with its sign, others with zeros.
template <class D>
inline ConvertLane<D> PutInteger(D v) {
  if constexpr (std::is_signed_v<D>) {
    return static_cast<ConvertLane<D>>(static_cast<std::make_signed_t<ConvertLane<D>>>(v));
  } else {
    return v;
  }
}

template <class T>
inline T RoundToInteger(T v, Rounding rounding) {
  switch (rounding) {
    case Rounding::kRni:
    case Rounding::kRn:
      return std::nearbyint(v);
    case Rounding::kRmi:
    case Rounding::kRm:
      return std::floor(v);
    case Rounding::kRpi:
    case Rounding::kRp:
      return std::ceil(v);
    default:
      return std::trunc(v);
  }
}

SmallRounding SmallMode(Rounding rounding) {
  switch (rounding) {
    case Rounding::kRz:
      return SmallRounding::kZero;
    case Rounding::kRm:
      return SmallRounding::kDown;
    case Rounding::kRp:
      return SmallRounding::kUp;
    case Rounding::kRna:
      return SmallRounding::kAway;
    default:
      return SmallRounding::kNearest;
  }
}

bool IsDirected(Rounding r) {
  return r == Rounding::kRz || r == Rounding::kRm || r == Rounding::kRp;
}
bool IsIntegral(Rounding r) {
  return r == Rounding::kRni || r == Rounding::kRzi || r == Rounding::kRmi || r == Rounding::kRpi;
}

// Converts in a directed mode. Volatile keeps the conversion between the changes of the mode.
template <class D, class S>
D InMode(Rounding rounding, S value) {
  std::fesetround(rounding == Rounding::kRz   ? FE_TOWARDZERO
                  : rounding == Rounding::kRm ? FE_DOWNWARD
                                              : FE_UPWARD);
  const volatile S in = value;
  const volatile D out = static_cast<D>(in);
  std::fesetround(FE_TONEAREST);
  return out;
}

// A flushed NaN becomes the NaN of the hardware.
float FlushCanonical(float v) {
  if (v != v) return std::bit_cast<float>(0x7fffffffu);
  const uint32_t bits = std::bit_cast<uint32_t>(v);
  return (bits & 0x7f800000u) == 0 ? std::bit_cast<float>(bits & 0x80000000u) : v;
}

template <class D, class S>
D FloatToInteger(S v, Rounding rounding, bool source_is_f64) {
  if (v != v) {
    if (!source_is_f64 && sizeof(D) < 8) return 0;
    return static_cast<D>(std::make_unsigned_t<D>{1} << (8 * sizeof(D) - 1));
  }
  const S r = RoundToInteger(v, rounding);
  // The bounds as floats: the lower bound is exact; 2^n is the first value that is too large.
  const S low = static_cast<S>(std::numeric_limits<D>::min());
  const S high = std::ldexp(S{1}, std::numeric_limits<D>::digits);
  if (r < low) return std::numeric_limits<D>::min();
  if (r >= high) return std::numeric_limits<D>::max();
  return static_cast<D>(r);
}

template <class D, class S>
D SaturateInteger(S v) {
  using Wide = __int128;
  const Wide value = static_cast<Wide>(v);
  return static_cast<D>(std::clamp<Wide>(value, static_cast<Wide>(std::numeric_limits<D>::min()),
                                         static_cast<Wide>(std::numeric_limits<D>::max())));
}

// Returns a double that rounds to any format of at most 16 bits as the value does. An integer of 64
// bits has more bits than a double, so the lowest ones become one bit, which says whether any was
// set.
template <class S>
double ToWideEnough(S value) {
  if constexpr (std::is_integral_v<S> && sizeof(S) == 8) {
    const bool negative = value < 0;
    uint64_t magnitude = static_cast<uint64_t>(value);
    if (negative) magnitude = -magnitude;
    constexpr uint64_t kLowest = 0x7ff;
    if (magnitude >> 53 != 0 && (magnitude & kLowest) != 0)
      magnitude = (magnitude & ~kLowest) | (kLowest + 1);
    const double result = static_cast<double>(magnitude);
    return negative ? -result : result;
  } else {
    return static_cast<double>(value);
  }
}

template <class D, class S, bool kCanonical = !std::is_same_v<S, double>>
ConvertLane<D> ToFloat(S value, const Instr& in) {
  const Rounding rounding = static_cast<Rounding>(in.aux & FloatAux::kRoundingMask);
  const bool ftz = (in.aux & FloatAux::kFtz) != 0, sat = (in.aux & FloatAux::kSat) != 0;
  const bool relu = (in.aux & FloatAux::kRelu) != 0;
  auto source = value;
  if constexpr (std::is_same_v<S, float>) {
    if (ftz) source = FlushCanonical(source);
  }
  if constexpr (std::is_floating_point_v<S>) {
    if (IsIntegral(rounding))
      source = source != source ? source + source : RoundToInteger(source, rounding);
  }
  if constexpr (std::is_same_v<D, F16> || std::is_same_v<D, BF16>) {
    constexpr bool kF16 = std::is_same_v<D, F16>;
    uint32_t r;
    const bool finite = (in.aux & FloatAux::kSatFinite) != 0;
    if constexpr (std::is_same_v<S, double>) {
      if (kF16 && source != source) {  // keeps the upper bits of the NaN
        const uint64_t bits = std::bit_cast<uint64_t>(source);
        return static_cast<uint32_t>(bits >> 63 << 15 | 0x7e00 | (bits >> 42 & 0x3ff));
      }
    }
    if (std::is_same_v<S, float> && !IsDirected(rounding) && rounding != Rounding::kRna &&
        !finite) {
      r = kF16 ? FloatToHalf(static_cast<float>(source)) : FloatToBf16(static_cast<float>(source));
    } else {
      r = DoubleToSmall(kF16 ? kF16Format : kBF16Format, ToWideEnough(source), SmallMode(rounding),
                        finite);
    }
    const float back =
        kF16 ? HalfToFloat(static_cast<uint16_t>(r)) : Bf16ToFloat(static_cast<uint16_t>(r));
    if (sat) {
      const float clamped = back > 0.0f ? (back < 1.0f ? back : 1.0f) : 0.0f;
      r = kF16 ? FloatToHalf(clamped) : FloatToBf16(clamped);
    }
    if (relu && back == back && (r & 0x8000) != 0) r = 0;
    return r;
  } else {
    D r;
    if constexpr (std::is_same_v<S, D>) {
      r = source;
    } else {
      r = IsDirected(rounding) ? InMode<D>(rounding, source) : static_cast<D>(source);
    }
    if (sat) r = r > D{0} ? (r < D{1} ? r : D{1}) : D{0};
    if constexpr (std::is_same_v<D, float>) {
      if (ftz) r = FlushCanonical(r);
      if (r != r && kCanonical) r = std::bit_cast<float>(0x7fffffffu);
    }
    return std::bit_cast<ConvertLane<D>>(r);
  }
}

template <class D, class S>
void Convert(Context& c, const Instr& in, uint32_t mask) {
  ConvertLane<D>* d = c.Dst<ConvertLane<D>>(in.d);
  const ConvertLane<S>* a = c.Src<ConvertLane<S>>(in.a);
  if constexpr (!kIsFloat<D> && !kIsFloat<S>) {
    if ((in.aux & FloatAux::kSat) != 0) {
      ForEachLane(mask,
                  [&](uint32_t i) { d[i] = PutInteger<D>(SaturateInteger<D>(Read<S>(a[i]))); });
    } else if (mask == kFullMask) {
#pragma GCC ivdep
      for (uint32_t i = 0; i < kLanes; ++i) d[i] = PutInteger<D>(static_cast<D>(Read<S>(a[i])));
    } else {
      ForEachLane(mask, [&](uint32_t i) { d[i] = PutInteger<D>(static_cast<D>(Read<S>(a[i]))); });
    }
  } else if constexpr (!kIsFloat<D>) {
    const Rounding rounding = static_cast<Rounding>(in.aux & FloatAux::kRoundingMask);
    const bool ftz = (in.aux & FloatAux::kFtz) != 0;
    ForEachLane(mask, [&](uint32_t i) {
      auto v = Read<S>(a[i]);
      if constexpr (std::is_same_v<S, float>) {
        if (ftz) v = FlushCanonical(v);
      }
      d[i] = PutInteger<D>(FloatToInteger<D>(v, rounding, std::is_same_v<S, double>));
    });
  } else {
    // NaNs of f64 and bf16 keep their payload; those of f16 do not.
    constexpr bool kCanonical = !std::is_same_v<S, double> && !std::is_same_v<S, BF16>;
    ForEachLane(mask, [&](uint32_t i) {
      const auto v = Read<S>(a[i]);
      d[i] = ToFloat<D, std::remove_const_t<decltype(v)>, kCanonical>(v, in);
    });
  }
}

// Converts two f32 values to a pair of small floats: a is the upper half, b the lower half.
template <bool kF16>
void ConvertPair(Context& c, const Instr& in, uint32_t mask) {
  uint32_t* d = c.Dst<uint32_t>(in.d);
  const float* a = c.Src<float>(in.a);
  const float* b = c.Src<float>(in.b);
  using D = std::conditional_t<kF16, F16, BF16>;
  ForEachLane(mask, [&](uint32_t i) { d[i] = ToFloat<D>(a[i], in) << 16 | ToFloat<D>(b[i], in); });
}

template <bool kE4M3>
void ConvertPairToF8(Context& c, const Instr& in, uint32_t mask) {
  uint32_t* d = c.Dst<uint32_t>(in.d);
  const float* a = c.Src<float>(in.a);
  const float* b = c.Src<float>(in.b);
  const bool relu = (in.aux & FloatAux::kRelu) != 0;
  auto one = [&](float v) -> uint32_t {
    if (relu && v < 0) v = 0;
    return DoubleToSmall(kE4M3 ? kE4M3Format : kE5M2Format, v, SmallRounding::kNearest, true);
  };
  ForEachLane(mask, [&](uint32_t i) { d[i] = one(a[i]) << 8 | one(b[i]); });
}
template <bool kE4M3>
void ConvertHalvesToF8(Context& c, const Instr& in, uint32_t mask) {
  uint32_t* d = c.Dst<uint32_t>(in.d);
  const uint32_t* a = c.Src<uint32_t>(in.a);
  const bool relu = (in.aux & FloatAux::kRelu) != 0;
  auto one = [&](uint32_t h) -> uint32_t {
    float v = HalfToFloat(static_cast<uint16_t>(h));
    if (relu && v < 0) v = 0;
    return DoubleToSmall(kE4M3 ? kE4M3Format : kE5M2Format, v, SmallRounding::kNearest, true);
  };
  ForEachLane(mask, [&](uint32_t i) { d[i] = one(a[i] >> 16) << 8 | one(a[i] & 0xffff); });
}
template <bool kE4M3>
void ConvertF8ToHalves(Context& c, const Instr& in, uint32_t mask) {
  uint32_t* d = c.Dst<uint32_t>(in.d);
  const uint32_t* a = c.Src<uint32_t>(in.a);
  const bool relu = (in.aux & FloatAux::kRelu) != 0;
  auto one = [&](uint32_t v) -> uint32_t {
    uint32_t h =
        FloatToHalf(static_cast<float>(SmallToDouble(kE4M3 ? kE4M3Format : kE5M2Format, v)));
    if (relu && (h & 0x8000) != 0) h = 0;
    return h;
  };
  ForEachLane(mask, [&](uint32_t i) { d[i] = one(a[i] >> 8 & 0xff) << 16 | one(a[i] & 0xff); });
}

// tf32 is f32 with ten bits of mantissa. Rounds to nearest; ties go away from zero (rna) or to even
// (rn).
void ConvertToTf32(Context& c, const Instr& in, uint32_t mask) {
  uint32_t* d = c.Dst<uint32_t>(in.d);
  const uint32_t* a = c.Src<uint32_t>(in.a);
  const Rounding rounding = static_cast<Rounding>(in.aux & FloatAux::kRoundingMask);
  ForEachLane(mask, [&](uint32_t i) {
    constexpr uint32_t kSign = 0x80000000u, kInfinity = 0x7f800000u, kLargest = 0x7f7fe000u;
    uint32_t v = a[i];
    const uint32_t magnitude = v & ~kSign;
    if (magnitude > kInfinity) {
      d[i] = 0x7fffffffu;  // the canonical NaN
      return;
    }
    if (magnitude != kInfinity) {
      if (rounding == Rounding::kRn) {
        v += 0xfffu + (v >> 13 & 1);
      } else if (rounding != Rounding::kRz) {
        v += 0x1000u;
      }
      v &= ~0x1fffu;
    }
    if ((in.aux & FloatAux::kRelu) != 0 && (v & kSign) != 0) v = 0;
    if ((in.aux & FloatAux::kSatFinite) != 0 && (v & ~kSign) == kInfinity)
      v = (v & kSign) | kLargest;
    d[i] = v;
  });
}

template <class D>
ExecFn FromSource(Type src) {
  switch (src) {
    case Type::kU8:
      return Convert<D, uint8_t>;
    case Type::kU16:
      return Convert<D, uint16_t>;
    case Type::kU32:
      return Convert<D, uint32_t>;
    case Type::kU64:
      return Convert<D, uint64_t>;
    case Type::kS8:
      return Convert<D, int8_t>;
    case Type::kS16:
      return Convert<D, int16_t>;
    case Type::kS32:
      return Convert<D, int32_t>;
    case Type::kS64:
      return Convert<D, int64_t>;
    case Type::kF16:
      return Convert<D, F16>;
    case Type::kBF16:
      return Convert<D, BF16>;
    case Type::kF32:
      return Convert<D, float>;
    case Type::kF64:
      return Convert<D, double>;
    default:
      return nullptr;
  }
}

}  // namespace

void ExecCvtPack(Context& c, const Instr& in, uint32_t mask) {
  uint32_t* d = c.Dst<uint32_t>(in.d);
  const int32_t* a = c.Src<int32_t>(in.a);
  const int32_t* b = c.Src<int32_t>(in.b);
  const uint32_t* rest = in.c == kNoOperand ? nullptr : c.Src<uint32_t>(in.c);
  const bool is_signed = (in.aux & kCvtPackSigned) != 0;
  const uint32_t bits = in.aux & (kCvtPackSigned - 1), field = (1u << bits) - 1;
  const int32_t low = is_signed ? -(1 << (bits - 1)) : 0;
  const int32_t high = low + static_cast<int32_t>(field);
  ForEachLane(mask, [&](uint32_t i) {
    const uint32_t upper = static_cast<uint32_t>(std::clamp(a[i], low, high)) & field;
    const uint32_t lower = static_cast<uint32_t>(std::clamp(b[i], low, high)) & field;
    d[i] = (rest != nullptr ? rest[i] << 2 * bits : 0) | upper << bits | lower;
  });
}

ExecFn SelectConvert(Type dst, Type src) {
  switch (dst) {
    case Type::kU8:
      return FromSource<uint8_t>(src);
    case Type::kU16:
      return FromSource<uint16_t>(src);
    case Type::kU32:
      return FromSource<uint32_t>(src);
    case Type::kU64:
      return FromSource<uint64_t>(src);
    case Type::kS8:
      return FromSource<int8_t>(src);
    case Type::kS16:
      return FromSource<int16_t>(src);
    case Type::kS32:
      return FromSource<int32_t>(src);
    case Type::kS64:
      return FromSource<int64_t>(src);
    case Type::kF16:
      return FromSource<F16>(src);
    case Type::kBF16:
      return FromSource<BF16>(src);
    case Type::kF32:
      return FromSource<float>(src);
    case Type::kF64:
      return FromSource<double>(src);
    case Type::kF16x2:
      if (src == Type::kE4M3x2) return ConvertF8ToHalves<true>;
      if (src == Type::kE5M2x2) return ConvertF8ToHalves<false>;
      return src == Type::kF32 ? ConvertPair<true> : nullptr;
    case Type::kBF16x2:
      return src == Type::kF32 ? ConvertPair<false> : nullptr;
    case Type::kE4M3x2:
      return src == Type::kF32     ? ConvertPairToF8<true>
             : src == Type::kF16x2 ? ConvertHalvesToF8<true>
                                   : nullptr;
    case Type::kE5M2x2:
      return src == Type::kF32     ? ConvertPairToF8<false>
             : src == Type::kF16x2 ? ConvertHalvesToF8<false>
                                   : nullptr;
    case Type::kTF32:
      return src == Type::kF32 ? ConvertToTf32 : nullptr;
    default:
      return nullptr;
  }
}

}  // namespace detshare::soft::ptx
