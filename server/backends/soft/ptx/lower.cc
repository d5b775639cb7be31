#include "server/backends/soft/ptx/lower.h"

#include <algorithm>
#include <bit>

#include "server/backends/soft/ptx/parser.h"

namespace detshare::soft::ptx {

std::vector<std::string_view> SplitOpcode(std::string_view opcode) {
  std::vector<std::string_view> parts;
  size_t begin = 0;
  while (begin <= opcode.size() && parts.size() < 32) {
    size_t end = opcode.find('.', begin);
    if (end == std::string_view::npos) end = opcode.size();
    parts.push_back(opcode.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

absl::Status LowerFunction(const SymbolTable& symbols, LowFunction* low) {
  return Lowering(symbols, low).Run();
}

Lowering::Lowering(const SymbolTable& symbols, LowFunction* low)
    : symbols_(symbols), low_(*low), ast_(*low->ast) {
  for (const Vreg& v : ast_.vregs) low_.vregs.push_back(ClassOf(v.type));
}

const std::unordered_map<std::string_view, Lowering::Handler>& Lowering::Handlers() {
  static const auto* const kHandlers = new std::unordered_map<std::string_view, Handler>{
      {"mov", &Lowering::LowerMov},
      {"add", &Lowering::LowerAddSub},
      {"sub", &Lowering::LowerAddSub},
      {"addc", &Lowering::LowerCarry},
      {"subc", &Lowering::LowerCarry},
      {"madc", &Lowering::LowerCarry},
      {"mul", &Lowering::LowerMul},
      {"mad", &Lowering::LowerMad},
      {"mul24", &Lowering::LowerMul24},
      {"mad24", &Lowering::LowerMul24},
      {"sad", &Lowering::LowerSad},
      {"div", &Lowering::LowerDivRem},
      {"rem", &Lowering::LowerDivRem},
      {"abs", &Lowering::LowerUnary},
      {"neg", &Lowering::LowerUnary},
      {"min", &Lowering::LowerMinMax},
      {"max", &Lowering::LowerMinMax},
      {"and", &Lowering::LowerLogic},
      {"or", &Lowering::LowerLogic},
      {"xor", &Lowering::LowerLogic},
      {"not", &Lowering::LowerLogic},
      {"cnot", &Lowering::LowerLogic},
      {"shl", &Lowering::LowerShift},
      {"shr", &Lowering::LowerShift},
      {"shf", &Lowering::LowerFunnelShift},
      {"bfe", &Lowering::LowerBitField},
      {"bfi", &Lowering::LowerBitField},
      {"szext", &Lowering::LowerBitField},
      {"bmsk", &Lowering::LowerBitField},
      {"fns", &Lowering::LowerBitField},
      {"bfind", &Lowering::LowerBitCount},
      {"clz", &Lowering::LowerBitCount},
      {"popc", &Lowering::LowerBitCount},
      {"brev", &Lowering::LowerBitCount},
      {"lop3", &Lowering::LowerLop3},
      {"prmt", &Lowering::LowerPrmt},
      {"dp4a", &Lowering::LowerDot},
      {"dp2a", &Lowering::LowerDot},
      {"setp", &Lowering::LowerSetp},
      {"vadd", &Lowering::LowerScalarVideo},
      {"vsub", &Lowering::LowerScalarVideo},
      {"vabsdiff", &Lowering::LowerScalarVideo},
      {"vmin", &Lowering::LowerScalarVideo},
      {"vmax", &Lowering::LowerScalarVideo},
      {"vshl", &Lowering::LowerScalarVideo},
      {"vshr", &Lowering::LowerScalarVideo},
      {"vset", &Lowering::LowerScalarVideo},
      {"vmad", &Lowering::LowerVideoMad},
      {"vadd2", &Lowering::LowerVideo},
      {"vadd4", &Lowering::LowerVideo},
      {"vsub2", &Lowering::LowerVideo},
      {"vsub4", &Lowering::LowerVideo},
      {"vavrg2", &Lowering::LowerVideo},
      {"vavrg4", &Lowering::LowerVideo},
      {"vabsdiff2", &Lowering::LowerVideo},
      {"vabsdiff4", &Lowering::LowerVideo},
      {"vmin2", &Lowering::LowerVideo},
      {"vmin4", &Lowering::LowerVideo},
      {"vmax2", &Lowering::LowerVideo},
      {"vmax4", &Lowering::LowerVideo},
      {"set", &Lowering::LowerSet},
      {"selp", &Lowering::LowerSelp},
      {"slct", &Lowering::LowerSlct},
      {"fma", &Lowering::LowerFma},
      {"sqrt", &Lowering::LowerRoot},
      {"rcp", &Lowering::LowerRoot},
      {"rsqrt", &Lowering::LowerSpecial},
      {"sin", &Lowering::LowerSpecial},
      {"cos", &Lowering::LowerSpecial},
      {"ex2", &Lowering::LowerSpecial},
      {"lg2", &Lowering::LowerSpecial},
      {"tanh", &Lowering::LowerSpecial},
      {"copysign", &Lowering::LowerCopysign},
      {"testp", &Lowering::LowerTestp},
      {"cvt", &Lowering::LowerCvt},
      {"ld", &Lowering::LowerLoad},
      {"ldu", &Lowering::LowerLoad},
      {"st", &Lowering::LowerStore},
      {"atom", &Lowering::LowerAtom},
      {"red", &Lowering::LowerAtom},
      {"cvta", &Lowering::LowerCvta},
      {"isspacep", &Lowering::LowerIsSpace},
      {"prefetch", &Lowering::LowerPrefetch},
      {"prefetchu", &Lowering::LowerPrefetch},
      {"discard", &Lowering::LowerPrefetch},
      {"applypriority", &Lowering::LowerPrefetch},
      {"createpolicy", &Lowering::LowerCreatePolicy},
      {"mapa", &Lowering::LowerMapa},
      {"getctarank", &Lowering::LowerGetCtaRank},
      {"cp", &Lowering::LowerCp},
      {"tensormap", &Lowering::LowerTensorMap},
      {"alloca", &Lowering::LowerAlloca},
      {"stacksave", &Lowering::LowerStack},
      {"stackrestore", &Lowering::LowerStack},
      {"mbarrier", &Lowering::LowerMbarrier},
      {"membar", &Lowering::LowerMembar},
      {"fence", &Lowering::LowerMembar},
      {"bra", &Lowering::LowerBra},
      {"brx", &Lowering::LowerBrx},
      {"call", &Lowering::LowerCall},
      {"ret", &Lowering::LowerRet},
      {"exit", &Lowering::LowerExit},
      {"trap", &Lowering::LowerTrap},
      {"brkpt", &Lowering::LowerTrap},
      {"multimem", &Lowering::LowerUnsupported},
      {"sured", &Lowering::LowerUnsupported},
      {"tcgen05", &Lowering::LowerUnsupported},
      {"vset2", &Lowering::LowerUnsupported},
      {"vset4", &Lowering::LowerUnsupported},
      {"wgmma", &Lowering::LowerUnsupported},
      {"bar", &Lowering::LowerBar},
      {"barrier", &Lowering::LowerBar},
      {"shfl", &Lowering::LowerShfl},
      {"vote", &Lowering::LowerVote},
      {"match", &Lowering::LowerMatch},
      {"redux", &Lowering::LowerRedux},
      {"elect", &Lowering::LowerElect},
      {"activemask", &Lowering::LowerActiveMask},
      {"nanosleep", &Lowering::LowerNanosleep},
      {"pmevent", &Lowering::LowerNop},
      {"griddepcontrol", &Lowering::LowerNop},
      {"setmaxnreg", &Lowering::LowerNop},
      {"mma", &Lowering::LowerMatrix},
      {"wmma", &Lowering::LowerMatrix},
      {"ldmatrix", &Lowering::LowerMatrix},
      {"stmatrix", &Lowering::LowerMatrix},
      {"movmatrix", &Lowering::LowerMatrix},
      {"tex", &Lowering::LowerTexture},
      {"tld4", &Lowering::LowerTexture},
      {"suld", &Lowering::LowerSurface},
      {"sust", &Lowering::LowerSurface},
      {"txq", &Lowering::LowerImageQuery},
      {"suq", &Lowering::LowerImageQuery},
  };
  return *kHandlers;
}

void Lowering::Fail(const std::string& message) {
  if (ok()) status_ = PtxError(statement_ != nullptr ? statement_->line : ast_.line, message);
}

void Lowering::FailUnknown() {
  std::string opcode;
  for (char c : statement_->opcode.substr(0, 100)) opcode += c >= 0x20 && c < 0x7f ? c : '?';
  Fail("unknown instruction '" + opcode + "'");
}

bool Lowering::NeedOperands(size_t low, size_t high) {
  if (OpCount() < low || OpCount() > high) {
    Fail("wrong number of operands for '" + std::string(statement_->opcode.substr(0, 100)) + "'");
  }
  return ok();
}

// --- modifiers ---

bool Lowering::Take(std::string_view modifier) {
  for (size_t i = 1; i < parts_.size(); ++i) {
    if (parts_[i] == modifier) {
      parts_[i] = {};
      return true;
    }
  }
  return false;
}

Type Lowering::TakeType() {
  for (size_t i = 1; i < parts_.size(); ++i) {
    if (parts_[i].empty()) continue;
    const Type type = TypeFromName(parts_[i]);
    if (type != Type::kNone) {
      parts_[i] = {};
      return type;
    }
  }
  return Type::kNone;
}

Rounding Lowering::TakeRounding() {
  if (Take("rn")) return Rounding::kRn;
  if (Take("rz")) return Rounding::kRz;
  if (Take("rm")) return Rounding::kRm;
  if (Take("rp")) return Rounding::kRp;
  if (Take("rna")) return Rounding::kRna;
  if (Take("rni")) return Rounding::kRni;
  if (Take("rzi")) return Rounding::kRzi;
  if (Take("rmi")) return Rounding::kRmi;
  if (Take("rpi")) return Rounding::kRpi;
  return Rounding::kNone;
}

VectorFlags Lowering::TakeArithmeticFlags() {
  VectorFlags flags;
  flags.ftz = Take("ftz");
  flags.sat = Take("sat");
  flags.nan = Take("NaN");
  flags.relu = Take("relu");
  return flags;
}

bool Lowering::TakeCompare(Compare* compare, bool unsigned_names) {
  static constexpr std::pair<std::string_view, Compare> kNames[] = {
      {"eq", Compare::kEq},   {"ne", Compare::kNe},   {"lt", Compare::kLt},
      {"le", Compare::kLe},   {"gt", Compare::kGt},   {"ge", Compare::kGe},
      {"equ", Compare::kEqu}, {"neu", Compare::kNeu}, {"ltu", Compare::kLtu},
      {"leu", Compare::kLeu}, {"gtu", Compare::kGtu}, {"geu", Compare::kGeu},
      {"num", Compare::kNum}, {"nan", Compare::kNan}};
  static constexpr std::pair<std::string_view, Compare> kUnsigned[] = {
      {"lo", Compare::kLt}, {"ls", Compare::kLe}, {"hi", Compare::kGt}, {"hs", Compare::kGe}};
  for (const auto& [name, value] : kNames) {
    if (Take(name)) {
      *compare = value;
      return true;
    }
  }
  if (unsigned_names) {
    for (const auto& [name, value] : kUnsigned) {
      if (Take(name)) {
        *compare = value;
        return true;
      }
    }
  }
  return false;
}

void Lowering::TakeCacheHints() {
  for (size_t i = 1; i < parts_.size(); ++i) {
    const std::string_view p = parts_[i];
    if (p == "ca" || p == "cg" || p == "cs" || p == "lu" || p == "cv" || p == "wb" || p == "wt" ||
        p == "nc" || p.substr(0, 4) == "L1::" || p.substr(0, 4) == "L2::" ||
        p == "cluster_ctarank" || p == "unified") {
      parts_[i] = {};
    }
  }
}

Space Lowering::TakeSpace(Space fallback) {
  if (Take("global")) return Space::kGlobal;
  if (Take("shared") || Take("shared::cta") || Take("shared::cluster")) return Space::kShared;
  if (Take("local")) return Space::kLocal;
  if (Take("const")) return Space::kConst;
  if (Take("param") || Take("param::entry") || Take("param::func")) return Space::kParam;
  return fallback;
}

std::pair<Space, Space> Lowering::TakeDirection() {
  std::pair<Space, Space> direction = {Space::kGeneric, Space::kGeneric};
  size_t found = 0;
  for (size_t i = 1; i < parts_.size() && found < 2; ++i) {
    Space space = Space::kGeneric;
    if (parts_[i] == "global") space = Space::kGlobal;
    if (parts_[i] == "shared::cta" || parts_[i] == "shared::cluster") space = Space::kShared;
    if (space == Space::kGeneric) continue;
    parts_[i] = {};
    (found++ == 0 ? direction.first : direction.second) = space;
  }
  return direction;
}

bool Lowering::TakeAtomOp(AtomOp* op) {
  static constexpr std::pair<std::string_view, AtomOp> kOps[] = {
      {"add", AtomOp::kAdd}, {"min", AtomOp::kMin},   {"max", AtomOp::kMax}, {"inc", AtomOp::kInc},
      {"dec", AtomOp::kDec}, {"exch", AtomOp::kExch}, {"cas", AtomOp::kCas}, {"and", AtomOp::kAnd},
      {"or", AtomOp::kOr},   {"xor", AtomOp::kXor}};
  for (const auto& [name, value] : kOps) {
    if (Take(name)) {
      *op = value;
      return true;
    }
  }
  return false;
}

uint32_t Lowering::TakeMemoryOrder() {
  uint32_t aux = 0;
  if (Take("volatile")) aux |= MemoryAux::kPolling;
  if (Take("relaxed")) aux |= MemoryAux::kPolling;
  if (Take("mmio")) aux |= MemoryAux::kPolling;
  if (Take("acquire")) aux |= MemoryAux::kPolling | MemoryAux::kAcquire;
  if (Take("release")) aux |= MemoryAux::kRelease;
  if (Take("acq_rel")) aux |= MemoryAux::kPolling | MemoryAux::kAcquire | MemoryAux::kRelease;
  Take("weak");
  for (std::string_view scope : {"cta", "cluster", "gpu", "sys"}) Take(scope);
  return aux;
}

uint32_t Lowering::TakeVector() {
  if (Take("v2")) return 2;
  if (Take("v4")) return 4;
  if (Take("v8")) return 8;
  return 1;
}

bool Lowering::AllUsed() {
  for (size_t i = 1; i < parts_.size(); ++i) {
    if (!parts_[i].empty()) {
      FailUnknown();
      break;
    }
  }
  return ok();
}

// --- operands ---

int32_t Lowering::NewTemp(RegClass c) {
  if (low_.vregs.size() >= ParseLimits::kVregsPerFunction * 2) {
    Fail("too many registers");
    return 0;
  }
  low_.vregs.push_back(c);
  return static_cast<int32_t>(low_.vregs.size() - 1);
}

int32_t Lowering::ConstantEntry(ConstEntry entry) {
  const uint64_t hash = (entry.value * 0x9e3779b97f4a7c15u) ^ (entry.high * 31) ^
                        (uint64_t{entry.index} << 8) ^ (static_cast<uint64_t>(entry.kind) << 4) ^
                        static_cast<uint64_t>(entry.reg_class);
  auto& bucket = constants_[hash];
  for (const auto& [known, number] : bucket) {
    if (known.kind == entry.kind && known.reg_class == entry.reg_class &&
        known.index == entry.index && known.value == entry.value && known.high == entry.high) {
      return -1 - number;
    }
  }
  std::vector<ConstEntry>& consts = low_.code->consts;
  const int32_t number = static_cast<int32_t>(consts.size());
  consts.push_back(entry);
  bucket.emplace_back(entry, number);
  return -1 - number;
}

int32_t Lowering::Constant(RegClass c, uint64_t value, uint64_t high) {
  ConstEntry entry;
  entry.reg_class = c;
  entry.value = c == RegClass::kPred ? (value != 0 ? 1 : 0)
                : c == RegClass::k32 ? value & 0xffffffffu
                                     : value;
  entry.high = high;
  return ConstantEntry(entry);
}

int32_t Lowering::CarryFlag() {
  if (carry_ < 0) carry_ = NewTemp(RegClass::kPred);
  return carry_;
}

// Returns the address of a variable or function as a value.
int32_t Lowering::SymbolAddress(const Operand& o, RegClass wanted) {
  const bool wide = wanted == RegClass::k64;
  auto dynamic_shared = [&](uint64_t align) {
    low_.code->dynamic_shared_align =
        std::max(low_.code->dynamic_shared_align, static_cast<uint32_t>(align));
    const int32_t d = NewTemp(wanted);
    LowInstr& low = EmitUnguarded(DynamicSharedHandler(wide), CostCounters::kInteger);
    low.in.d = d;
    low.in.imm = o.value;
    return d;
  };
  if (o.kind == Operand::Kind::kVariable || (o.kind == Operand::Kind::kAddress && o.var >= 0)) {
    const Variable& v = ast_.vars[static_cast<size_t>(o.var)];
    const size_t index = static_cast<size_t>(o.var);
    switch (v.space) {
      case Space::kShared: {
        if (v.is_extern || v.unsized) return dynamic_shared(v.align);
        ConstEntry entry;
        entry.kind = ConstEntry::Kind::kOwnShared;
        entry.reg_class = wanted;
        entry.value = shared_offset_[index] + static_cast<uint64_t>(o.value);
        return ConstantEntry(entry);
      }
      case Space::kLocal: {
        const int32_t d = NewTemp(wanted);
        LowInstr& low = EmitUnguarded(LocalAddressHandler(wide), CostCounters::kInteger);
        low.in.d = d;
        low.in.imm = local_offset_[index] + o.value;
        return d;
      }
      case Space::kParam:
        if (ast_.is_entry && kernel_param_offset_.size() > index && index < ast_.params.size()) {
          return Constant(wanted, kernel_param_offset_[index] + static_cast<uint64_t>(o.value));
        }
        Fail("the address of parameter '" + std::string(v.name) + "' is taken");
        return 0;
      default:
        break;
    }
  }
  const auto it = symbols_.symbols.find(o.name);
  if (it == symbols_.symbols.end()) {
    Fail("unknown name '" + std::string(o.name.substr(0, 100)) + "'");
    return 0;
  }
  const SymbolTable::Symbol& symbol = it->second;
  ConstEntry entry;
  entry.reg_class = wanted;
  switch (symbol.kind) {
    case SymbolTable::Symbol::Kind::kGlobal:
      if (!wide) Fail("the address of '" + std::string(o.name) + "' needs a 64-bit register");
      entry.kind = ConstEntry::Kind::kGlobal;
      entry.index = symbol.index;
      entry.value = static_cast<uint64_t>(o.value);
      return ConstantEntry(entry);
    case SymbolTable::Symbol::Kind::kShared:
      low_.code->uses_module_shared = true;
      return Constant(wanted, symbol.value + static_cast<uint64_t>(o.value));
    case SymbolTable::Symbol::Kind::kDynamicShared:
      return dynamic_shared(symbol.value);
    case SymbolTable::Symbol::Kind::kFunction:
    case SymbolTable::Symbol::Kind::kKernel:
      if (!wide) Fail("the address of '" + std::string(o.name) + "' needs a 64-bit register");
      low_.code->callees.push_back(symbol.index);
      entry.kind = ConstEntry::Kind::kFunction;
      entry.index = symbol.index;
      return ConstantEntry(entry);
    default:
      Fail("the address of '" + std::string(o.name.substr(0, 100)) + "' is taken");
      return 0;
  }
}

int32_t Lowering::SourceClass(const Operand& o, RegClass wanted, Type type) {
  if (!ok()) return 0;
  if (o.selector != 0)
    Fail("a part of a register in '" + std::string(statement_->opcode.substr(0, 100)) + "'");
  switch (o.kind) {
    case Operand::Kind::kRegister: {
      const RegClass have = low_.vregs[static_cast<size_t>(o.vreg)];
      int32_t source = o.vreg;
      if (have != wanted) {
        if (have == RegClass::k64 && wanted == RegClass::k32) {
          source = NewTemp(RegClass::k32);
          LowInstr& low = EmitUnguarded(SelectVectorOp(VectorOp::kTrunc64To32, Type::kB32, {}),
                                        CostCounters::kInteger);
          low.in.d = source;
          low.in.a = o.vreg;
        } else if (have == RegClass::k32 && wanted == RegClass::k64 && SizeOf(type) < 8) {
          source = NewTemp(RegClass::k64);
          LowInstr& low = EmitUnguarded(
              SelectVectorOp(IsSigned(type) ? VectorOp::kSext32To64 : VectorOp::kZext32To64,
                             Type::kB64, {}),
              CostCounters::kInteger);
          low.in.d = source;
          low.in.a = o.vreg;
        } else {
          Fail("operand of the wrong width for '" + std::string(statement_->opcode.substr(0, 100)) +
               "'");
          return 0;
        }
      }
      if (o.negated && wanted != RegClass::kPred) {  // "-%r1"
        const int32_t d = NewTemp(wanted);
        const Type t = IsFloat(type) ? type : wanted == RegClass::k64 ? Type::kS64 : Type::kS32;
        const ExecFn fn = SelectVectorOp(VectorOp::kNeg, t, {});
        if (fn == nullptr) {
          FailUnknown();
          return 0;
        }
        LowInstr& low = EmitUnguarded(fn, CostCounters::kInteger);
        low.in.d = d;
        low.in.a = source;
        return d;
      }
      return source;
    }
    case Operand::Kind::kInteger: {
      if (type == Type::kF32)
        return Constant(wanted, std::bit_cast<uint32_t>(static_cast<float>(o.value)));
      if (type == Type::kF64)
        return Constant(wanted, std::bit_cast<uint64_t>(static_cast<double>(o.value)));
      return Constant(wanted, static_cast<uint64_t>(o.value), o.value < 0 ? ~uint64_t{0} : 0);
    }
    case Operand::Kind::kFloat32: {
      const uint32_t bits = static_cast<uint32_t>(o.value);
      if (wanted == RegClass::k64) {
        return Constant(wanted,
                        std::bit_cast<uint64_t>(static_cast<double>(std::bit_cast<float>(bits))));
      }
      return Constant(wanted, bits);
    }
    case Operand::Kind::kFloat64: {
      const uint64_t bits = static_cast<uint64_t>(o.value);
      if (wanted == RegClass::k32) {
        return Constant(wanted,
                        std::bit_cast<uint32_t>(static_cast<float>(std::bit_cast<double>(bits))));
      }
      return Constant(wanted, bits);
    }
    case Operand::Kind::kVariable:
      if (wanted != RegClass::k32 && wanted != RegClass::k64) break;
      return SymbolAddress(o, wanted);
    case Operand::Kind::kSymbol: {
      if (wanted != RegClass::k32 && wanted != RegClass::k64) break;
      if (IsSreg(o.name)) {
        const int32_t d = NewTemp(wanted);
        if (!EmitSreg(o.name, d, wanted == RegClass::k64)) FailUnknown();
        return d;
      }
      return SymbolAddress(o, wanted);
    }
    default:
      break;
  }
  Fail("unexpected operand for '" + std::string(statement_->opcode.substr(0, 100)) + "'");
  return 0;
}

int32_t Lowering::Source(const Operand& o, Type type) {
  return SourceClass(o, ClassOf(type), type);
}

int32_t Lowering::PredSource(const Operand& o, bool* negated) {
  *negated = o.negated;
  if (o.kind == Operand::Kind::kInteger) return Constant(RegClass::kPred, o.value != 0);
  if (o.kind != Operand::Kind::kRegister ||
      low_.vregs[static_cast<size_t>(o.vreg)] != RegClass::kPred) {
    Fail("expected a predicate operand for '" + std::string(statement_->opcode.substr(0, 100)) +
         "'");
    return 0;
  }
  return o.vreg;
}

int32_t Lowering::PredValue(const Operand& o) {
  bool negated = false;
  const int32_t p = PredSource(o, &negated);
  if (!ok() || !negated) return p;
  const int32_t inverse = NewTemp(RegClass::kPred);
  LowInstr& low =
      EmitUnguarded(SelectVectorOp(VectorOp::kPredNot, Type::kPred, {}), CostCounters::kInteger);
  low.in.d = inverse;
  low.in.a = p;
  return inverse;
}

int32_t Lowering::PredDestination(int32_t vreg) {
  if (vreg == -2) return kNoOperand;
  if (vreg < 0 || low_.vregs[static_cast<size_t>(vreg)] != RegClass::kPred) {
    Fail("expected a predicate destination for '" + std::string(statement_->opcode.substr(0, 100)) +
         "'");
    return 0;
  }
  return vreg;
}

int32_t Lowering::Destination(const Operand& o, Type type) {
  if (!ok()) return 0;
  if (o.selector != 0)
    Fail("a part of a register in '" + std::string(statement_->opcode.substr(0, 100)) + "'");
  const RegClass wanted = ClassOf(type);
  if (o.kind == Operand::Kind::kSink) return NewTemp(wanted);
  if (o.kind != Operand::Kind::kRegister) {
    Fail("the destination of '" + std::string(statement_->opcode.substr(0, 100)) +
         "' is no register");
    return 0;
  }
  const RegClass have = low_.vregs[static_cast<size_t>(o.vreg)];
  if (have == wanted) return o.vreg;
  if (have == RegClass::k64 && wanted == RegClass::k32) {
    const int32_t temp = NewTemp(RegClass::k32);
    pending_.push_back({temp, o.vreg, IsSigned(type)});
    return temp;
  }
  Fail("the destination of '" + std::string(statement_->opcode.substr(0, 100)) +
       "' has the wrong width");
  return 0;
}

int32_t Lowering::Address(const Operand& o, bool* address64, int64_t* offset) {
  *address64 = true;
  *offset = 0;
  if (o.kind != Operand::Kind::kAddress) {
    Fail("expected an address for '" + std::string(statement_->opcode.substr(0, 100)) + "'");
    return 0;
  }
  if (o.child_count != 0) {
    Fail("coordinates in the address of '" + std::string(statement_->opcode.substr(0, 100)) + "'");
    return 0;
  }
  switch (o.base_kind) {
    case Operand::Kind::kRegister: {
      const RegClass have = low_.vregs[static_cast<size_t>(o.vreg)];
      *address64 = have == RegClass::k64;
      *offset = o.value;
      if (have != RegClass::k64 && have != RegClass::k32) Fail("bad address register");
      return o.vreg;
    }
    case Operand::Kind::kInteger:
      return Constant(RegClass::k64, static_cast<uint64_t>(o.value));
    case Operand::Kind::kVariable:
    case Operand::Kind::kSymbol:
      return SymbolAddress(o, RegClass::k64);
    default:
      Fail("bad address");
      return 0;
  }
}

// --- emission ---

LowInstr& Lowering::EmitUnguarded(ExecFn fn, CostCounters::Class cost) {
  LowInstr low;
  low.in.fn = fn;
  low.in.line = statement_ != nullptr ? statement_->line : ast_.line;
  low.in.flags = static_cast<uint8_t>(cost << Instr::kClassShift);
  low_.instrs.push_back(std::move(low));
  return low_.instrs.back();
}

LowInstr& Lowering::Emit(ExecFn fn, CostCounters::Class cost) {
  LowInstr& low = EmitUnguarded(fn, cost);
  if (statement_ != nullptr && statement_->guard >= 0 && !guard_open_) {
    low.in.guard = statement_->guard;
    if (statement_->guard_negated) low.in.flags |= Instr::kGuardNegated;
  }
  return low;
}

void Lowering::FlushPending() {
  for (const PendingWiden& p : pending_) {
    LowInstr& low =
        Emit(SelectVectorOp(p.sign ? VectorOp::kSext32To64 : VectorOp::kZext32To64, Type::kB64, {}),
             CostCounters::kInteger);
    low.in.d = p.to;
    low.in.a = p.from;
  }
  pending_.clear();
}

uint32_t Lowering::NewLabel() {
  low_.labels.push_back(0);
  return static_cast<uint32_t>(low_.labels.size() - 1);
}

void Lowering::PlaceLabel(uint32_t label) {
  low_.labels[label] = static_cast<uint32_t>(low_.instrs.size());
}

bool Lowering::FindLabel(std::string_view name, uint32_t* label) {
  uint32_t scope = statement_->scope;
  for (;;) {
    const auto it = label_numbers_.find({scope, name});
    if (it != label_numbers_.end()) {
      *label = it->second;
      return true;
    }
    if (scope == 0) break;
    scope = ast_.scope_parent[scope];
  }
  Fail("unknown label '" + std::string(name.substr(0, 100)) + "'");
  return false;
}

void Lowering::BeginGuard() {
  if (statement_->guard < 0) return;
  guard_label_ = NewLabel();
  LowInstr& low = EmitUnguarded(ExecBranchCond, CostCounters::kControl);
  low.flow = LowInstr::Flow::kBranchCond;
  low.target = guard_label_;
  low.in.a = statement_->guard;
  low.in.aux = statement_->guard_negated ? 0 : 1;
  guard_open_ = true;
}

void Lowering::EndGuard() {
  if (!guard_open_) return;
  FlushPending();
  PlaceLabel(guard_label_);
  guard_open_ = false;
}

absl::Status Lowering::Run() {
  FunctionCode& code = *low_.code;
  // The places of the function's own variables.
  local_offset_.resize(ast_.vars.size());
  shared_offset_.resize(ast_.vars.size());
  uint64_t local = 0, shared = 0, param = 0;
  auto place = [](uint64_t* top, const Variable& v) {
    *top = (*top + v.align - 1) / v.align * v.align;
    const uint64_t at = *top;
    *top += v.size;
    return static_cast<uint32_t>(at);
  };
  for (size_t i = 0; i < ast_.vars.size(); ++i) {
    const Variable& v = ast_.vars[i];
    if (v.space == Space::kLocal) local_offset_[i] = place(&local, v);
    if (v.space == Space::kShared && !v.is_extern && !v.unsized) {
      shared_offset_[i] = place(&shared, v);
      code.shared_align = std::max(code.shared_align, v.align);
    }
    if (local > ParseLimits::kLocalBytes || shared > ParseLimits::kSharedBytes) {
      return PtxError(v.line, "variables of the function are too large");
    }
  }
  code.local_bytes = static_cast<uint32_t>((local + 15) / 16 * 16);
  code.shared_end = static_cast<uint32_t>(shared);
  code.param_area_bytes = (ast_.param_area_bytes + 15) / 16 * 16;
  if (ast_.is_entry) {
    for (const Variable& v : ast_.params) {
      kernel_param_offset_.push_back(place(&param, v));
      if (param > ParseLimits::kParamBytes) return PtxError(v.line, "too many parameters");
    }
  } else {
    PassRegisterFormals();
  }
  for (const auto& [key, index] : ast_.labels) {
    const uint32_t label = NewLabel();
    label_numbers_[key] = label;
    statement_labels_[index].push_back(label);
  }
  for (size_t i = 0; i <= ast_.statements.size() && ok(); ++i) {
    if (const auto it = statement_labels_.find(static_cast<uint32_t>(i));
        it != statement_labels_.end()) {
      for (uint32_t label : it->second) PlaceLabel(label);
    }
    if (i == ast_.statements.size()) break;
    statement_ = &ast_.statements[i];
    parts_ = SplitOpcode(statement_->opcode);
    guard_open_ = false;
    const auto handler = Handlers().find(parts_[0]);
    if (handler == Handlers().end() || parts_.size() >= 32) {
      FailUnknown();
      break;
    }
    (this->*handler->second)();
    FlushPending();
    EndGuard();
    if (low_.instrs.size() > (8u << 20) || low_.code->consts.size() > (1u << 20))
      Fail("function too large");
  }
  return status_;
}

}  // namespace detshare::soft::ptx
