// Arithmetic, logic, comparison, conversion and moves.
#include <utility>

#include "server/backends/soft/ptx/lower.h"

namespace detshare::soft::ptx {
namespace {

bool IsHalf(Type t) {
  return t == Type::kF16 || t == Type::kF16x2 || t == Type::kBF16 || t == Type::kBF16x2;
}

CostCounters::Class ArithmeticCost(Type t) {
  if (t == Type::kF64) return CostCounters::kFloat64;
  return IsFloat(t) ? CostCounters::kFloat32 : CostCounters::kInteger;
}

Type Widened(Type t) {
  switch (t) {
    case Type::kU16:
      return Type::kU32;
    case Type::kS16:
      return Type::kS32;
    case Type::kU32:
      return Type::kU64;
    case Type::kS32:
      return Type::kS64;
    default:
      return Type::kNone;
  }
}

uint32_t AuxOf(Rounding rounding, VectorFlags flags) {
  return static_cast<uint32_t>(rounding) | (flags.ftz ? FloatAux::kFtz : 0) |
         (flags.sat ? FloatAux::kSat : 0) | (flags.nan ? FloatAux::kNan : 0) |
         (flags.relu ? FloatAux::kRelu : 0);
}

// Rounding to nearest needs no change of the thread's rounding mode.
ExecFn SelectRounded(FloatOp op, Type type, Rounding rounding, VectorFlags flags) {
  if (rounding == Rounding::kNone || rounding == Rounding::kRn) {
    if (op == FloatOp::kDiv) return SelectVectorOp(VectorOp::kDiv, type, flags);
    if (op == FloatOp::kSqrt) return SelectVectorOp(VectorOp::kSqrt, type, flags);
    if (op == FloatOp::kRcp) return SelectVectorOp(VectorOp::kRcp, type, flags);
  }
  return SelectFloat(op, type);
}

// The usual conversions are vector operations. Returns null for others.
ExecFn SelectVectorConvert(Type dst, Type src, uint32_t aux) {
  if ((aux & ~FloatAux::kRoundingMask) != 0) return nullptr;
  const Rounding rounding = static_cast<Rounding>(aux);
  if (dst == Type::kS32 && src == Type::kF32) {
    switch (rounding) {
      case Rounding::kRni:
        return SelectVectorOp(VectorOp::kToNearest, dst, {});
      case Rounding::kRzi:
        return SelectVectorOp(VectorOp::kToZero, dst, {});
      case Rounding::kRmi:
        return SelectVectorOp(VectorOp::kToLower, dst, {});
      case Rounding::kRpi:
        return SelectVectorOp(VectorOp::kToHigher, dst, {});
      default:
        return nullptr;
    }
  }
  if (dst == Type::kTF32 && src == Type::kF32 && rounding == Rounding::kRna)
    return SelectVectorOp(VectorOp::kToNearestAway, dst, {});
  if (rounding != Rounding::kNone && rounding != Rounding::kRn) return nullptr;
  switch (src) {
    case Type::kS32:
      return SelectVectorOp(VectorOp::kFromS32, dst, {});
    case Type::kU32:
      return SelectVectorOp(VectorOp::kFromU32, dst, {});
    case Type::kF32:
      return SelectVectorOp(VectorOp::kFromF32, dst, {});
    case Type::kF64:
      return SelectVectorOp(VectorOp::kFromF64, dst, {});
    case Type::kF16:
      return SelectVectorOp(VectorOp::kFromF16, dst, {});
    case Type::kBF16:
      return SelectVectorOp(VectorOp::kFromBF16, dst, {});
    default:
      return nullptr;
  }
}

}  // namespace

LowInstr* Lowering::EmitSimple(ExecFn fn, CostCounters::Class cost, Type result,
                               std::initializer_list<Type> sources, uint32_t aux) {
  if (!AllUsed() || !NeedOperands(1 + sources.size(), 1 + sources.size())) return nullptr;
  if (fn == nullptr) {
    FailUnknown();
    return nullptr;
  }
  int32_t values[4] = {kNoOperand, kNoOperand, kNoOperand, kNoOperand};
  size_t i = 0;
  for (Type t : sources) {
    values[i] = Source(Op(i + 1), t);
    ++i;
  }
  const int32_t d = Destination(Op(0), result);
  if (!ok()) return nullptr;
  LowInstr& low = Emit(fn, cost);
  low.in.d = d;
  low.in.a = values[0];
  low.in.b = values[1];
  low.in.c = values[2];
  low.in.e = values[3];
  low.in.aux = aux;
  return &low;
}

// --- moves ---

bool Lowering::LowerMovVector(Type type) {
  const Operand& dst = Op(0);
  const Operand& src = Op(1);
  const bool unpack = dst.kind == Operand::Kind::kList;
  const bool pack = src.kind == Operand::Kind::kList;
  if (!unpack && !pack) return false;
  if (unpack && pack) {
    FailUnknown();
    return true;
  }
  const Operand& list = unpack ? dst : src;
  const uint32_t parts = list.child_count;
  const uint32_t size = SizeOf(type);
  if ((parts != 2 && parts != 4) || size % parts != 0) {
    FailUnknown();
    return true;
  }
  VectorOp op;
  Type part = Type::kB32;
  if (size == 2 && parts == 2) {
    op = unpack ? VectorOp::kUnpack2x8 : VectorOp::kPack2x8;
    part = Type::kB8;
  } else if (size == 4 && parts == 2) {
    op = unpack ? VectorOp::kUnpack2x16 : VectorOp::kPack2x16;
    part = Type::kB16;
  } else if (size == 4 && parts == 4) {
    op = unpack ? VectorOp::kUnpack4x8 : VectorOp::kPack4x8;
    part = Type::kB8;
  } else if (size == 8 && parts == 2) {
    op = unpack ? VectorOp::kUnpack2x32 : VectorOp::kPack2x32;
  } else if (size == 8 && parts == 4) {
    op = unpack ? VectorOp::kUnpack4x16 : VectorOp::kPack4x16;
    part = Type::kB16;
  } else if (size == 16 && parts == 2) {
    op = unpack ? VectorOp::kUnpack2x64 : VectorOp::kPack2x64;
    part = Type::kB64;
  } else {
    FailUnknown();
    return true;
  }
  std::vector<int32_t> operands;
  for (uint32_t i = 0; i < parts; ++i) {
    const Operand& o = Child(list, i);
    if (!unpack) {
      operands.push_back(Source(o, part));
    } else if (o.kind == Operand::Kind::kSink) {
      operands.push_back(kNoOperand);
    } else {
      operands.push_back(Destination(o, part));
    }
  }
  const int32_t other = unpack ? Source(src, type) : Destination(dst, type);
  if (!ok()) return true;
  LowInstr& low = Emit(SelectVectorOp(op, type, {}), CostCounters::kInteger);
  low.in.extra = static_cast<uint32_t>(low_.extras.size());
  low.in.count = static_cast<uint8_t>(parts);
  low.extra_defs = unpack ? static_cast<uint8_t>(parts) : 0;
  (unpack ? low.in.a : low.in.d) = other;
  low_.extras.insert(low_.extras.end(), operands.begin(), operands.end());
  return true;
}

void Lowering::LowerMovComponents(uint32_t count, Type type) {
  const Operand& dst = Op(0);
  const Operand& src = Op(1);
  const bool sreg = src.kind == Operand::Kind::kSymbol;
  const bool list = src.kind == Operand::Kind::kList && src.child_count == count;
  if (count > 4 || SizeOf(type) == 0 || SizeOf(type) > 8 || type == Type::kPred ||
      dst.kind != Operand::Kind::kList || dst.child_count != count || (!sreg && !list)) {
    return FailUnknown();
  }
  // All components are read before the first is written, because the vectors may share registers.
  const ExecFn move = SelectVectorOp(VectorOp::kMov, type, {});
  int32_t values[4];
  for (uint32_t i = 0; i < count; ++i) {
    values[i] = NewTemp(ClassOf(type));
    if (sreg) {
      const std::string component = std::string(src.name) + '.' + "xyzw"[i];
      if (!EmitSreg(component, values[i], ClassOf(type) == RegClass::k64)) return FailUnknown();
      continue;
    }
    const int32_t a = Source(Child(src, i), type);
    if (!ok()) return;
    LowInstr& low = EmitUnguarded(move, CostCounters::kInteger);
    low.in.d = values[i];
    low.in.a = a;
  }
  for (uint32_t i = 0; i < count; ++i) {
    const int32_t d = Destination(Child(dst, i), type);
    if (!ok()) return;
    LowInstr& low = Emit(move, CostCounters::kInteger);
    low.in.d = d;
    low.in.a = values[i];
  }
}

void Lowering::LowerMov() {
  const uint32_t vector = TakeVector();
  const Type type = TakeType();
  if (!AllUsed() || !NeedOperands(2, 2)) return;
  if (vector != 1) return LowerMovComponents(vector, type);
  if (type == Type::kPred) {
    bool negated = false;
    if (Op(1).kind == Operand::Kind::kSymbol && Op(1).name == "%is_explicit_cluster") {
      const int32_t value = NewTemp(RegClass::k32);
      LowInstr& read = EmitUnguarded(SregHandler(false), CostCounters::kInteger);
      read.in.d = value;
      read.in.aux = static_cast<uint32_t>(Sreg::kIsExplicitCluster);
      const int32_t p = PredDestination(Op(0).kind == Operand::Kind::kRegister ? Op(0).vreg : -1);
      if (!ok()) return;
      LowInstr& set = Emit(SelectVectorOp(VectorOp::kSetp, Type::kU32, {}, Compare::kNe),
                           CostCounters::kInteger);
      set.in.d = p;
      set.in.a = value;
      set.in.b = Constant(RegClass::k32, 0);
      return;
    }
    const int32_t a = PredSource(Op(1), &negated);
    const int32_t d = PredDestination(Op(0).kind == Operand::Kind::kRegister ? Op(0).vreg : -1);
    if (!ok()) return;
    LowInstr& low =
        Emit(SelectVectorOp(negated ? VectorOp::kPredNot : VectorOp::kPredMov, type, {}),
             CostCounters::kInteger);
    low.in.d = d;
    low.in.a = a;
    return;
  }
  if (SizeOf(type) == 0) return FailUnknown();
  if (LowerMovVector(type)) return;
  if (Op(1).kind == Operand::Kind::kSymbol && IsSreg(Op(1).name)) {
    const int32_t d = Destination(Op(0), type);
    if (ok() && !EmitSreg(Op(1).name, d, ClassOf(type) == RegClass::k64)) FailUnknown();
    return;
  }
  EmitSimple(SelectVectorOp(VectorOp::kMov, type, {}), CostCounters::kInteger, type, {type});
}

// --- integer and float arithmetic ---

void Lowering::LowerRounded(FloatOp op, Type type, Rounding rounding, VectorFlags flags,
                            uint32_t sources, CostCounters::Class cost) {
  const uint32_t aux = AuxOf(rounding, flags);
  const ExecFn fn = SelectRounded(op, type, rounding, flags);
  if (sources == 1) EmitSimple(fn, cost, type, {type}, aux);
  if (sources == 2) EmitSimple(fn, cost, type, {type, type}, aux);
  if (sources == 3) EmitSimple(fn, cost, type, {type, type, type}, aux);
}

void Lowering::LowerHalf(FloatOp op, Type type, Rounding rounding, VectorFlags flags,
                         uint32_t sources, uint32_t more_aux) {
  if (rounding != Rounding::kNone && rounding != Rounding::kRn) return FailUnknown();
  const uint32_t aux = AuxOf(rounding, flags) | more_aux;
  // The usual operations without modifiers are vector operations.
  const VectorOp vector_op = op == FloatOp::kAdd   ? VectorOp::kAdd
                             : op == FloatOp::kSub ? VectorOp::kSub
                             : op == FloatOp::kMul ? VectorOp::kMulLo
                                                   : VectorOp::kFma;
  const bool plain =
      (op == FloatOp::kFma || vector_op != VectorOp::kFma) && (aux & ~FloatAux::kRoundingMask) == 0;
  const ExecFn fn = plain ? SelectVectorOp(vector_op, type, {}) : SelectHalf(op, type);
  if (sources == 1) EmitSimple(fn, CostCounters::kFloat32, type, {type}, aux);
  if (sources == 2) EmitSimple(fn, CostCounters::kFloat32, type, {type, type}, aux);
  if (sources == 3) EmitSimple(fn, CostCounters::kFloat32, type, {type, type, type}, aux);
}

void Lowering::LowerAddSub() {
  if (Take("cc")) {
    parts_.push_back("cc");
    return LowerCarry();
  }
  const bool sub = parts_[0] == "sub";
  const Rounding rounding = TakeRounding();
  const VectorFlags flags = TakeArithmeticFlags();
  const Type type = TakeType();
  if (!sub && (type == Type::kU16x2 || type == Type::kS16x2))
    return LowerPair16(VideoAux::kAddOp, type, false);
  if (IsHalf(type)) return LowerHalf(sub ? FloatOp::kSub : FloatOp::kAdd, type, rounding, flags, 2);
  if (IsFloat(type) && rounding != Rounding::kNone && rounding != Rounding::kRn) {
    return LowerRounded(sub ? FloatOp::kSub : FloatOp::kAdd, type, rounding, flags, 2,
                        ArithmeticCost(type));
  }
  EmitSimple(SelectVectorOp(sub ? VectorOp::kSub : VectorOp::kAdd, type, flags),
             ArithmeticCost(type), type, {type, type});
}

void Lowering::LowerCarry() {
  const bool add = parts_[0] == "add" || parts_[0] == "addc";
  const bool mad = parts_[0] == "mad" || parts_[0] == "madc";
  const bool carry_in = parts_[0] == "addc" || parts_[0] == "subc" || parts_[0] == "madc";
  const bool high = mad && Take("hi");
  if (mad && !high && !Take("lo")) return FailUnknown();
  const bool carry_out = Take("cc");
  const Type type = TakeType();
  if (!IsInteger(type) || SizeOf(type) < 4) return FailUnknown();
  const int32_t flag = CarryFlag();
  LowInstr* low = nullptr;
  if (mad) {
    const VectorOp op = high ? (carry_in ? VectorOp::kMadHic : VectorOp::kMadHiCc)
                             : (carry_in ? VectorOp::kMadLoc : VectorOp::kMadLoCc);
    low =
        EmitSimple(SelectVectorOp(op, type, {}), CostCounters::kInteger, type, {type, type, type});
    if (low != nullptr && carry_in) low->in.e = flag;
  } else {
    const VectorOp op = add ? (carry_in ? VectorOp::kAddc : VectorOp::kAddCc)
                            : (carry_in ? VectorOp::kSubc : VectorOp::kSubCc);
    low = EmitSimple(SelectVectorOp(op, type, {}), CostCounters::kInteger, type, {type, type});
    if (low != nullptr && carry_in) low->in.c = flag;
  }
  if (low != nullptr && carry_out) low->in.d2 = flag;
}

void Lowering::LowerMul() {
  const bool high = Take("hi"), wide = Take("wide"), low = Take("lo");
  const Rounding rounding = TakeRounding();
  const VectorFlags flags = TakeArithmeticFlags();
  const Type type = TakeType();
  if (IsFloat(type)) {
    if (high || wide || low) return FailUnknown();
    if (IsHalf(type)) return LowerHalf(FloatOp::kMul, type, rounding, flags, 2);
    if (rounding != Rounding::kNone && rounding != Rounding::kRn) {
      return LowerRounded(FloatOp::kMul, type, rounding, flags, 2, ArithmeticCost(type));
    }
    EmitSimple(SelectVectorOp(VectorOp::kMulLo, type, flags), ArithmeticCost(type), type,
               {type, type});
    return;
  }
  if (high + wide + low != 1) return FailUnknown();
  const VectorOp op = high ? VectorOp::kMulHi : wide ? VectorOp::kMulWide : VectorOp::kMulLo;
  EmitSimple(SelectVectorOp(op, type, flags), CostCounters::kInteger, wide ? Widened(type) : type,
             {type, type});
}

void Lowering::LowerMad() {
  for (std::string_view part : parts_) {
    if (part == "cc") return LowerCarry();
  }
  const bool high = Take("hi"), wide = Take("wide"), low = Take("lo");
  const Rounding rounding = TakeRounding();
  const VectorFlags flags = TakeArithmeticFlags();
  const Type type = TakeType();
  if (IsFloat(type)) {
    if (high || wide || low || IsHalf(type)) return FailUnknown();
    if (rounding != Rounding::kNone && rounding != Rounding::kRn) {
      return LowerRounded(FloatOp::kFma, type, rounding, flags, 3, ArithmeticCost(type));
    }
    EmitSimple(SelectVectorOp(VectorOp::kFma, type, flags), ArithmeticCost(type), type,
               {type, type, type});
    return;
  }
  if (high + wide + low != 1) return FailUnknown();
  const VectorOp op = high ? VectorOp::kMadHi : wide ? VectorOp::kMadWide : VectorOp::kMadLo;
  const Type result = wide ? Widened(type) : type;
  EmitSimple(SelectVectorOp(op, type, flags), CostCounters::kInteger, result, {type, type, result});
}

void Lowering::LowerMul24() {
  const bool mad = parts_[0] == "mad24";
  const bool high = Take("hi");
  if (!high && !Take("lo")) return FailUnknown();
  const VectorFlags flags = TakeArithmeticFlags();
  const Type type = TakeType();
  if (mad) {
    EmitSimple(SelectVectorOp(high ? VectorOp::kMad24Hi : VectorOp::kMad24Lo, type, flags),
               CostCounters::kInteger, type, {type, type, type});
  } else {
    EmitSimple(SelectVectorOp(high ? VectorOp::kMul24Hi : VectorOp::kMul24Lo, type, flags),
               CostCounters::kInteger, type, {type, type});
  }
}

void Lowering::LowerSad() {
  const Type type = TakeType();
  EmitSimple(SelectVectorOp(VectorOp::kSad, type, {}), CostCounters::kInteger, type,
             {type, type, type});
}

void Lowering::LowerDivRem() {
  const bool rem = parts_[0] == "rem";
  const bool approx = Take("approx"), full = Take("full");
  const Rounding rounding = TakeRounding();
  const VectorFlags flags = TakeArithmeticFlags();
  const Type type = TakeType();
  if (type == Type::kF32 || type == Type::kF64) {
    if (rem || flags.sat || ((approx || full) && type == Type::kF64)) return FailUnknown();
    if (approx) {
      EmitSimple(SelectVectorOp(VectorOp::kDivApprox, type, flags), ArithmeticCost(type), type,
                 {type, type});
      return;
    }
    return LowerRounded(FloatOp::kDiv, type, rounding, flags, 2,
                        full ? ArithmeticCost(type) : CostCounters::kSpecial);
  }
  if (approx || full) return FailUnknown();
  EmitSimple(SelectVectorOp(rem ? VectorOp::kRem : VectorOp::kDiv, type, {}),
             CostCounters::kSpecial, type, {type, type});
}

void Lowering::LowerUnary() {
  const bool abs = parts_[0] == "abs";
  const VectorFlags flags = TakeArithmeticFlags();
  const Type type = TakeType();
  if (IsHalf(type))
    return LowerHalf(abs ? FloatOp::kAbs : FloatOp::kNeg, type, Rounding::kNone, flags, 1);
  EmitSimple(SelectVectorOp(abs ? VectorOp::kAbs : VectorOp::kNeg, type, flags),
             ArithmeticCost(type), type, {type});
}

void Lowering::LowerMinMax() {
  const bool max = parts_[0] == "max";
  VectorFlags flags = TakeArithmeticFlags();
  const bool xorsign = Take("xorsign");
  const bool abs = Take("abs");
  if (xorsign != abs) return FailUnknown();
  const Type type = TakeType();
  if (type == Type::kU16x2 || type == Type::kS16x2) {
    return LowerPair16(max ? VideoAux::kMaxOp : VideoAux::kMinOp, type, flags.relu);
  }
  const uint32_t more = xorsign ? FloatAux::kAbs : 0;
  if (IsHalf(type))
    return LowerHalf(max ? FloatOp::kMax : FloatOp::kMin, type, Rounding::kNone, flags, 2, more);
  if (type == Type::kF32 && xorsign) {
    EmitSimple(SelectFloat(max ? FloatOp::kMax : FloatOp::kMin, type), CostCounters::kFloat32, type,
               {type, type}, AuxOf(Rounding::kNone, flags) | more);
    return;
  }
  if (xorsign) return FailUnknown();
  if (type == Type::kF32 && OpCount() == 4) {  // three inputs become two instructions
    const int32_t a = Source(Op(1), type), b = Source(Op(2), type), e = Source(Op(3), type);
    const int32_t d = Destination(Op(0), type);
    const ExecFn fn = SelectVectorOp(max ? VectorOp::kMax : VectorOp::kMin, type, flags);
    if (!AllUsed() || fn == nullptr) return FailUnknown();
    const int32_t temp = NewTemp(RegClass::k32);
    LowInstr& first = EmitUnguarded(fn, CostCounters::kFloat32);
    first.in.d = temp;
    first.in.a = a;
    first.in.b = b;
    LowInstr& second = Emit(fn, CostCounters::kFloat32);
    second.in.d = d;
    second.in.a = temp;
    second.in.b = e;
    return;
  }
  EmitSimple(SelectVectorOp(max ? VectorOp::kMax : VectorOp::kMin, type, flags),
             ArithmeticCost(type), type, {type, type});
}

// --- bits ---

void Lowering::LowerLogic() {
  const std::string_view name = parts_[0];
  const Type type = TakeType();
  if (type == Type::kPred) {
    if (!AllUsed()) return;
    const bool is_not = name == "not";
    if (name == "cnot" || !NeedOperands(is_not ? 2 : 3, is_not ? 2 : 3)) return FailUnknown();
    const int32_t a = PredValue(Op(1));
    const int32_t b = is_not ? kNoOperand : PredValue(Op(2));
    const int32_t d = PredDestination(Op(0).kind == Operand::Kind::kRegister ? Op(0).vreg : -1);
    if (!ok()) return;
    const VectorOp op = is_not          ? VectorOp::kPredNot
                        : name == "and" ? VectorOp::kPredAnd
                        : name == "or"  ? VectorOp::kPredOr
                                        : VectorOp::kPredXor;
    LowInstr& low = Emit(SelectVectorOp(op, type, {}), CostCounters::kInteger);
    low.in.d = d;
    low.in.a = a;
    low.in.b = b;
    return;
  }
  if (!IsBits(type) && !IsInteger(type)) return FailUnknown();
  if (name == "not" || name == "cnot") {
    EmitSimple(SelectVectorOp(name == "not" ? VectorOp::kNot : VectorOp::kCnot, type, {}),
               CostCounters::kInteger, type, {type});
    return;
  }
  const VectorOp op = name == "and"  ? VectorOp::kAnd
                      : name == "or" ? VectorOp::kOr
                                     : VectorOp::kXor;
  EmitSimple(SelectVectorOp(op, type, {}), CostCounters::kInteger, type, {type, type});
}

void Lowering::LowerShift() {
  const Type type = TakeType();
  EmitSimple(SelectVectorOp(parts_[0] == "shl" ? VectorOp::kShl : VectorOp::kShr, type, {}),
             CostCounters::kInteger, type, {type, Type::kU32});
}

void Lowering::LowerFunnelShift() {
  const bool left = Take("l");
  if (!left && !Take("r")) return FailUnknown();
  VectorFlags flags;
  flags.clamp = Take("clamp");
  if (!flags.clamp && !Take("wrap")) return FailUnknown();
  const Type type = TakeType();
  if (SizeOf(type) != 4) return FailUnknown();
  EmitSimple(SelectVectorOp(left ? VectorOp::kShfL : VectorOp::kShfR, type, flags),
             CostCounters::kInteger, type, {type, type, Type::kU32});
}

void Lowering::LowerBitField() {
  const std::string_view name = parts_[0];
  VectorFlags flags;
  if (name == "szext" || name == "bmsk") {
    flags.clamp = Take("clamp");
    if (!flags.clamp && !Take("wrap")) return FailUnknown();
  }
  const Type type = TakeType();
  const Type u32 = Type::kU32;
  if (name == "bfe") {
    EmitSimple(SelectVectorOp(VectorOp::kBfe, type, flags), CostCounters::kInteger, type,
               {type, u32, u32});
  } else if (name == "bfi") {
    if (SizeOf(type) < 4 || SizeOf(type) > 8) return FailUnknown();
    EmitSimple(SelectVectorOp(VectorOp::kBfi, type, flags), CostCounters::kInteger, type,
               {type, type, u32, u32});
  } else if (SizeOf(type) != 4) {
    FailUnknown();
  } else if (name == "szext") {
    EmitSimple(SelectVectorOp(VectorOp::kSzext, type, flags), CostCounters::kInteger, type,
               {type, u32});
  } else if (name == "bmsk") {
    EmitSimple(SelectVectorOp(VectorOp::kBmsk, type, flags), CostCounters::kInteger, type,
               {u32, u32});
  } else {
    EmitSimple(SelectVectorOp(VectorOp::kFns, type, flags), CostCounters::kInteger, type,
               {u32, u32, Type::kS32});
  }
}

void Lowering::LowerBitCount() {
  const std::string_view name = parts_[0];
  VectorFlags flags;
  flags.clamp = name == "bfind" && Take("shiftamt");
  const Type type = TakeType();
  if (SizeOf(type) != 4 && SizeOf(type) != 8) return FailUnknown();
  const VectorOp op = name == "bfind"  ? VectorOp::kBfind
                      : name == "clz"  ? VectorOp::kClz
                      : name == "popc" ? VectorOp::kPopc
                                       : VectorOp::kBrev;
  EmitSimple(SelectVectorOp(op, type, flags), CostCounters::kInteger,
             name == "brev" ? type : Type::kU32, {type});
}

void Lowering::LowerLop3() {
  // lop3.b32 d, a, b, c, immLut;  lop3.{and,or}.b32 d|p, a, b, c, immLut, q;
  const bool with_and = Take("and"), with_or = Take("or");
  const Type type = TakeType();
  const bool with_pred = with_and || with_or;
  if (SizeOf(type) != 4 || !AllUsed() || !NeedOperands(with_pred ? 6 : 5, with_pred ? 6 : 5))
    return;
  if (Op(4).kind != Operand::Kind::kInteger) return FailUnknown();
  const int32_t a = Source(Op(1), type), b = Source(Op(2), type), e = Source(Op(3), type);
  const int32_t d = Destination(Op(0), type);
  if (!ok()) return;
  LowInstr& low = Emit(SelectVectorOp(VectorOp::kLop3, type, {}), CostCounters::kInteger);
  low.in.d = d;
  low.in.a = a;
  low.in.b = b;
  low.in.c = e;
  low.in.imm = Op(4).value & 0xff;
  if (!with_pred) return;
  bool negated = false;
  const int32_t q = PredSource(Op(5), &negated);
  const int32_t p = PredDestination(Op(0).pair);
  if (!ok()) return;
  LowInstr& set =
      Emit(SelectVectorOp(VectorOp::kSetp, Type::kU32, {}, Compare::kNe), CostCounters::kInteger);
  set.in.d = p;
  set.in.a = d;
  set.in.b = Constant(RegClass::k32, 0);
  set.in.c = q;
  set.in.aux = static_cast<uint32_t>(with_and ? BoolOp::kAnd : BoolOp::kOr) | (negated ? 4 : 0);
}

void Lowering::LowerPrmt() {
  const Type type = TakeType();
  static constexpr std::string_view kModes[] = {"f4e", "b4e", "rc8", "ecl", "ecr", "rc16"};
  int64_t mode = 0;
  for (size_t i = 0; i < 6; ++i) {
    if (Take(kModes[i])) mode = static_cast<int64_t>(i) + 1;
  }
  if (SizeOf(type) != 4) return FailUnknown();
  LowInstr* low = EmitSimple(SelectVectorOp(VectorOp::kPrmt, type, {}), CostCounters::kInteger,
                             type, {type, type, Type::kU32});
  if (low != nullptr) low->in.imm = mode;
}

void Lowering::LowerDot() {
  const bool two = parts_[0] == "dp2a";
  const bool hi = two && Take("hi");
  if (two && !hi && !Take("lo")) return FailUnknown();
  const Type ta = TakeType(), tb = TakeType();
  if (SizeOf(ta) != 4 || SizeOf(tb) != 4) return FailUnknown();
  LowInstr* low =
      EmitSimple(SelectVectorOp(two ? VectorOp::kDp2a : VectorOp::kDp4a, Type::kB32, {}),
                 CostCounters::kInteger, Type::kB32, {Type::kB32, Type::kB32, Type::kB32});
  if (low != nullptr) low->in.imm = (IsSigned(ta) ? 1 : 0) | (IsSigned(tb) ? 2 : 0) | (hi ? 4 : 0);
}

void Lowering::LowerVideo() {
  const std::string_view name = parts_[0];
  static constexpr std::string_view kOps[] = {"vadd", "vsub", "vavrg", "vabsdiff", "vmin", "vmax"};
  uint32_t aux = 0;
  for (uint32_t i = 0; i < 6; ++i) {
    if (name.substr(0, name.size() - 1) == kOps[i]) aux = i;
  }
  if (name.back() == '4') aux |= VideoAux::kFour;
  if (Take("add")) aux |= VideoAux::kAdd;
  if (Take("sat")) aux |= VideoAux::kSat;
  const Type d = TakeType(), a = TakeType(), b = TakeType();
  for (Type t : {d, a, b}) {
    if (t != Type::kU32 && t != Type::kS32) return FailUnknown();
  }
  if (IsSigned(d)) aux |= VideoAux::kSignedD;
  if (IsSigned(a)) aux |= VideoAux::kSignedA;
  if (IsSigned(b)) aux |= VideoAux::kSignedB;
  EmitSimple(ExecVideo, CostCounters::kInteger, d, {a, b, Type::kU32}, aux);
}

// vadd.dtype.atype.btype{.sat}{.op2} d{.dsel}, a{.asel}, b{.bsel}{, c}. With a selector of d the result
// replaces a part of c, and with `op2` it is combined with c.
void Lowering::LowerScalarVideo() {
  using Video = ScalarVideo;
  static constexpr std::pair<std::string_view, Video::Op> kOps[] = {
      {"vadd", Video::kAdd}, {"vsub", Video::kSub}, {"vabsdiff", Video::kAbsDiff},
      {"vmin", Video::kMin}, {"vmax", Video::kMax}, {"vshl", Video::kShl},
      {"vshr", Video::kShr}, {"vset", Video::kSet}};
  Video video;
  for (const auto& [name, op] : kOps) {
    if (parts_[0] == name) video.op = op;
  }
  const bool shift = video.op == Video::kShl || video.op == Video::kShr;
  const bool set = video.op == Video::kSet;
  video.saturate = !set && Take("sat");
  if (Take("add")) video.second = Video::kAdd;
  if (Take("min")) video.second = Video::kMin;
  if (Take("max")) video.second = Video::kMax;
  if (shift) {
    video.wrap = Take("wrap");
    if (!video.wrap && !Take("clamp")) return FailUnknown();
  }
  const Type d = set ? Type::kU32 : TakeType(), a = TakeType(), b = TakeType();
  for (Type t : {d, a, b}) {
    if (t != Type::kU32 && t != Type::kS32) return FailUnknown();
  }
  if (set) {
    Compare compare;
    if (!TakeCompare(&compare, false) || compare > Compare::kGe) return FailUnknown();
    video.compare = static_cast<uint8_t>(compare);
  }
  video.signs = static_cast<uint8_t>((IsSigned(a) ? Video::kSignedA : 0) |
                                     (IsSigned(b) ? Video::kSignedB : 0) |
                                     (IsSigned(d) ? Video::kSignedD : 0));
  if (!AllUsed() || !NeedOperands(3, 4)) return;
  const bool with_c = OpCount() == 4, combined = video.second != Video::kNone;
  Operand to = Op(0), x = Op(1), y = Op(2);
  if (with_c != (combined || to.selector != 0) || (combined && to.selector != 0))
    return FailUnknown();
  video.select_d = std::exchange(to.selector, uint8_t{0});
  video.select_a = std::exchange(x.selector, uint8_t{0});
  video.select_b = std::exchange(y.selector, uint8_t{0});
  const int32_t from_a = Source(x, a), from_b = Source(y, b);
  const int32_t from_c = with_c ? Source(Op(3), d) : Constant(RegClass::k32, 0);
  const int32_t result = Destination(to, d);
  if (!ok()) return;
  LowInstr& low = Emit(ExecScalarVideo, CostCounters::kInteger);
  low.in.d = result;
  low.in.a = from_a;
  low.in.b = from_b;
  low.in.c = from_c;
  low.in.imm = video.Pack();
}

// vmad.dtype.atype.btype{.po}{.sat}{.shr7|.shr15} d, {-}a{.asel}, {-}b{.bsel}, {-}c. Two negated factors
// count as none.
void Lowering::LowerVideoMad() {
  using Video = ScalarVideo;
  Video video;
  video.op = Video::kMad;
  video.plus_one = Take("po");
  video.saturate = Take("sat");
  video.scale = Take("shr7") ? 7 : Take("shr15") ? 15 : 0;
  const Type d = TakeType(), a = TakeType(), b = TakeType();
  for (Type t : {d, a, b}) {
    if (t != Type::kU32 && t != Type::kS32) return FailUnknown();
  }
  video.signs = static_cast<uint8_t>((IsSigned(a) ? Video::kSignedA : 0) |
                                     (IsSigned(b) ? Video::kSignedB : 0));
  if (!AllUsed() || !NeedOperands(4, 4)) return;
  Operand x = Op(1), y = Op(2), z = Op(3);
  const bool any = x.negated || y.negated || z.negated;
  const bool minus_x = std::exchange(x.negated, false), minus_y = std::exchange(y.negated, false);
  video.negate_product = minus_x != minus_y;
  video.negate_c = std::exchange(z.negated, false);
  if ((video.plus_one && any) || (video.negate_product && video.negate_c)) return FailUnknown();
  video.select_a = std::exchange(x.selector, uint8_t{0});
  video.select_b = std::exchange(y.selector, uint8_t{0});
  const int32_t from_a = Source(x, a), from_b = Source(y, b), from_c = Source(z, d);
  const int32_t result = Destination(Op(0), d);
  if (!ok()) return;
  LowInstr& low = Emit(ExecVideoMad, CostCounters::kInteger);
  low.in.d = result;
  low.in.a = from_a;
  low.in.b = from_b;
  low.in.c = from_c;
  low.in.imm = video.Pack();
}

// add, min and max on pairs of 16-bit integers.
void Lowering::LowerPair16(uint32_t op, Type type, bool relu) {
  uint32_t aux = op | (relu ? VideoAux::kRelu : 0);
  if (type == Type::kS16x2) aux |= VideoAux::kSignedA | VideoAux::kSignedB | VideoAux::kSignedD;
  LowInstr* low = EmitSimple(ExecVideo, CostCounters::kInteger, type, {type, type}, aux);
  if (low != nullptr) low->in.c = Constant(RegClass::k32, 0);
}

// --- comparison and selection ---

bool Lowering::TakeCombination(BoolOp* op) {
  *op = BoolOp::kNone;
  if (Take("and")) *op = BoolOp::kAnd;
  if (Take("or")) *op = BoolOp::kOr;
  if (Take("xor")) *op = BoolOp::kXor;
  return *op != BoolOp::kNone;
}

void Lowering::LowerSetp() {
  Compare compare;
  BoolOp combine;
  TakeCombination(&combine);
  VectorFlags flags;
  flags.ftz = Take("ftz");
  const Type type = TakeType();
  if (!TakeCompare(&compare, IsUnsigned(type)) || !AllUsed()) return FailUnknown();
  const size_t operands = combine == BoolOp::kNone ? 3 : 4;
  if (!NeedOperands(operands, operands)) return;
  const ExecFn fn = IsHalf(type) ? SelectHalfCompare(type, compare)
                                 : SelectVectorOp(VectorOp::kSetp, type, flags, compare);
  if (fn == nullptr) return FailUnknown();
  const int32_t a = Source(Op(1), type), b = Source(Op(2), type);
  bool negated = false;
  const int32_t with = combine == BoolOp::kNone ? kNoOperand : PredSource(Op(3), &negated);
  const Operand& dst = Op(0);
  const int32_t d = dst.kind == Operand::Kind::kSink       ? kNoOperand
                    : dst.kind == Operand::Kind::kRegister ? PredDestination(dst.vreg)
                                                           : PredDestination(-1);
  const int32_t d2 = dst.pair == -1 ? kNoOperand : PredDestination(dst.pair);
  if (!ok()) return;
  LowInstr& low = Emit(fn, ArithmeticCost(type));
  low.in.d = d;
  low.in.d2 = d2;
  low.in.a = a;
  low.in.b = b;
  low.in.c = with;
  low.in.aux =
      static_cast<uint32_t>(combine) | (negated ? 4 : 0) | (flags.ftz ? FloatAux::kFtz : 0);
}

void Lowering::LowerSet() {
  Compare compare;
  BoolOp combine;
  TakeCombination(&combine);
  VectorFlags flags;
  flags.ftz = Take("ftz");
  const Type result = TakeType();
  const Type type = TakeType();
  if (!TakeCompare(&compare, IsUnsigned(type)) || !AllUsed()) return FailUnknown();
  const size_t operands = combine == BoolOp::kNone ? 3 : 4;
  if (!NeedOperands(operands, operands)) return;
  uint64_t yes = 0xffffffffu;
  if (result == Type::kF32) yes = 0x3f800000u;
  if (result == Type::kF16) yes = 0x3c00u;
  if (result == Type::kBF16) yes = 0x3f80u;
  if (result == Type::kF16x2) yes = 0x3c003c00u;
  if (result == Type::kBF16x2) yes = 0x3f803f80u;
  if (result == Type::kU16 || result == Type::kS16) yes = 0xffffu;
  const ExecFn fn = IsHalf(type) ? SelectHalfSet(type, compare)
                                 : SelectVectorOp(VectorOp::kSet, type, flags, compare);
  if (fn == nullptr || ClassOf(result) != RegClass::k32) return FailUnknown();
  const int32_t a = Source(Op(1), type), b = Source(Op(2), type);
  bool negated = false;
  const int32_t with = combine == BoolOp::kNone ? kNoOperand : PredSource(Op(3), &negated);
  const int32_t d = Destination(Op(0), result);
  if (!ok()) return;
  LowInstr& low = Emit(fn, ArithmeticCost(type));
  low.in.d = d;
  low.in.a = a;
  low.in.b = b;
  low.in.c = with;
  low.in.imm = static_cast<int64_t>(yes);
  low.in.aux =
      static_cast<uint32_t>(combine) | (negated ? 4 : 0) | (flags.ftz ? FloatAux::kFtz : 0);
}

void Lowering::LowerSelp() {
  const Type type = TakeType();
  if (!AllUsed() || !NeedOperands(4, 4)) return;
  const ExecFn fn = SelectVectorOp(VectorOp::kSelp, type, {});
  if (fn == nullptr) return FailUnknown();
  bool negated = false, na = false, nb = false;
  const bool pred = type == Type::kPred;
  int32_t a = pred ? PredSource(Op(1), &na) : Source(Op(1), type);
  int32_t b = pred ? PredSource(Op(2), &nb) : Source(Op(2), type);
  const int32_t p = PredSource(Op(3), &negated);
  if (na || nb) return FailUnknown();
  if (negated) std::swap(a, b);
  const int32_t d = pred ? PredDestination(Op(0).vreg) : Destination(Op(0), type);
  if (!ok()) return;
  LowInstr& low = Emit(fn, CostCounters::kInteger);
  low.in.d = d;
  low.in.a = a;
  low.in.b = b;
  low.in.c = p;
}

void Lowering::LowerSlct() {
  const bool ftz = Take("ftz");
  const Type type = TakeType();
  const Type by = TakeType();
  if (SizeOf(by) != 4 || (ftz && by != Type::kF32)) return FailUnknown();
  int32_t flushed = kNoOperand;
  if (ftz) {
    if (!NeedOperands(4, 4)) return;
    const int32_t value = Source(Op(3), by);
    if (!ok()) return;
    flushed = NewTemp(RegClass::k32);
    LowInstr& low = EmitUnguarded(SelectVectorOp(VectorOp::kAdd, Type::kF32, {.ftz = true}),
                                  CostCounters::kFloat32);
    low.in.d = flushed;
    low.in.a = value;
    low.in.b = Constant(RegClass::k32, 0x80000000u);  // -0 changes no value
  }
  LowInstr* const low =
      EmitSimple(SelectVectorOp(by == Type::kF32 ? VectorOp::kSlctF : VectorOp::kSlct, type, {}),
                 CostCounters::kInteger, type, {type, type, by});
  if (low != nullptr && ftz) low->in.c = flushed;
}

// --- floating point ---

void Lowering::LowerFma() {
  const Rounding rounding = TakeRounding();
  const VectorFlags flags = TakeArithmeticFlags();
  const Type type = TakeType();
  if (!IsFloat(type)) return FailUnknown();
  if (IsHalf(type)) return LowerHalf(FloatOp::kFma, type, rounding, flags, 3);
  if (rounding != Rounding::kRn)
    return LowerRounded(FloatOp::kFma, type, rounding, flags, 3, ArithmeticCost(type));
  EmitSimple(SelectVectorOp(VectorOp::kFma, type, flags), ArithmeticCost(type), type,
             {type, type, type});
}

void Lowering::LowerRoot() {
  const bool sqrt = parts_[0] == "sqrt";
  const bool approx = Take("approx");
  const Rounding rounding = TakeRounding();
  const VectorFlags flags = TakeArithmeticFlags();
  const Type type = TakeType();
  if (!approx && rounding == Rounding::kNone) return FailUnknown();
  if (approx && sqrt && type == Type::kF64) return FailUnknown();
  LowerRounded(sqrt ? FloatOp::kSqrt : FloatOp::kRcp, type, rounding, flags, 1,
               approx ? ArithmeticCost(type) : CostCounters::kSpecial);
}

void Lowering::LowerSpecial() {
  const std::string_view name = parts_[0];
  Take("approx");
  const VectorFlags flags = TakeArithmeticFlags();
  const Type type = TakeType();
  if (name == "rsqrt") {
    EmitSimple(SelectVectorOp(VectorOp::kRsqrt, type, flags), CostCounters::kSpecial, type, {type});
    return;
  }
  const FloatOp op = name == "sin"   ? FloatOp::kSin
                     : name == "cos" ? FloatOp::kCos
                     : name == "ex2" ? FloatOp::kEx2
                     : name == "lg2" ? FloatOp::kLg2
                                     : FloatOp::kTanh;
  const ExecFn fn = IsHalf(type) ? SelectHalf(op, type) : SelectFloat(op, type);
  EmitSimple(fn, CostCounters::kSpecial, type, {type}, AuxOf(Rounding::kNone, flags));
}

void Lowering::LowerCopysign() {
  const Type type = TakeType();
  if (type != Type::kF32 && type != Type::kF64) return FailUnknown();
  EmitSimple(SelectVectorOp(VectorOp::kCopysign, type, {}), CostCounters::kInteger, type,
             {type, type});
}

void Lowering::LowerTestp() {
  static constexpr std::string_view kKinds[] = {"finite",     "infinite", "number",
                                                "notanumber", "normal",   "subnormal"};
  int64_t kind = -1;
  for (size_t i = 0; i < 6; ++i) {
    if (Take(kKinds[i])) kind = static_cast<int64_t>(i);
  }
  const Type type = TakeType();
  if (kind < 0 || (type != Type::kF32 && type != Type::kF64)) return FailUnknown();
  if (!AllUsed() || !NeedOperands(2, 2)) return;
  const int32_t a = Source(Op(1), type);
  const int32_t d = PredDestination(Op(0).kind == Operand::Kind::kRegister ? Op(0).vreg : -1);
  if (!ok()) return;
  LowInstr& low = Emit(SelectVectorOp(VectorOp::kTestp, type, {}), CostCounters::kInteger);
  low.in.d = d;
  low.in.a = a;
  low.in.imm = kind;
}

void Lowering::LowerCvtPack() {
  // cvt.pack.sat.s16.s32 d, a, b;  cvt.pack.sat.u8.s32.b32 d, a, b, c;
  static constexpr std::pair<std::string_view, uint32_t> kResults[] = {
      {"u2", 2}, {"s2", 2}, {"u4", 4}, {"s4", 4}, {"u8", 8}, {"s8", 8}, {"u16", 16}, {"s16", 16}};
  uint32_t bits = 0;
  bool is_signed = false;
  for (const auto& [name, value] : kResults) {
    if (!Take(name)) continue;
    bits = value;
    is_signed = name[0] == 's';
  }
  const bool with_rest = Take("b32");
  if (bits == 0 || !Take("sat") || !Take("s32") || with_rest != (bits < 16)) return FailUnknown();
  const uint32_t aux = bits | (is_signed ? kCvtPackSigned : 0);
  if (with_rest) {
    EmitSimple(ExecCvtPack, CostCounters::kInteger, Type::kB32,
               {Type::kS32, Type::kS32, Type::kB32}, aux);
  } else {
    EmitSimple(ExecCvtPack, CostCounters::kInteger, Type::kB32, {Type::kS32, Type::kS32}, aux);
  }
}

void Lowering::LowerCvt() {
  if (Take("pack")) return LowerCvtPack();
  uint32_t aux = static_cast<uint32_t>(TakeRounding());
  if (Take("ftz")) aux |= FloatAux::kFtz;
  if (Take("sat")) aux |= FloatAux::kSat;
  if (Take("satfinite")) aux |= FloatAux::kSatFinite;
  if (Take("relu")) aux |= FloatAux::kRelu;
  const Type dst = TakeType();
  const Type src = TakeType();
  if (dst == Type::kNone || src == Type::kNone) return FailUnknown();
  const bool packed_dst =
      dst == Type::kF16x2 || dst == Type::kBF16x2 || dst == Type::kE4M3x2 || dst == Type::kE5M2x2;
  const ExecFn vector = SelectVectorConvert(dst, src, aux);
  const ExecFn fn = vector != nullptr ? vector : SelectConvert(dst, src);
  if (packed_dst && src == Type::kF32) {
    EmitSimple(fn, CostCounters::kInteger, dst, {src, src}, aux);
  } else {
    EmitSimple(fn, CostCounters::kInteger, dst, {src}, aux);
  }
}

}  // namespace detshare::soft::ptx
