// The usual conversions between numbers.
#include <limits>

// Must follow all other headers.
#include "server/backends/soft/ptx/vector_half.h"

namespace detshare::soft::ptx::DETSHARE_VECTOR_ISA {
namespace {

template <class D>
struct OpCast {
  template <class S>
  static D Do(S v) {
    return static_cast<D>(v);
  }
};
struct OpFromF16 {
  static float Do(uint32_t half) {
    const float v = FromF16(half & 0xffff);
    return v != v ? std::bit_cast<float>(0x7fffffffu) : v;  // the hardware's NaN
  }
};
struct OpFromBF16 {  // a NaN keeps its payload
  static float Do(uint32_t half) { return FromBF16(half & 0xffff); }
};
struct OpToF16 {
  static uint32_t Do(float v) { return ToF16(static_cast<double>(v)); }
};

struct Nearest {
  static float Round(float v) { return __builtin_nearbyintf(v); }
};
struct TowardZero {
  static float Round(float v) { return __builtin_truncf(v); }
};
struct Lower {
  static float Round(float v) { return __builtin_floorf(v); }
};
struct Higher {
  static float Round(float v) { return __builtin_ceilf(v); }
};
// Numbers out of range become the nearest integer, and a NaN becomes 0.
template <class Rounding>
struct OpToS32 {
  static int32_t Do(float v) {
    constexpr float kEnd = 0x1p31f;
    const float rounded = Rounding::Round(v);
    const int32_t number =
        static_cast<int32_t>(rounded >= -kEnd && rounded < kEnd ? rounded : 0.0f);
    return rounded >= kEnd   ? std::numeric_limits<int32_t>::max()
           : rounded < -kEnd ? std::numeric_limits<int32_t>::min()
                             : number;
  }
};

// As ConvertToTf32 (exec_convert.cc) with rna.
struct OpToTf32 {
  static uint32_t Do(uint32_t v) {
    const uint32_t magnitude = v & 0x7fffffffu;
    const uint32_t rounded = (v + (magnitude < 0x7f800000u ? 0x1000u : 0u)) & ~0x1fffu;
    return magnitude > 0x7f800000u ? 0x7fffffffu : rounded;
  }
};

ExecFn SelectToFloat(VectorOp op) {
  switch (op) {
    case VectorOp::kFromS32:
      return Map1<float, int32_t, OpCast<float>>;
    case VectorOp::kFromU32:
      return Map1<float, uint32_t, OpCast<float>>;
    case VectorOp::kFromF64:
      return Map1<float, double, OpCast<float>>;
    case VectorOp::kFromF16:
      return Map1<float, uint32_t, OpFromF16>;
    case VectorOp::kFromBF16:
      return Map1<float, uint32_t, OpFromBF16>;
    default:
      return nullptr;
  }
}
ExecFn SelectToDouble(VectorOp op) {
  switch (op) {
    case VectorOp::kFromS32:
      return Map1<double, int32_t, OpCast<double>>;
    case VectorOp::kFromU32:
      return Map1<double, uint32_t, OpCast<double>>;
    case VectorOp::kFromF32:
      return Map1<double, float, OpCast<double>>;
    default:
      return nullptr;
  }
}
ExecFn SelectToS32(VectorOp op) {
  switch (op) {
    case VectorOp::kToNearest:
      return Map1<int32_t, float, OpToS32<Nearest>>;
    case VectorOp::kToZero:
      return Map1<int32_t, float, OpToS32<TowardZero>>;
    case VectorOp::kToLower:
      return Map1<int32_t, float, OpToS32<Lower>>;
    case VectorOp::kToHigher:
      return Map1<int32_t, float, OpToS32<Higher>>;
    default:
      return nullptr;
  }
}

}  // namespace

ExecFn SelectConvert(VectorOp op, Type t) {
  switch (t) {
    case Type::kF32:
      return SelectToFloat(op);
    case Type::kF64:
      return SelectToDouble(op);
    case Type::kS32:
      return SelectToS32(op);
    case Type::kF16:
      return op == VectorOp::kFromF32 ? Map1<uint32_t, float, OpToF16> : nullptr;
    case Type::kTF32:
      return op == VectorOp::kToNearestAway ? Map1<uint32_t, uint32_t, OpToTf32> : nullptr;
    default:
      return nullptr;
  }
}

}  // namespace detshare::soft::ptx::DETSHARE_VECTOR_ISA
