// Branches, calls, barriers, lane communication, special registers.
#include "server/backends/soft/ptx/lower.h"
#include "server/backends/soft/ptx/parser.h"

namespace detshare::soft::ptx {

void Lowering::LowerBra() {
  Take("uni");
  if (!AllUsed() || !NeedOperands(1, 1)) return;
  uint32_t label = 0;
  if (Op(0).kind != Operand::Kind::kSymbol) return Fail("the target of a branch is not a label");
  if (!FindLabel(Op(0).name, &label)) return;
  if (statement_->guard < 0) {
    LowInstr& low = EmitUnguarded(ExecBranch, CostCounters::kControl);
    low.flow = LowInstr::Flow::kBranch;
    low.target = label;
    return;
  }
  LowInstr& low = EmitUnguarded(ExecBranchCond, CostCounters::kControl);
  low.flow = LowInstr::Flow::kBranchCond;
  low.target = label;
  low.in.a = statement_->guard;
  low.in.aux = statement_->guard_negated ? 1 : 0;
}

void Lowering::LowerBrx() {
  if (!Take("idx")) return FailUnknown();
  Take("uni");
  if (!AllUsed() || !NeedOperands(2, 2)) return;
  if (Op(1).kind != Operand::Kind::kSymbol) return FailUnknown();
  BeginGuard();
  const int32_t a = Source(Op(0), Type::kU32);
  uint32_t list = 0;
  if (!ok() || !FindTargetList(Op(1).name, &list)) return;
  // The control-flow graph has an edge for each target of each of these instructions.
  low_.branch_target_count += low_.target_lists[list].size();
  if (low_.branch_target_count > ParseLimits::kBranchTargetsPerModule)
    return Fail("too many branch targets");
  LowInstr& low = EmitUnguarded(ExecBranchIndex, CostCounters::kControl);
  low.flow = LowInstr::Flow::kBranchIndex;
  low.target = list;
  low.in.a = a;
}

bool Lowering::FindTargetList(std::string_view name, uint32_t* list) {
  uint32_t scope = statement_->scope;
  auto found = ast_.branch_targets.find({scope, name});
  while (found == ast_.branch_targets.end() && scope != 0) {
    scope = ast_.scope_parent[scope];
    found = ast_.branch_targets.find({scope, name});
  }
  if (found == ast_.branch_targets.end()) {
    Fail("unknown branch targets '" + std::string(name.substr(0, 100)) + "'");
    return false;
  }
  const auto [number, fresh] =
      target_list_numbers_.emplace(found->first, static_cast<uint32_t>(low_.target_lists.size()));
  *list = number->second;
  if (!fresh) return true;
  std::vector<uint32_t> labels;
  for (std::string_view target : found->second) {
    uint32_t label = 0;
    if (!FindLabel(target, &label)) return false;
    labels.push_back(label);
  }
  low_.target_lists.push_back(std::move(labels));
  return true;
}

// Formals in registers, which hand-written PTX has, also pass through the parameter area.
void Lowering::PassRegisterFormals() {
  FunctionCode& code = *low_.code;
  uint32_t top = code.param_area_bytes;
  auto place = [&](const Variable& v, int32_t reg) {
    if (reg < 0) return ParamPlace{v.area_offset, static_cast<uint32_t>(v.size)};
    const uint32_t size = ClassOf(v.type) == RegClass::k64    ? 8
                          : ClassOf(v.type) == RegClass::k128 ? 16
                                                              : 4;
    top = (top + size - 1) / size * size;
    const ParamPlace p{top, size};
    top += size;
    return p;
  };
  for (size_t i = 0; i < ast_.returns.size(); ++i)
    code.returns.push_back(place(ast_.returns[i], ast_.return_regs[i]));
  for (size_t i = 0; i < ast_.params.size(); ++i) {
    const ParamPlace p = place(ast_.params[i], ast_.param_regs[i]);
    code.params.push_back(p);
    if (ast_.param_regs[i] < 0) continue;
    if (ast_.params[i].type == Type::kPred) return Fail("predicate parameters are not supported");
    LowInstr& low = EmitUnguarded(SelectParamAreaLoad(p.size == 8    ? Type::kB64
                                                      : p.size == 16 ? Type::kB128
                                                                     : Type::kB32),
                                  CostCounters::kInteger);
    low.in.d = ast_.param_regs[i];
    low.in.imm = p.offset;
  }
  code.param_area_bytes = (top + 15) / 16 * 16;
}

// Returns the address of an indirect call; kNoOperand for a direct call.
int32_t Lowering::CallTarget(const Operand& target, CallSite* call) {
  if (target.kind == Operand::Kind::kRegister) {
    low_.code->has_indirect_calls = true;
    return Source(target, Type::kB64);
  }
  if (target.kind != Operand::Kind::kSymbol) {
    FailUnknown();
    return kNoOperand;
  }
  const auto it = symbols_.symbols.find(target.name);
  if (it == symbols_.symbols.end()) {
    Fail("call of unknown function '" + std::string(target.name.substr(0, 100)) + "'");
  } else if (it->second.kind == SymbolTable::Symbol::Kind::kBuiltin) {
    call->builtin = static_cast<Builtin>(it->second.index);
  } else if (it->second.kind == SymbolTable::Symbol::Kind::kFunction) {
    call->callee = static_cast<int32_t>(it->second.index);
    low_.code->callees.push_back(it->second.index);
  } else {
    Fail("call of '" + std::string(target.name.substr(0, 100)) + "', which is not a function");
  }
  return kNoOperand;
}

// Returns a new place at the end of the area, for a register or immediate.
ParamPlace Lowering::NewParamPlace(uint32_t size) {
  FunctionCode& code = *low_.code;
  const uint32_t offset = (code.param_area_bytes + 15) / 16 * 16;
  code.param_area_bytes = offset + 16;
  return ParamPlace{offset, size};
}

ParamPlace Lowering::VariablePlace(const Operand& o) {
  const Variable& v = ast_.vars[static_cast<size_t>(o.var)];
  if (v.space != Space::kParam ||
      (ast_.is_entry && static_cast<size_t>(o.var) < ast_.params.size())) {
    Fail("'" + std::string(v.name.substr(0, 100)) + "' cannot be passed");
    return {};
  }
  return {v.area_offset, static_cast<uint32_t>(v.size)};
}

void Lowering::PassArguments(const Operand& args, CallSite* call) {
  for (uint32_t i = 0; i < args.child_count && ok(); ++i) {
    const Operand& o = Child(args, i);
    ParamPlace place;
    if (o.kind == Operand::Kind::kVariable) {
      place = VariablePlace(o);
    } else {
      Type type = Type::kB32;
      if (o.kind == Operand::Kind::kRegister &&
          low_.vregs[static_cast<size_t>(o.vreg)] == RegClass::k64)
        type = Type::kB64;
      if (o.kind == Operand::Kind::kFloat64) type = Type::kB64;
      place = NewParamPlace(SizeOf(type));
      const int32_t value = Source(o, type);
      LowInstr& low = EmitUnguarded(SelectParamAreaStore(type), CostCounters::kInteger);
      low.in.b = value;
      low.in.imm = place.offset;
    }
    call->args.push_back(place);
  }
}

// Returns the registers among the results. After the call they are loaded from the places.
std::vector<std::pair<int32_t, ParamPlace>> Lowering::ReturnPlaces(const Operand& returns,
                                                                   CallSite* call) {
  std::vector<std::pair<int32_t, ParamPlace>> loads;
  for (uint32_t i = 0; i < returns.child_count && ok(); ++i) {
    const Operand& o = Child(returns, i);
    ParamPlace place;
    if (o.kind == Operand::Kind::kVariable) {
      place = VariablePlace(o);
    } else if (o.kind == Operand::Kind::kRegister &&
               low_.vregs[static_cast<size_t>(o.vreg)] != RegClass::kPred) {
      place = NewParamPlace(low_.vregs[static_cast<size_t>(o.vreg)] == RegClass::k64 ? 8 : 4);
      loads.emplace_back(o.vreg, place);
    } else if (o.kind != Operand::Kind::kSink) {
      FailUnknown();
    }
    call->returns.push_back(place);
  }
  return loads;
}

void Lowering::LowerCall() {
  Take("uni");
  if (!AllUsed() || !NeedOperands(1, 4)) return;
  size_t at = 0;
  const Operand* returns = nullptr;
  const Operand* args = nullptr;
  if (Op(at).kind == Operand::Kind::kList) returns = &Op(at++);
  if (at >= OpCount()) return FailUnknown();
  const Operand& target = Op(at++);
  if (at < OpCount() && Op(at).kind == Operand::Kind::kList) args = &Op(at++);
  if (at < OpCount()) ++at;  // a prototype or target list, not needed: the variables have the types
  if (at != OpCount()) return FailUnknown();
  BeginGuard();
  CallSite call;
  const int32_t address = CallTarget(target, &call);
  if (!ok()) return;
  if (args != nullptr) PassArguments(*args, &call);
  std::vector<std::pair<int32_t, ParamPlace>> loads;
  if (returns != nullptr) loads = ReturnPlaces(*returns, &call);
  if (!ok()) return;
  FunctionCode& code = *low_.code;
  if (code.param_area_bytes > (1u << 18)) return Fail("too many parameter variables");
  LowInstr& low = EmitUnguarded(ExecCall, CostCounters::kControl);
  low.in.a = address;
  low.in.imm = static_cast<int64_t>(code.calls.size());
  code.calls.push_back(std::move(call));
  if (address != kNoOperand) {
    // Lanes that called different functions join here.
    EmitUnguarded(ExecJoin, CostCounters::kControl);
  }
  for (const auto& [reg, place] : loads) {
    LowInstr& load = EmitUnguarded(SelectParamAreaLoad(place.size == 8 ? Type::kB64 : Type::kB32),
                                   CostCounters::kInteger);
    load.in.d = reg;
    load.in.imm = place.offset;
  }
}

void Lowering::LowerRet() {
  Take("uni");
  if (!AllUsed() || !NeedOperands(0, 0)) return;
  if (ast_.is_entry) {
    LowInstr& low = Emit(ExecExit, CostCounters::kControl);
    if (statement_->guard < 0) low.flow = LowInstr::Flow::kReturn;
    return;
  }
  for (size_t i = 0; i < ast_.return_regs.size(); ++i) {
    if (ast_.return_regs[i] < 0) continue;
    const ParamPlace& p = low_.code->returns[i];
    LowInstr& low =
        Emit(SelectParamAreaStore(p.size == 8 ? Type::kB64 : Type::kB32), CostCounters::kInteger);
    low.in.b = ast_.return_regs[i];
    low.in.imm = p.offset;
  }
  BeginGuard();
  LowInstr& low = EmitUnguarded(ExecBranch, CostCounters::kControl);
  low.flow = LowInstr::Flow::kReturn;
}

void Lowering::LowerExit() {
  if (!AllUsed() || !NeedOperands(0, 0)) return;
  LowInstr& low = Emit(ExecExit, CostCounters::kControl);
  if (statement_->guard < 0) low.flow = LowInstr::Flow::kExit;
}

void Lowering::LowerTrap() {
  if (!AllUsed() || !NeedOperands(0, 0)) return;
  Emit(ExecTrap, CostCounters::kControl);
}

void Lowering::LowerUnsupported() { Emit(ExecUnsupported, CostCounters::kControl); }

void Lowering::LowerNop() { Emit(ExecNop, CostCounters::kControl); }

void Lowering::LowerBar() {
  if (Take("warp")) return LowerWarpSync();
  if (Take("cluster")) return LowerBarrierCluster();
  Take("cta");
  Take("aligned");
  const bool sync = Take("sync"), arrive = Take("arrive"), red = Take("red");
  if (sync + arrive + red != 1) return FailUnknown();
  uint32_t aux = sync ? BarrierAux::kSync : BarrierAux::kArrive;
  Type type = Type::kNone;
  if (red) {
    aux = Take("popc")  ? BarrierAux::kRedPopc
          : Take("and") ? BarrierAux::kRedAnd
                        : BarrierAux::kRedOr;
    if (aux == BarrierAux::kRedOr && !Take("or")) return FailUnknown();
    type = TakeType();
    if (type != (aux == BarrierAux::kRedPopc ? Type::kU32 : Type::kPred)) return FailUnknown();
  }
  if (!AllUsed() || !NeedOperands(red ? 3 : 1, red ? 4 : 2)) return;
  BeginGuard();
  const size_t first = red ? 1 : 0;
  const int32_t a = Source(Op(first), Type::kU32);
  const bool has_count = OpCount() == first + 2 + (red ? 1 : 0);
  const int32_t b = has_count ? Source(Op(first + 1), Type::kU32) : kNoOperand;
  if (arrive && !has_count) return FailUnknown();
  int32_t c = kNoOperand, d = kNoOperand;
  if (red) {
    bool negated = false;
    c = PredSource(Op(OpCount() - 1), &negated);
    if (negated) aux |= BarrierAux::kPredNegated;
    d = type == Type::kPred
            ? PredDestination(Op(0).kind == Operand::Kind::kRegister ? Op(0).vreg : -1)
            : Destination(Op(0), Type::kU32);
  }
  if (!ok()) return;
  LowInstr& low = EmitUnguarded(ExecBarrier, CostCounters::kControl);
  low.in.a = a;
  low.in.b = b;
  low.in.c = c;
  low.in.d = d;
  low.in.aux = aux;
}

void Lowering::LowerBarrierCluster() {
  Take("aligned");
  TakeMemoryOrder();
  const bool arrive = Take("arrive");
  if (!arrive && !Take("wait")) return FailUnknown();
  if (!AllUsed() || !NeedOperands(0, 0)) return;
  BeginGuard();
  LowInstr& low =
      EmitUnguarded(arrive ? ExecClusterArrive : ExecClusterWait, CostCounters::kControl);
  if (arrive) low.in.e = Constant(RegClass::k32, kFullMask);
}

void Lowering::LowerWarpSync() {
  if (!Take("sync") || !AllUsed() || !NeedOperands(1, 1)) return FailUnknown();
  BeginGuard();
  const int32_t a = Source(Op(0), Type::kB32);
  if (!ok()) return;
  LowInstr& low = EmitUnguarded(ExecWarpBarrier, CostCounters::kControl);
  low.in.e = a;
}

void Lowering::LowerShfl() {
  const bool sync = Take("sync");
  static constexpr std::string_view kModes[] = {"up", "down", "bfly", "idx"};
  int mode = -1;
  for (int i = 0; i < 4; ++i) {
    if (Take(kModes[i])) mode = i;
  }
  const Type type = TakeType();
  if (mode < 0 || SizeOf(type) != 4 || !AllUsed()) return FailUnknown();
  if (!NeedOperands(sync ? 5 : 4, sync ? 5 : 4)) return;
  BeginGuard();
  const int32_t a = Source(Op(1), type), b = Source(Op(2), Type::kU32),
                c = Source(Op(3), Type::kU32);
  const int32_t e = sync ? Source(Op(4), Type::kB32) : kNoOperand;
  const int32_t d = Destination(Op(0), type);
  const int32_t d2 = Op(0).pair == -1 ? kNoOperand : PredDestination(Op(0).pair);
  if (!ok()) return;
  LowInstr& low = EmitUnguarded(ExecShfl, CostCounters::kControl);
  low.in.d = d;
  low.in.d2 = d2;
  low.in.a = a;
  low.in.b = b;
  low.in.c = c;
  low.in.e = e;
  low.in.aux = static_cast<uint32_t>(mode);
}

void Lowering::LowerVote() {
  const bool sync = Take("sync");
  static constexpr std::string_view kModes[] = {"all", "any", "uni", "ballot"};
  int mode = -1;
  for (int i = 0; i < 4; ++i) {
    if (Take(kModes[i])) mode = i;
  }
  const Type type = TakeType();
  if (mode < 0 || type != (mode == 3 ? Type::kB32 : Type::kPred) || !AllUsed())
    return FailUnknown();
  if (!NeedOperands(sync ? 3 : 2, sync ? 3 : 2)) return;
  BeginGuard();
  bool negated = false;
  const int32_t a = PredSource(Op(1), &negated);
  const int32_t e = sync ? Source(Op(2), Type::kB32) : kNoOperand;
  const int32_t d = mode == 3
                        ? Destination(Op(0), type)
                        : PredDestination(Op(0).kind == Operand::Kind::kRegister ? Op(0).vreg : -1);
  if (!ok()) return;
  LowInstr& low = EmitUnguarded(ExecVote, CostCounters::kControl);
  low.in.d = d;
  low.in.a = a;
  low.in.e = e;
  low.in.aux = static_cast<uint32_t>(mode) | (negated ? 8 : 0);
}

void Lowering::LowerMatch() {
  const bool any = Take("any");
  if (!any && !Take("all")) return FailUnknown();
  if (!Take("sync")) return FailUnknown();
  const Type type = TakeType();
  if ((SizeOf(type) != 4 && SizeOf(type) != 8) || !AllUsed() || !NeedOperands(3, 3))
    return FailUnknown();
  BeginGuard();
  const int32_t a = Source(Op(1), type), e = Source(Op(2), Type::kB32);
  const int32_t d = Destination(Op(0), Type::kB32);
  const int32_t d2 = Op(0).pair == -1 ? kNoOperand : PredDestination(Op(0).pair);
  if (!ok()) return;
  const bool wide = SizeOf(type) == 8;
  LowInstr& low = EmitUnguarded(
      any ? (wide ? ExecMatchAny64 : ExecMatchAny32) : (wide ? ExecMatchAll64 : ExecMatchAll32),
      CostCounters::kControl);
  low.in.d = d;
  low.in.d2 = d2;
  low.in.a = a;
  low.in.e = e;
}

void Lowering::LowerRedux() {
  if (!Take("sync")) return FailUnknown();
  static constexpr std::string_view kOps[] = {"add", "min", "max", "and", "or", "xor"};
  int op = -1;
  for (int i = 0; i < 6; ++i) {
    if (Take(kOps[i])) op = i;
  }
  const Type type = TakeType();
  if (op < 0 || SizeOf(type) != 4 || IsFloat(type) || !AllUsed() || !NeedOperands(3, 3))
    return FailUnknown();
  BeginGuard();
  const int32_t a = Source(Op(1), type), e = Source(Op(2), Type::kB32);
  const int32_t d = Destination(Op(0), type);
  if (!ok()) return;
  LowInstr& low = EmitUnguarded(ExecRedux, CostCounters::kControl);
  low.in.d = d;
  low.in.a = a;
  low.in.e = e;
  low.in.aux = static_cast<uint32_t>(op) | (IsSigned(type) ? 8 : 0);
}

void Lowering::LowerElect() {
  if (!Take("sync") || !AllUsed() || !NeedOperands(2, 2)) return FailUnknown();
  BeginGuard();
  const int32_t e = Source(Op(1), Type::kB32);
  const int32_t d =
      Op(0).kind == Operand::Kind::kSink ? kNoOperand : Destination(Op(0), Type::kB32);
  const int32_t d2 = PredDestination(Op(0).pair);
  if (!ok()) return;
  LowInstr& low = EmitUnguarded(ExecElect, CostCounters::kControl);
  low.in.d = d;
  low.in.d2 = d2;
  low.in.e = e;
}

void Lowering::LowerActiveMask() {
  if (TakeType() != Type::kB32 || !AllUsed() || !NeedOperands(1, 1)) return FailUnknown();
  const int32_t d = Destination(Op(0), Type::kB32);
  if (!ok()) return;
  Emit(ExecActiveMask, CostCounters::kControl).in.d = d;
}

void Lowering::LowerNanosleep() {
  if (SizeOf(TakeType()) != 4 || !AllUsed() || !NeedOperands(1, 1)) return FailUnknown();
  const int32_t a = Source(Op(0), Type::kU32);
  if (!ok()) return;
  Emit(ExecNanosleep, CostCounters::kControl).in.a = a;
}

namespace {

struct SregName {
  std::string_view name;
  Sreg sreg;
};

constexpr SregName kSregs[] = {
    {"%tid.x", Sreg::kTidX},
    {"%tid.y", Sreg::kTidY},
    {"%tid.z", Sreg::kTidZ},
    {"%ntid.x", Sreg::kNtidX},
    {"%ntid.y", Sreg::kNtidY},
    {"%ntid.z", Sreg::kNtidZ},
    {"%ctaid.x", Sreg::kCtaidX},
    {"%ctaid.y", Sreg::kCtaidY},
    {"%ctaid.z", Sreg::kCtaidZ},
    {"%nctaid.x", Sreg::kNctaidX},
    {"%nctaid.y", Sreg::kNctaidY},
    {"%nctaid.z", Sreg::kNctaidZ},
    {"%laneid", Sreg::kLaneid},
    {"%warpid", Sreg::kWarpid},
    {"%nwarpid", Sreg::kNwarpid},
    {"%smid", Sreg::kSmid},
    {"%nsmid", Sreg::kNsmid},
    {"%gridid", Sreg::kGridid},
    {"%lanemask_eq", Sreg::kLanemaskEq},
    {"%lanemask_le", Sreg::kLanemaskLe},
    {"%lanemask_lt", Sreg::kLanemaskLt},
    {"%lanemask_ge", Sreg::kLanemaskGe},
    {"%lanemask_gt", Sreg::kLanemaskGt},
    {"%clock", Sreg::kClock},
    {"%clock_hi", Sreg::kClockHi},
    {"%clock64", Sreg::kClock64},
    {"%globaltimer", Sreg::kGlobaltimer},
    {"%globaltimer_lo", Sreg::kGlobaltimerLo},
    {"%globaltimer_hi", Sreg::kGlobaltimerHi},
    {"%dynamic_smem_size", Sreg::kDynamicSmemSize},
    {"%total_smem_size", Sreg::kTotalSmemSize},
    {"%aggr_smem_size", Sreg::kAggrSmemSize},
    {"%reserved_smem_offset_begin", Sreg::kReservedSmemBegin},
    {"%reserved_smem_offset_end", Sreg::kReservedSmemEnd},
    {"%reserved_smem_offset_cap", Sreg::kReservedSmemBytes},
    {"%reserved_smem_offset_0", Sreg::kReservedSmemBegin},
    {"%reserved_smem_offset_1", Sreg::kReservedSmemMiddle},
    {"%clusterid.x", Sreg::kClusteridX},
    {"%clusterid.y", Sreg::kClusteridY},
    {"%clusterid.z", Sreg::kClusteridZ},
    {"%nclusterid.x", Sreg::kNclusteridX},
    {"%nclusterid.y", Sreg::kNclusteridY},
    {"%nclusterid.z", Sreg::kNclusteridZ},
    {"%cluster_ctaid.x", Sreg::kClusterCtaidX},
    {"%cluster_ctaid.y", Sreg::kClusterCtaidY},
    {"%cluster_ctaid.z", Sreg::kClusterCtaidZ},
    {"%cluster_nctaid.x", Sreg::kClusterNctaidX},
    {"%cluster_nctaid.y", Sreg::kClusterNctaidY},
    {"%cluster_nctaid.z", Sreg::kClusterNctaidZ},
    {"%cluster_ctarank", Sreg::kClusterCtarank},
    {"%cluster_nctarank", Sreg::kClusterNctarank},
    {"%current_graph_exec", Sreg::kCurrentGraphExec},
    {"%tid.w", Sreg::kZero},
    {"%ntid.w", Sreg::kZero},
    {"%ctaid.w", Sreg::kZero},
    {"%nctaid.w", Sreg::kZero},
    {"%clusterid.w", Sreg::kZero},
    {"%nclusterid.w", Sreg::kZero},
    {"%cluster_ctaid.w", Sreg::kZero},
    {"%cluster_nctaid.w", Sreg::kZero},
};

bool FindSreg(std::string_view name, Sreg* sreg, int* number) {
  *number = 0;
  for (const SregName& s : kSregs) {
    if (s.name == name) {
      *sreg = s.sreg;
      return true;
    }
  }
  auto numbered = [&](std::string_view prefix, int limit) {
    if (name.substr(0, prefix.size()) != prefix || name.size() == prefix.size() ||
        name.size() > prefix.size() + 2)
      return false;
    int n = 0;
    for (char c : name.substr(prefix.size())) {
      if (c < '0' || c > '9') return false;
      n = n * 10 + (c - '0');
    }
    *number = n;
    return n < limit;
  };
  if (numbered("%envreg", 32)) {
    *sreg = Sreg::kEnvreg;
    return true;
  }
  constexpr std::string_view kWide = "_64";
  if (name.size() > kWide.size() && name.substr(name.size() - kWide.size()) == kWide)
    name.remove_suffix(kWide.size());
  if (numbered("%pm", 8)) {
    *sreg = Sreg::kZero;
    return true;
  }
  return false;
}

}  // namespace

bool Lowering::IsSreg(std::string_view name) const {
  Sreg sreg;
  int number;
  return !name.empty() && name[0] == '%' && FindSreg(name, &sreg, &number);
}

bool Lowering::EmitSreg(std::string_view name, int32_t d, bool wide) {
  Sreg sreg;
  int number;
  if (!FindSreg(name, &sreg, &number)) return false;
  if (sreg >= Sreg::kReservedSmemBegin && sreg <= Sreg::kReservedSmemBytes)
    low_.code->uses_reserved_shared = true;
  LowInstr& low = Emit(SregHandler(wide), CostCounters::kInteger);
  low.in.d = d;
  low.in.aux = static_cast<uint32_t>(sreg);
  low.in.imm = number;
  return true;
}

}  // namespace detshare::soft::ptx
