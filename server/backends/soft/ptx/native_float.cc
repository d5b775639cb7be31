// Floating point, rounded to nearest, and conversions. vector_float.cc and vector_convert.cc say what the
// results are.
#include "server/backends/soft/ptx/native_emitter.h"
#include "server/backends/soft/ptx/native_operands.h"

namespace detshare::soft::ptx {

using namespace asmjit::x86;

// Makes subnormal lanes zeros of the same sign.
void NativeEmitter::Flush(const Zmm& z) {
  a_.vptestnmd(k6, z, DETSHARE_BROADCAST32(exponent));
  a_.k(k6).vpandd(z, z, DETSHARE_BROADCAST32(sign));
}

void NativeEmitter::FixNan(const Zmm& z) {
  a_.vcmpps(k6, z, z, kUnordered);
  a_.k(k6).vpbroadcastd(z, DETSHARE_CONSTANT(nan));
}

void NativeEmitter::FixActiveNan(uint32_t part, const Zmm& z) {
  // For the comparison. The others of k6 are clear then.
  if (some_lanes_) a_.k(part == 0 ? k1 : k3);
  FixNan(z);
}

bool NativeEmitter::EmitFloat(const Instr& in, const Meaning& m) {
  return m.type == Type::kF32 ? EmitFloat32(in, m) : EmitFloat64(in, m);
}

// Computes part `p` of a result from its operands. `direct`: only the active lanes of `to` change.
void NativeEmitter::EmitPart32(VectorOp op, uint32_t p, const Zmm& to,
                               const std::array<Zmm, 3>& from, bool direct) {
  using enum VectorOp;
  const auto& [x, y, z] = from;
  const auto masked = [&]() -> Assembler& { return direct ? Masked(p, 2) : a_; };
  switch (op) {
    case kAdd:
      masked().vaddps(to, x, y);
      break;
    case kSub:
      masked().vsubps(to, x, y);
      break;
    case kMulLo:
      masked().vmulps(to, x, y);
      break;
    case kDiv:
      masked().vdivps(to, x, y);
      break;
    case kSqrt:
      masked().vsqrtps(to, x);
      break;
    case kRcp:
      a_.vbroadcastss(to, DETSHARE_CONSTANT(one));
      a_.vdivps(to, to, x);
      break;
    case kNeg:
      a_.vpxord(to, x, DETSHARE_BROADCAST32(sign));
      break;
    case kAbs:
      a_.vpandd(to, x, DETSHARE_BROADCAST32(magnitude));
      break;
    case kDivApprox:
      a_.vdivps(zmm31, x, y);
      a_.vcmpps(k6, y, DETSHARE_BROADCAST32(two_to_126), 0x1e);
      a_.vcmpps(k7, y, DETSHARE_BROADCAST32(minus_two_to_126), 0x11);
      a_.korw(k6, k6, k7);
      a_.vpandd(zmm30, y, DETSHARE_BROADCAST32(sign));
      a_.k(k6).vmulps(zmm31, x, zmm30);
      break;
    case kFma: {
      const bool same_c = to.id() == z.id(), same_a = to.id() == x.id(), same_b = to.id() == y.id();
      if (same_c) {
        masked().vfmadd231ps(to, x, y);
      } else if (same_a) {
        masked().vfmadd213ps(to, y, z);
      } else if (same_b) {
        masked().vfmadd213ps(to, x, z);
      } else if (direct && !AllLanes()) {
        a_.vmovaps(zmm31, z);
        a_.vfmadd231ps(zmm31, x, y);
        Masked(p, 2).vmovaps(to, zmm31);
      } else {
        a_.vmovaps(to, z);
        a_.vfmadd231ps(to, x, y);
      }
      break;
    }
    default:
      break;
  }
}

bool NativeEmitter::EmitFloat32(const Instr& in, const Meaning& m) {
  using enum VectorOp;
  if (m.op == kMin || m.op == kMax) {
    EmitMinMax(in, m);
    return true;
  }
  if (m.op == kRsqrt) {
    EmitRsqrt(in, m);
    return true;
  }
  const bool three = m.op == kFma;
  const bool two =
      three || m.op == kAdd || m.op == kSub || m.op == kMulLo || m.op == kDiv || m.op == kDivApprox;
  const Parts a = RawSource(in.a, 2), b = two ? RawSource(in.b, 2) : a,
              c = three ? RawSource(in.c, 2) : a;
  const Parts d = Destination(in.d, 2);
  const bool ftz = m.flags.ftz, sat = m.flags.sat;
  // With one instruction for each part, it can write to the destination at once.
  const bool direct = !ftz && !sat && !guarded_ && m.op != kDivApprox && m.op != kRcp &&
                      m.op != kNeg && m.op != kAbs;
  for (uint32_t p = 0; p < 2; ++p) {
    Zmm x = a[p], y = b[p], z = c[p];
    if (ftz) {
      a_.vmovaps(zmm28, x);
      Flush(zmm28);
      x = zmm28;
      if (two) {
        a_.vmovaps(zmm29, y);
        Flush(zmm29);
        y = zmm29;
      }
      if (three) {
        a_.vmovaps(zmm30, z);
        Flush(zmm30);
        z = zmm30;
      }
    }
    const Zmm to = direct ? d[p] : zmm31;
    EmitPart32(m.op, p, to, {x, y, z}, direct);
    if (direct) continue;
    if (sat) {
      // The second operand is the result for a NaN.
      a_.vmaxps(zmm31, zmm31, DETSHARE_BROADCAST32(zero));
      a_.vminps(zmm31, zmm31, DETSHARE_BROADCAST32(one));
    }
    // abs and neg flush only their operand, so their result is flushed already.
    if (ftz) Flush(zmm31);
    if (guarded_) FixNan(zmm31);
    Masked(p, 2).vmovaps(d[p], zmm31);
  }
  if (!guarded_) SetRaw(in.d, true);
  return true;
}

void NativeEmitter::EmitMinMax(const Instr& in, const Meaning& m) {
  const bool max = m.op == VectorOp::kMax;
  const Parts a = RawSource(in.a, 2), b = RawSource(in.b, 2), d = Destination(in.d, 2);
  for (uint32_t p = 0; p < 2; ++p) {
    Zmm x = a[p], y = b[p];
    if (m.flags.ftz) {
      a_.vmovaps(zmm28, x);
      a_.vmovaps(zmm29, y);
      Flush(zmm28);
      Flush(zmm29);
      x = zmm28;
      y = zmm29;
    }
    max ? a_.vmaxps(zmm31, x, y) : a_.vminps(zmm31, x, y);
    // Equal numbers differ only as zeros.
    a_.vcmpps(k6, x, y, 0);
    a_.k(k6);
    max ? a_.vpandd(zmm31, x, y) : a_.vpord(zmm31, x, y);
    a_.vcmpps(k6, x, x, kUnordered);
    a_.k(k6).vmovaps(zmm31, y);
    a_.vcmpps(k7, y, y, kUnordered);
    a_.k(k7).vmovaps(zmm31, x);
    if (m.flags.nan) {
      a_.korw(k6, k6, k7);
      a_.k(k6).vpbroadcastd(zmm31, DETSHARE_CONSTANT(nan));
    }
    if (guarded_) FixNan(zmm31);
    Masked(p, 2).vmovaps(d[p], zmm31);
  }
  if (!guarded_) SetRaw(in.d, true);
}

// The handler rounds 1 / sqrt(a) to f64 twice, and then to f32. An approximation of it that is exact to
// 2^-40 has the same f32, unless it lies near the middle of two.
void NativeEmitter::EmitRsqrt(const Instr& in, const Meaning& m) {
  const Parts a = Source(in.a, 2);
  const std::vector<Cached> old = cache_;
  const Parts d = Destination(in.d, 2);
  // The destination may be the source, which must not change before the last check.
  const Parts result = Allocate(2);
  const Label handler = a_.newLabel();
  constexpr uint32_t kSpecial = 0xdf, kSpecialOrSubnormal = 0xff;
  for (uint32_t p = 0; p < 2; ++p) {
    const KReg to = p == 0 ? k6 : k7;
    if (some_lanes_) a_.k(p == 0 ? k1 : k3);
    a_.vfpclassps(to, a[p], m.flags.ftz ? kSpecialOrSubnormal : kSpecial);
  }
  a_.kortestw(k6, k7);
  a_.jnz(handler);
  for (uint32_t p = 0; p < 2; ++p) {
    for (uint32_t half = 0; half < 2; ++half) {
      const Zmm x = zmm28, y = zmm29, e = zmm30, t = zmm31;
      a_.vcvtps2pd(x, Half(a[p], half, x));
      a_.vrsqrt14pd(y, x);
      a_.vmulpd(x, x, y);
      a_.vmovapd(e, x);
      a_.vfnmadd213pd(e, y, DETSHARE_BROADCAST64(one64));  // 1 - x y y
      a_.vbroadcastsd(t, DETSHARE_CONSTANT(three_eighths64));
      a_.vfmadd213pd(t, e, DETSHARE_BROADCAST64(half64));
      a_.vmulpd(e, e, y);
      a_.vfmadd231pd(y, e, t);
      a_.vpandq(x, y, DETSHARE_BROADCAST64(low29));
      a_.vpsubq(x, x, DETSHARE_BROADCAST64(below_tie));
      if (some_lanes_) {
        const KReg of4[] = {k1, k2, k3, k4};
        a_.k(of4[2 * p + half]);
      }
      a_.vpcmpuq(half == 0 && p == 0 ? k6 : k7, x, DETSHARE_BROADCAST64(around_tie), 1);
      if (half != 0 || p != 0) a_.korw(k6, k6, k7);
      if (half == 0) {
        a_.vcvtpd2ps(result[p].ymm(), y);
      } else {
        a_.vcvtpd2ps(ymm28, y);
        a_.vinserti64x4(result[p], result[p], ymm28, 1);
      }
    }
  }
  a_.kortestw(k6, k6);
  a_.jnz(handler);
  for (uint32_t p = 0; p < 2; ++p) Masked(p, 2).vmovaps(d[p], result[p]);
  for (uint32_t p = 0; p < 2; ++p) free_ |= 1u << result[p].id();
  HandleInstead(instr_, handler, Remaining(old));
}

// Which NaN of two an operation returns, and how its bits change, is left to the handlers.
bool NativeEmitter::EmitFloat64(const Instr& in, const Meaning& m) {
  using enum VectorOp;
  const bool three = m.op == kFma;
  const bool two = three || m.op == kAdd || m.op == kSub || m.op == kMulLo || m.op == kDiv;
  if (!two && m.op != kSqrt && m.op != kRcp && m.op != kNeg && m.op != kAbs) return false;
  const Parts a = Source(in.a, 4), b = two ? Source(in.b, 4) : a, c = three ? Source(in.c, 4) : a;
  const std::vector<Cached> old = cache_;
  const Parts d = Destination(in.d, 4);
  const Zmm to[] = {zmm28, zmm29, zmm30, zmm31};
  for (uint32_t p = 0; p < 4; ++p) {
    switch (m.op) {
      case kAdd:
        a_.vaddpd(to[p], a[p], b[p]);
        break;
      case kSub:
        a_.vsubpd(to[p], a[p], b[p]);
        break;
      case kMulLo:
        a_.vmulpd(to[p], a[p], b[p]);
        break;
      case kDiv:
        a_.vdivpd(to[p], a[p], b[p]);
        break;
      case kFma:
        a_.vmovapd(to[p], c[p]);
        a_.vfmadd231pd(to[p], a[p], b[p]);
        break;
      case kSqrt:
        a_.vsqrtpd(to[p], a[p]);
        break;
      case kRcp:
        a_.vbroadcastsd(to[p], DETSHARE_CONSTANT(one64));
        a_.vdivpd(to[p], to[p], a[p]);
        break;
      case kNeg:
        a_.vpxorq(to[p], a[p], DETSHARE_BROADCAST64(sign64));
        break;
      default:
        a_.vpandq(to[p], a[p], DETSHARE_BROADCAST64(magnitude64));
    }
  }
  // One comparison finds the NaNs of two vectors.
  const Label handler = a_.newLabel();
  a_.vcmppd(k6, to[0], to[1], kUnordered);
  a_.vcmppd(k7, to[2], to[3], kUnordered);
  a_.kortestb(k6, k7);
  a_.jnz(handler);
  for (uint32_t p = 0; p < 4; ++p) Masked(p, 4).vmovapd(d[p], to[p]);
  HandleInstead(instr_, handler, Remaining(old));
  return true;
}

bool NativeEmitter::EmitConvert(const Instr& in, const Meaning& m) {
  using enum VectorOp;
  switch (m.op) {
    case kFromS32:
    case kFromU32:
    case kFromF32:
      if (m.type == Type::kF64) {
        const Parts a = Source(in.a, 2), d = Destination(in.d, 4);
        for (uint32_t p = 0; p < 4; ++p) {
          const Ymm half = Half(a[p / 2], p % 2, zmm28);
          Assembler& s = Masked(p, 4);
          m.op == kFromS32   ? s.vcvtdq2pd(d[p], half)
          : m.op == kFromU32 ? s.vcvtudq2pd(d[p], half)
                             : s.vcvtps2pd(d[p], half);
        }
        return true;
      }
      if (m.type != Type::kF32 || m.op == kFromF32) return false;
      {
        const Parts a = Source(in.a, 2), d = Destination(in.d, 2);
        for (uint32_t p = 0; p < 2; ++p) {
          Assembler& s = Masked(p, 2);
          m.op == kFromS32 ? s.vcvtdq2ps(d[p], a[p]) : s.vcvtudq2ps(d[p], a[p]);
        }
      }
      return true;
    case kFromF64: {
      const Parts a = Source(in.a, 4), d = Destination(in.d, 2);
      for (uint32_t p = 0; p < 2; ++p) {
        a_.vcvtpd2ps(ymm28, a[2 * p]);
        a_.vcvtpd2ps(ymm29, a[2 * p + 1]);
        a_.vinserti64x4(zmm28, zmm28, ymm29, 1);
        Masked(p, 2).vmovaps(d[p], zmm28);
      }
      return true;
    }
    case kToNearest:
    case kToZero:
    case kToLower:
    case kToHigher: {
      const uint32_t rounding = m.op == kToNearest  ? 8
                                : m.op == kToLower  ? 9
                                : m.op == kToHigher ? 10
                                                    : 11;
      const Parts a = RawSource(in.a, 2), d = Destination(in.d, 2);
      for (uint32_t p = 0; p < 2; ++p) {
        a_.vrndscaleps(zmm28, a[p], rounding);
        a_.vcvttps2dq(zmm29, zmm28);  // INT_MIN out of range
        a_.vcmpps(k6, zmm28, DETSHARE_BROADCAST32(two_to_31), 0x1d);
        a_.k(k6).vpbroadcastd(zmm29, DETSHARE_CONSTANT(magnitude));
        a_.vcmpps(k6, zmm28, zmm28, kUnordered);
        a_.k(k6).vpxord(zmm29, zmm29, zmm29);
        Masked(p, 2).vmovdqa32(d[p], zmm29);
      }
      return true;
    }
    default:
      return false;
  }
}

}  // namespace detshare::soft::ptx
