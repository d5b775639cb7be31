// Moves, integers, logic and predicates.
#include "server/backends/soft/ptx/control_ops.h"
#include "server/backends/soft/ptx/native_emitter.h"
#include "server/backends/soft/ptx/native_operands.h"

namespace detshare::soft::ptx {

using namespace asmjit::x86;

namespace {

bool IsWide(Type t) { return SizeOf(t) == 8; }

// The predicate of vpcmp for a comparison of integers.
uint32_t IntegerRelation(Compare compare) {
  switch (compare) {
    case Compare::kEq:
      return 0;
    case Compare::kNe:
      return 4;
    case Compare::kLt:
      return 1;
    case Compare::kLe:
      return 2;
    case Compare::kGt:
      return 6;
    default:
      return 5;
  }
}

// The predicate of vcmpps: quiet, and true for a NaN only where PTX says so.
uint32_t FloatRelation(Compare compare) {
  switch (compare) {
    case Compare::kEq:
      return 0x00;
    case Compare::kNe:
      return 0x0c;
    case Compare::kLt:
      return 0x11;
    case Compare::kLe:
      return 0x12;
    case Compare::kGt:
      return 0x1e;
    case Compare::kGe:
      return 0x1d;
    case Compare::kEqu:
      return 0x08;
    case Compare::kNeu:
      return 0x04;
    case Compare::kLtu:
      return 0x19;
    case Compare::kLeu:
      return 0x1a;
    case Compare::kGtu:
      return 0x16;
    case Compare::kGeu:
      return 0x15;
    case Compare::kNum:
      return 0x07;
    case Compare::kNan:
      return 0x03;
  }
  return 0;
}

}  // namespace

bool NativeEmitter::EmitVector(const Instr& in, const Meaning& m) {
  if (m.op == VectorOp::kSetp) {
    EmitSetp(in, m);
    return true;
  }
  return EmitPredicate(in, m) || EmitMove(in, m) || EmitConvert(in, m) ||
         (m.type == Type::kF32 || m.type == Type::kF64
              ? EmitFloat(in, m)
              : EmitInteger(in, m) || EmitProduct(in, m) || EmitShift(in, m));
}

// --- moves ---

bool NativeEmitter::EmitMove(const Instr& in, const Meaning& m) {
  const uint32_t count = IsWide(m.type) ? 4 : 2;
  switch (m.op) {
    case VectorOp::kMov: {
      Cached* from = Find(in.a);
      const bool raw = from != nullptr && from->raw && !guarded_;
      const Parts a = raw ? RawSource(in.a, count) : Source(in.a, count);
      const Parts d = Destination(in.d, count);
      for (uint32_t p = 0; p < count; ++p) {
        if (d[p].id() == a[p].id()) continue;
        Assembler& s = Masked(p, count);
        count == 4 ? s.vmovdqa64(d[p], a[p]) : s.vmovdqa32(d[p], a[p]);
      }
      if (raw) SetRaw(in.d, true);
      return true;
    }
    case VectorOp::kSelp:
      if (m.type == Type::kPred) return false;
      EmitSelect(in, m);
      return true;
    default:
      return EmitWidth(in, m);
  }
}

void NativeEmitter::EmitSelect(const Instr& in, const Meaning& m) {
  const bool wide = IsWide(m.type);
  const uint32_t count = wide ? 4 : 2;
  const Parts a = Source(in.a, count), b = Source(in.b, count);
  const Parts d = Destination(in.d, count);
  LoadPredicate(eax, in.c);
  for (uint32_t p = 0; p < count; ++p) {
    a_.kmovd(k6, eax);
    if (p + 1 < count) a_.shr(eax, kLanes / count);
    const Zmm to = AllLanes() ? d[p] : zmm28;
    a_.k(k6);
    if (wide) {
      a_.vpblendmq(to, b[p], a[p]);
      if (!AllLanes()) Masked(p, count).vmovdqa64(d[p], to);
    } else {
      a_.vpblendmd(to, b[p], a[p]);
      if (!AllLanes()) Masked(p, count).vmovdqa32(d[p], to);
    }
  }
}

Ymm NativeEmitter::Half(const Zmm& z, uint32_t half, const Zmm& temporary) {
  if (half == 0) return z.ymm();
  a_.vextracti64x4(temporary.ymm(), z, 1);
  return temporary.ymm();
}

void NativeEmitter::Narrow(const Zmm& low, const Zmm& high) {
  a_.vpmovqd(ymm28, low);
  a_.vpmovqd(ymm29, high);
  a_.vinserti64x4(zmm28, zmm28, ymm29, 1);
}

bool NativeEmitter::EmitWidth(const Instr& in, const Meaning& m) {
  switch (m.op) {
    case VectorOp::kZext32To64:
    case VectorOp::kSext32To64: {
      const Parts a = Source(in.a, 2), d = Destination(in.d, 4);
      for (uint32_t p = 0; p < 4; ++p) {
        const Ymm half = Half(a[p / 2], p % 2, zmm28);
        if (m.op == VectorOp::kZext32To64) {
          Masked(p, 4).vpmovzxdq(d[p], half);
        } else {
          Masked(p, 4).vpmovsxdq(d[p], half);
        }
      }
      return true;
    }
    case VectorOp::kTrunc64To32: {
      const Parts a = Source(in.a, 4), d = Destination(in.d, 2);
      for (uint32_t p = 0; p < 2; ++p) {
        Narrow(a[2 * p], a[2 * p + 1]);
        Masked(p, 2).vmovdqa32(d[p], zmm28);
      }
      return true;
    }
    case VectorOp::kPack2x32: {
      const int32_t* parts = function_.extras.data() + in.extra;
      const Parts low = Source(parts[0], 2), high = Source(parts[1], 2);
      const Parts d = Destination(in.d, 4);
      for (uint32_t p = 0; p < 4; ++p) {
        a_.vpmovzxdq(zmm29, Half(high[p / 2], p % 2, zmm29));
        a_.vpsllq(zmm29, zmm29, 32);
        a_.vpmovzxdq(zmm28, Half(low[p / 2], p % 2, zmm28));
        Masked(p, 4).vporq(d[p], zmm28, zmm29);
      }
      return true;
    }
    case VectorOp::kUnpack2x32: {
      const int32_t* parts = function_.extras.data() + in.extra;
      const Parts a = Source(in.a, 4);
      for (uint32_t k = 0; k < 2; ++k) {
        if (parts[k] == kNoOperand) continue;
        const Parts d = Destination(parts[k], 2);
        for (uint32_t p = 0; p < 2; ++p) {
          const int shift = k == 0 ? 0 : 32;
          a_.vpsrlq(zmm28, a[2 * p], shift);
          a_.vpsrlq(zmm29, a[2 * p + 1], shift);
          Narrow(zmm28, zmm29);
          Masked(p, 2).vmovdqa32(d[p], zmm28);
        }
      }
      return true;
    }
    default:
      return false;
  }
}

bool NativeEmitter::EmitSpecialRegister(const Instr& in) {
  const Sreg sreg = static_cast<Sreg>(in.aux);
  const auto in_group = [&](Sreg x, Sreg z) { return sreg >= x && sreg <= z; };
  const auto index = [&](Sreg x) { return static_cast<int32_t>(sreg) - static_cast<int32_t>(x); };
  Mem value;
  bool uniform = true;
  if (in_group(Sreg::kNtidX, Sreg::kNtidZ)) {
    a_.mov(rax, DETSHARE_CONTEXT(block_size));
    value = dword_ptr(rax, 4 * index(Sreg::kNtidX));
  } else if (in_group(Sreg::kCtaidX, Sreg::kCtaidZ)) {
    a_.mov(rax, DETSHARE_CONTEXT(block_id));
    value = dword_ptr(rax, 4 * index(Sreg::kCtaidX));
  } else if (in_group(Sreg::kNctaidX, Sreg::kNctaidZ)) {
    a_.mov(rax, DETSHARE_CONTEXT(grid_size));
    value = dword_ptr(rax, 4 * index(Sreg::kNctaidX));
  } else if (in_group(Sreg::kTidX, Sreg::kTidZ)) {
    a_.mov(rax, DETSHARE_CONTEXT(thread_index));
    value = zmmword_ptr(rax, static_cast<int32_t>(4 * kLanes) * index(Sreg::kTidX));
    uniform = false;
  } else if (sreg == Sreg::kLaneid) {
    value = DETSHARE_CONSTANT(steps32);
    uniform = false;
  } else {
    return false;
  }
  const Parts d = Destination(in.d, 2);
  for (uint32_t p = 0; p < 2; ++p) {
    Assembler& s = Masked(p, 2);
    uniform ? s.vpbroadcastd(d[p], value) : s.vmovdqu32(d[p], value.cloneAdjusted(64 * p));
  }
  return true;
}

// d = a + value * kSharedWindow
void NativeEmitter::EmitConstant64(const Instr& in, int64_t value) {
  const Parts a = Source(in.a, 4), d = Destination(in.d, 4);
  const Mem window = DETSHARE_BROADCAST64(shared_window);
  for (uint32_t p = 0; p < 4; ++p) {
    if (value > 0) {
      Masked(p, 4).vpaddq(d[p], a[p], window);
    } else {
      Masked(p, 4).vpsubq(d[p], a[p], window);
    }
  }
}

// --- integers ---

bool NativeEmitter::EmitInteger(const Instr& in, const Meaning& m) {
  using enum VectorOp;
  const bool wide = IsWide(m.type), is_signed = IsSigned(m.type);
  const uint32_t count = wide ? 4 : 2;
  const bool one = m.op == kNot || m.op == kNeg || m.op == kAbs;
  switch (m.op) {
    case kAdd:
    case kSub:
    case kAnd:
    case kOr:
    case kXor:
    case kNot:
    case kNeg:
    case kAbs:
    case kMin:
    case kMax:
      break;
    default:
      return false;
  }
  const Parts a = Source(in.a, count), b = one ? a : Source(in.b, count);
  const Parts d = Destination(in.d, count);
  if (m.op == kNeg) a_.vpxord(zmm28, zmm28, zmm28);
  for (uint32_t p = 0; p < count; ++p) {
    Assembler& s = Masked(p, count);
    switch (m.op) {
      case kAdd:
        wide ? s.vpaddq(d[p], a[p], b[p]) : s.vpaddd(d[p], a[p], b[p]);
        break;
      case kSub:
        wide ? s.vpsubq(d[p], a[p], b[p]) : s.vpsubd(d[p], a[p], b[p]);
        break;
      case kAnd:
        wide ? s.vpandq(d[p], a[p], b[p]) : s.vpandd(d[p], a[p], b[p]);
        break;
      case kOr:
        wide ? s.vporq(d[p], a[p], b[p]) : s.vpord(d[p], a[p], b[p]);
        break;
      case kXor:
        wide ? s.vpxorq(d[p], a[p], b[p]) : s.vpxord(d[p], a[p], b[p]);
        break;
      case kNot:
        wide ? s.vpxorq(d[p], a[p], DETSHARE_BROADCAST64(ones))
             : s.vpxord(d[p], a[p], DETSHARE_BROADCAST32(ones));
        break;
      case kNeg:
        wide ? s.vpsubq(d[p], zmm28, a[p]) : s.vpsubd(d[p], zmm28, a[p]);
        break;
      case kAbs:
        wide ? s.vpabsq(d[p], a[p]) : s.vpabsd(d[p], a[p]);
        break;
      case kMin:
        if (is_signed) {
          wide ? s.vpminsq(d[p], a[p], b[p]) : s.vpminsd(d[p], a[p], b[p]);
        } else {
          wide ? s.vpminuq(d[p], a[p], b[p]) : s.vpminud(d[p], a[p], b[p]);
        }
        break;
      default:
        if (is_signed) {
          wide ? s.vpmaxsq(d[p], a[p], b[p]) : s.vpmaxsd(d[p], a[p], b[p]);
        } else {
          wide ? s.vpmaxuq(d[p], a[p], b[p]) : s.vpmaxud(d[p], a[p], b[p]);
        }
    }
  }
  return true;
}

bool NativeEmitter::EmitProduct(const Instr& in, const Meaning& m) {
  using enum VectorOp;
  const bool wide = IsWide(m.type), is_signed = IsSigned(m.type);
  const uint32_t count = wide ? 4 : 2;
  switch (m.op) {
    case kMulLo:
    case kMadLo: {
      const Parts a = Source(in.a, count), b = Source(in.b, count);
      const Parts c = m.op == kMadLo ? Source(in.c, count) : a;
      const Parts d = Destination(in.d, count);
      for (uint32_t p = 0; p < count; ++p) {
        if (m.op == kMulLo) {
          wide ? Masked(p, count).vpmullq(d[p], a[p], b[p])
               : Masked(p, count).vpmulld(d[p], a[p], b[p]);
          continue;
        }
        wide ? a_.vpmullq(zmm28, a[p], b[p]) : a_.vpmulld(zmm28, a[p], b[p]);
        wide ? Masked(p, count).vpaddq(d[p], zmm28, c[p])
             : Masked(p, count).vpaddd(d[p], zmm28, c[p]);
      }
      return true;
    }
    case kMulWide:
    case kMadWide: {
      const Parts a = Source(in.a, 2), b = Source(in.b, 2);
      const Parts c = m.op == kMadWide ? Source(in.c, 4) : a;
      const Parts d = Destination(in.d, 4);
      for (uint32_t p = 0; p < 4; ++p) {
        const Ymm x = Half(a[p / 2], p % 2, zmm28);
        // The factors are the lower halves of 64-bit lanes, whatever the upper halves are.
        a_.vpmovzxdq(zmm28, x);
        const Ymm y = Half(b[p / 2], p % 2, zmm29);
        a_.vpmovzxdq(zmm29, y);
        if (m.op == kMadWide) {
          is_signed ? a_.vpmuldq(zmm28, zmm28, zmm29) : a_.vpmuludq(zmm28, zmm28, zmm29);
          Masked(p, 4).vpaddq(d[p], zmm28, c[p]);
        } else {
          Assembler& s = Masked(p, 4);
          is_signed ? s.vpmuldq(d[p], zmm28, zmm29) : s.vpmuludq(d[p], zmm28, zmm29);
        }
      }
      return true;
    }
    case kMulHi: {
      const Parts a = Source(in.a, 2), b = Source(in.b, 2), d = Destination(in.d, 2);
      a_.mov(eax, 0xaaaa);
      a_.kmovd(k6, eax);
      for (uint32_t p = 0; p < 2; ++p) {
        a_.vpsrlq(zmm29, a[p], 32);
        a_.vpsrlq(zmm30, b[p], 32);
        is_signed ? a_.vpmuldq(zmm28, a[p], b[p]) : a_.vpmuludq(zmm28, a[p], b[p]);
        is_signed ? a_.vpmuldq(zmm29, zmm29, zmm30) : a_.vpmuludq(zmm29, zmm29, zmm30);
        a_.vpsrlq(zmm28, zmm28, 32);
        a_.k(k6).vmovdqa32(zmm28, zmm29);
        Masked(p, 2).vmovdqa32(d[p], zmm28);
      }
      return true;
    }
    default:
      return false;
  }
}

bool NativeEmitter::EmitShift(const Instr& in, const Meaning& m) {
  using enum VectorOp;
  const bool wide = IsWide(m.type);
  const uint32_t count = wide ? 4 : 2;
  switch (m.op) {
    case kShl:
    case kShr: {
      // Counts of at least the width shift everything out, as the vector instructions do it.
      const Parts a = Source(in.a, count), n = Source(in.b, 2), d = Destination(in.d, count);
      for (uint32_t p = 0; p < count; ++p) {
        Zmm by = n[wide ? p / 2 : p];
        if (wide) {
          a_.vpmovzxdq(zmm28, Half(by, p % 2, zmm28));
          by = zmm28;
        }
        Assembler& s = Masked(p, count);
        if (m.op == kShl) {
          wide ? s.vpsllvq(d[p], a[p], by) : s.vpsllvd(d[p], a[p], by);
        } else if (IsSigned(m.type)) {
          wide ? s.vpsravq(d[p], a[p], by) : s.vpsravd(d[p], a[p], by);
        } else {
          wide ? s.vpsrlvq(d[p], a[p], by) : s.vpsrlvd(d[p], a[p], by);
        }
      }
      return true;
    }
    case kShfL:
    case kShfR: {
      if (m.flags.clamp) return false;
      const Parts a = Source(in.a, 2), b = Source(in.b, 2), n = Source(in.c, 2);
      const Parts d = Destination(in.d, 2);
      const bool left = m.op == kShfL;
      for (uint32_t p = 0; p < 2; ++p) {
        if (in.a == in.b) {  // a rotation
          Assembler& s = Masked(p, 2);
          left ? s.vprolvd(d[p], a[p], n[p]) : s.vprorvd(d[p], a[p], n[p]);
          continue;
        }
        const Mem shift = DETSHARE_BROADCAST32(shift_mask);
        a_.vpandd(zmm28, n[p], shift);   // n & 31
        a_.vpandnd(zmm29, n[p], shift);  // 31 - (n & 31)
        if (left) {
          a_.vpsrld(zmm30, a[p], 1);
          a_.vpsrlvd(zmm30, zmm30, zmm29);
          a_.vpsllvd(zmm28, b[p], zmm28);
        } else {
          a_.vpslld(zmm30, b[p], 1);
          a_.vpsllvd(zmm30, zmm30, zmm29);
          a_.vpsrlvd(zmm28, a[p], zmm28);
        }
        Masked(p, 2).vpord(d[p], zmm28, zmm30);
      }
      return true;
    }
    case kLop3: {
      const Parts a = Source(in.a, 2), b = Source(in.b, 2), c = Source(in.c, 2);
      const Parts d = Destination(in.d, 2);
      for (uint32_t p = 0; p < 2; ++p) {
        a_.vmovdqa32(zmm28, a[p]);
        a_.vpternlogd(zmm28, b[p], c[p], static_cast<uint8_t>(in.imm));
        Masked(p, 2).vmovdqa32(d[p], zmm28);
      }
      return true;
    }
    default:
      return false;
  }
}

// --- predicates ---

void NativeEmitter::LoadPredicate(Gp to, int32_t operand) {
  a_.mov(to, dword_ptr(operand < 0 ? r13 : r12, operand & 0x7fffffff));
}

// Writes the active lanes. Changes `value`.
void NativeEmitter::SetPredicate(int32_t operand, Gp value) {
  const Mem place = dword_ptr(r12, operand);
  if (!AllLanes()) {
    a_.xor_(value, place);
    a_.and_(value, guarded_ ? edi : r15d);
    a_.xor_(value, place);
  }
  a_.mov(place, value);
}

bool NativeEmitter::EmitPredicate(const Instr& in, const Meaning& m) {
  using enum VectorOp;
  if (m.type != Type::kPred) return false;
  LoadPredicate(eax, in.a);
  switch (m.op) {
    case kPredMov:
      break;
    case kPredNot:
      a_.not_(eax);
      break;
    case kPredAnd:
      LoadPredicate(ecx, in.b);
      a_.and_(eax, ecx);
      break;
    case kPredOr:
      LoadPredicate(ecx, in.b);
      a_.or_(eax, ecx);
      break;
    case kPredXor:
      LoadPredicate(ecx, in.b);
      a_.xor_(eax, ecx);
      break;
    case kSelp:
      LoadPredicate(ecx, in.b);
      a_.xor_(eax, ecx);
      LoadPredicate(edx, in.c);
      a_.and_(eax, edx);
      a_.xor_(eax, ecx);
      break;
    default:
      return false;
  }
  SetPredicate(in.d, eax);
  return true;
}

void NativeEmitter::EmitSetp(const Instr& in, const Meaning& m) {
  const bool is_float = m.type == Type::kF32 || m.type == Type::kF64, wide = IsWide(m.type);
  const uint32_t count = wide ? 4 : 2;
  const Parts a = is_float && !wide ? RawSource(in.a, count) : Source(in.a, count);
  const Parts b = is_float && !wide ? RawSource(in.b, count) : Source(in.b, count);
  const uint32_t relation = is_float ? FloatRelation(m.compare) : IntegerRelation(m.compare);
  const KReg to[] = {k5, k6, k7, k0};
  for (uint32_t p = 0; p < count; ++p) {
    if (is_float && wide) {
      a_.vcmppd(to[p], a[p], b[p], relation);
    } else if (is_float) {
      Zmm x = a[p], y = b[p];
      if (m.flags.ftz) {
        a_.vmovaps(zmm28, x);
        a_.vmovaps(zmm29, y);
        x = zmm28;
        y = zmm29;
        Flush(x);
        Flush(y);
      }
      a_.vcmpps(to[p], x, y, relation);
    } else if (IsSigned(m.type)) {
      wide ? a_.vpcmpq(to[p], a[p], b[p], relation) : a_.vpcmpd(to[p], a[p], b[p], relation);
    } else {
      wide ? a_.vpcmpuq(to[p], a[p], b[p], relation) : a_.vpcmpud(to[p], a[p], b[p], relation);
    }
  }
  if (wide) {
    a_.kunpckbw(k5, k6, k5);
    a_.kunpckbw(k6, k0, k7);
  }
  a_.kunpckwd(k5, k6, k5);
  a_.kmovd(eax, k5);
  const BoolOp combine = static_cast<BoolOp>(in.aux & 3);
  if (combine != BoolOp::kNone) {
    LoadPredicate(ecx, in.c);
    if ((in.aux & 4) != 0) a_.not_(ecx);
  }
  const auto combined = [&](Gp value) {
    if (combine == BoolOp::kAnd) a_.and_(value, ecx);
    if (combine == BoolOp::kOr) a_.or_(value, ecx);
    if (combine == BoolOp::kXor) a_.xor_(value, ecx);
  };
  if (in.d2 != kNoOperand) {
    a_.mov(edx, eax);
    a_.not_(edx);
    combined(edx);
  }
  combined(eax);
  if (in.d != kNoOperand) SetPredicate(in.d, eax);
  if (in.d2 != kNoOperand) SetPredicate(in.d2, edx);
}

}  // namespace detshare::soft::ptx
