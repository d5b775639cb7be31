// Single and double precision, rounded to nearest.
#include <limits>

// Must follow all other headers.
#include "server/backends/soft/ptx/vector_lanes.h"

namespace detshare::soft::ptx::DETSHARE_VECTOR_ISA {
namespace {

// On NVIDIA hardware every f32 operation returns this NaN.
inline float Canonical(float v) { return v != v ? std::bit_cast<float>(0x7fffffffu) : v; }
inline double Canonical(double v) { return v; }

template <bool kFtz, bool kSat>
inline float Finish(float v) {
  if (kSat) {
    v = v > 0.0f ? v : 0.0f;  // NaN becomes 0
    v = v < 1.0f ? v : 1.0f;
  }
  return Canonical(kFtz ? Flush(v) : v);
}
template <bool kFtz>
inline float Prepare(float v) {
  return kFtz ? Flush(v) : v;
}

template <bool kFtz, bool kSat>
struct OpFAdd {
  static float Do(float a, float b) {
    return Finish<kFtz, kSat>(Prepare<kFtz>(a) + Prepare<kFtz>(b));
  }
};
template <bool kFtz, bool kSat>
struct OpFSub {
  static float Do(float a, float b) {
    return Finish<kFtz, kSat>(Prepare<kFtz>(a) - Prepare<kFtz>(b));
  }
};
template <bool kFtz, bool kSat>
struct OpFMul {
  static float Do(float a, float b) {
    return Finish<kFtz, kSat>(Prepare<kFtz>(a) * Prepare<kFtz>(b));
  }
};
template <bool kFtz, bool kSat>
struct OpFFma {
  static float Do(float a, float b, float e) {
    return Finish<kFtz, kSat>(__builtin_fmaf(Prepare<kFtz>(a), Prepare<kFtz>(b), Prepare<kFtz>(e)));
  }
};
template <bool kFtz>
struct OpFDiv {
  static float Do(float a, float b) {
    return Finish<kFtz, false>(Prepare<kFtz>(a) / Prepare<kFtz>(b));
  }
};
// The hardware multiplies with the reciprocal. That of a divisor above 2^126 is subnormal, and
// becomes zero.
template <bool kFtz>
struct OpFDivApprox {
  static float Do(float a, float b) {
    const float x = Prepare<kFtz>(a), y = Prepare<kFtz>(b);
    const float zero = std::bit_cast<float>(std::bit_cast<uint32_t>(y) & 0x80000000u);
    const bool large = y > 0x1p126f || y < -0x1p126f;
    return Finish<kFtz, false>(large ? x * zero : x / y);
  }
};
template <bool kFtz>
struct OpFSqrt {
  static float Do(float a) { return Finish<kFtz, false>(__builtin_sqrtf(Prepare<kFtz>(a))); }
};
template <bool kFtz>
struct OpFRcp {
  static float Do(float a) { return Finish<kFtz, false>(1.0f / Prepare<kFtz>(a)); }
};
template <bool kFtz>
struct OpFRsqrt {
  static float Do(float a) {
    return Finish<kFtz, false>(
        static_cast<float>(1.0 / __builtin_sqrt(static_cast<double>(Prepare<kFtz>(a)))));
  }
};
struct OpDAdd {
  static double Do(double a, double b) { return a + b; }
};
struct OpDSub {
  static double Do(double a, double b) { return a - b; }
};
struct OpDMul {
  static double Do(double a, double b) { return a * b; }
};
struct OpDDiv {
  static double Do(double a, double b) { return a / b; }
};
struct OpDSqrt {
  static double Do(double a) { return __builtin_sqrt(a); }
};
struct OpDRcp {
  static double Do(double a) { return 1.0 / a; }
};
struct OpDRsqrt {
  static double Do(double a) { return 1.0 / __builtin_sqrt(a); }
};
// rcp.approx.ftz.f64 and rsqrt.approx.ftz.f64 read and write only the upper halves of doubles.
constexpr uint64_t kUpperHalf = 0xffffffff00000000u;
inline double Upper(double v) {
  const uint64_t bits = std::bit_cast<uint64_t>(v) & kUpperHalf;
  // A subnormal value becomes zero.
  return std::bit_cast<double>(bits >> 52 & 0x7ff ? bits : bits & uint64_t{1} << 63);
}
inline double CanonicalUpper(double v) {
  return v != v ? std::bit_cast<double>(0x7fffffff00000000u) : v;
}
struct OpDRcpFtz {
  // A NaN may have all its bits in the lower half.
  static double Do(double a) { return CanonicalUpper(a != a ? a : Upper(1.0 / Upper(a))); }
};
struct OpDRsqrtFtz {
  // With a result above the exact one, CUDA's code of hypot(1, DBL_MAX) would be infinite, and CUDA
  // promises no overflow in between. So this is the greatest result below that of every double with
  // the input's upper half. It is not compared with hardware.
  static double Do(double a) {
    const double x = Upper(a);
    const double next = std::bit_cast<double>(std::bit_cast<uint64_t>(x) + (uint64_t{1} << 32));
    const double limit =
        next > std::numeric_limits<double>::max() ? 0x1p-512 : 1.0 / __builtin_sqrt(next);
    const double below = std::bit_cast<double>((std::bit_cast<uint64_t>(limit) - 1) & kUpperHalf);
    const bool ordinary = x > 0 && x <= std::numeric_limits<double>::max();
    const double special = x == 0 ? 1.0 / x : 1.0 / __builtin_sqrt(x);
    return CanonicalUpper(a != a ? a : ordinary ? below : special);
  }
};
struct OpDFma {
  static double Do(double a, double b, double e) { return __builtin_fma(a, b, e); }
};

template <bool kFtz>
struct OpFAbs {
  static float Do(float a) {
    return Canonical(std::bit_cast<float>(std::bit_cast<uint32_t>(Prepare<kFtz>(a)) & 0x7fffffffu));
  }
};
template <bool kFtz>
struct OpFNeg {
  static float Do(float a) {
    return Canonical(std::bit_cast<float>(std::bit_cast<uint32_t>(Prepare<kFtz>(a)) ^ 0x80000000u));
  }
};
// A NaN keeps its sign and becomes quiet.
inline double QuietOr(double a, double otherwise) { return a != a ? a + a : otherwise; }
struct OpDAbs {
  static double Do(double a) {
    return QuietOr(a, std::bit_cast<double>(std::bit_cast<uint64_t>(a) & ~(uint64_t{1} << 63)));
  }
};
struct OpDNeg {
  static double Do(double a) {
    return QuietOr(a, std::bit_cast<double>(std::bit_cast<uint64_t>(a) ^ (uint64_t{1} << 63)));
  }
};

// -0 is less than +0. The result of a NaN and a number is the number, with kNan a NaN.
template <bool kMax, bool kFtz, bool kNan>
struct OpFMinMax {
  static float Do(float a, float b) {
    a = Prepare<kFtz>(a);
    b = Prepare<kFtz>(b);
    const int32_t ia = std::bit_cast<int32_t>(a), ib = std::bit_cast<int32_t>(b);
    // +0 and -0 are equal as floats; as integers, -0 is the smaller.
    const bool take_a = kMax ? (a > b || (a == b && ia >= ib)) : (a < b || (a == b && ia <= ib));
    float r = take_a ? a : b;
    r = a != a ? b : r;
    r = b != b ? a : r;
    if (kNan) r = (a != a || b != b) ? std::bit_cast<float>(0x7fffffffu) : r;
    return Canonical(r);
  }
};
template <bool kMax>
struct OpDMinMax {
  static double Do(double a, double b) {
    const int64_t ia = std::bit_cast<int64_t>(a), ib = std::bit_cast<int64_t>(b);
    const bool take_a = kMax ? (a > b || (a == b && ia >= ib)) : (a < b || (a == b && ia <= ib));
    double r = take_a ? a : b;
    r = a != a ? b : r;
    r = b != b ? a : r;
    return r;
  }
};
struct OpCopysign32 {  // the sign of a on b
  static uint32_t Do(uint32_t a, uint32_t b) { return (a & 0x80000000u) | (b & 0x7fffffffu); }
};
struct OpCopysign64 {
  static uint64_t Do(uint64_t a, uint64_t b) {
    return (a & (uint64_t{1} << 63)) | (b & ~(uint64_t{1} << 63));
  }
};

// imm: 0 finite, 1 infinite, 2 number, 3 notanumber, 4 normal (also zero, on hardware), 5 subnormal
template <class T>
void Testp(Context& c, const Instr& in, uint32_t mask) {
  const Lane<T>* a = c.Src<Lane<T>>(in.a);
  constexpr T kSmallest = std::numeric_limits<T>::min();
  constexpr T kInfinity = std::numeric_limits<T>::infinity();
  const uint32_t result = CollectLanes(mask, [=](uint32_t i) {
    const T v = Get<T>(a[i]);
    const T m = v < 0 ? -v : v;
    switch (in.imm) {
      case 0:
        return m < kInfinity;
      case 1:
        return m == kInfinity;
      case 2:
        return v == v;
      case 3:
        return v != v;
      case 4:
        return m < kInfinity && (m >= kSmallest || m == 0);
      default:
        return m > 0 && m < kSmallest;
    }
  });
  c.SetPred(in.d, result, mask);
}

// --- selection of handlers ---

// PTX has no .sat for these.
template <template <bool> class Op>
ExecFn SelectFloat1(VectorFlags f) {
  if (f.sat) return nullptr;
  return f.ftz ? Map1<float, float, Op<true>> : Map1<float, float, Op<false>>;
}
template <template <bool, bool> class Op>
ExecFn SelectFloat2(VectorFlags f) {
  if (f.ftz)
    return f.sat ? Map2<float, float, float, Op<true, true>>
                 : Map2<float, float, float, Op<true, false>>;
  return f.sat ? Map2<float, float, float, Op<false, true>>
               : Map2<float, float, float, Op<false, false>>;
}
template <bool kMax>
ExecFn SelectFloatMinMax(VectorFlags f) {
  if (f.ftz) {
    return f.nan ? Map2<float, float, float, OpFMinMax<kMax, true, true>>
                 : Map2<float, float, float, OpFMinMax<kMax, true, false>>;
  }
  return f.nan ? Map2<float, float, float, OpFMinMax<kMax, false, true>>
               : Map2<float, float, float, OpFMinMax<kMax, false, false>>;
}
ExecFn SelectFloat32(VectorOp op, VectorFlags f) {
  switch (op) {
    case VectorOp::kAdd:
      return SelectFloat2<OpFAdd>(f);
    case VectorOp::kSub:
      return SelectFloat2<OpFSub>(f);
    case VectorOp::kMulLo:
      return SelectFloat2<OpFMul>(f);
    case VectorOp::kDiv:
      if (f.sat) return nullptr;
      return f.ftz ? Map2<float, float, float, OpFDiv<true>>
                   : Map2<float, float, float, OpFDiv<false>>;
    case VectorOp::kDivApprox:
      if (f.sat) return nullptr;
      return f.ftz ? Map2<float, float, float, OpFDivApprox<true>>
                   : Map2<float, float, float, OpFDivApprox<false>>;
    case VectorOp::kSqrt:
      return SelectFloat1<OpFSqrt>(f);
    case VectorOp::kRcp:
      return SelectFloat1<OpFRcp>(f);
    case VectorOp::kRsqrt:
      return SelectFloat1<OpFRsqrt>(f);
    case VectorOp::kFma:
      if (f.ftz) {
        return f.sat ? Map3<float, float, float, float, OpFFma<true, true>>
                     : Map3<float, float, float, float, OpFFma<true, false>>;
      }
      return f.sat ? Map3<float, float, float, float, OpFFma<false, true>>
                   : Map3<float, float, float, float, OpFFma<false, false>>;
    case VectorOp::kAbs:
      return f.ftz ? Map1<float, float, OpFAbs<true>> : Map1<float, float, OpFAbs<false>>;
    case VectorOp::kNeg:
      return f.ftz ? Map1<float, float, OpFNeg<true>> : Map1<float, float, OpFNeg<false>>;
    case VectorOp::kMin:
      return SelectFloatMinMax<false>(f);
    case VectorOp::kMax:
      return SelectFloatMinMax<true>(f);
    case VectorOp::kCopysign:
      return Map2<uint32_t, uint32_t, uint32_t, OpCopysign32>;
    case VectorOp::kTestp:
      return Testp<float>;
    default:
      return nullptr;
  }
}
ExecFn SelectFloat64(VectorOp op, VectorFlags f) {
  switch (op) {
    case VectorOp::kAdd:
      return Map2<double, double, double, OpDAdd>;
    case VectorOp::kSub:
      return Map2<double, double, double, OpDSub>;
    case VectorOp::kMulLo:
      return Map2<double, double, double, OpDMul>;
    case VectorOp::kDiv:
      return Map2<double, double, double, OpDDiv>;
    case VectorOp::kSqrt:
      return Map1<double, double, OpDSqrt>;
    case VectorOp::kRcp:
      return f.ftz ? Map1<double, double, OpDRcpFtz> : Map1<double, double, OpDRcp>;
    case VectorOp::kRsqrt:
      return f.ftz ? Map1<double, double, OpDRsqrtFtz> : Map1<double, double, OpDRsqrt>;
    case VectorOp::kFma:
      return Map3<double, double, double, double, OpDFma>;
    case VectorOp::kAbs:
      return Map1<double, double, OpDAbs>;
    case VectorOp::kNeg:
      return Map1<double, double, OpDNeg>;
    case VectorOp::kMin:
      return Map2<double, double, double, OpDMinMax<false>>;
    case VectorOp::kMax:
      return Map2<double, double, double, OpDMinMax<true>>;
    case VectorOp::kCopysign:
      return Map2<uint64_t, uint64_t, uint64_t, OpCopysign64>;
    case VectorOp::kTestp:
      return Testp<double>;
    default:
      return nullptr;
  }
}

}  // namespace

ExecFn SelectFloat(VectorOp op, Type t, VectorFlags f) {
  return t == Type::kF32 ? SelectFloat32(op, f) : SelectFloat64(op, f);
}

}  // namespace detshare::soft::ptx::DETSHARE_VECTOR_ISA
