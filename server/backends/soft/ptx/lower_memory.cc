// Loads, stores, atomics, addresses, fences.
#include "server/backends/soft/ptx/lower.h"

namespace detshare::soft::ptx {
namespace {

CostCounters::Class MemoryCost(Space space) {
  return space == Space::kShared || space == Space::kLocal ? CostCounters::kSharedMemory
         : space == Space::kParam                          ? CostCounters::kInteger
                                                           : CostCounters::kGlobalMemory;
}

}  // namespace

void Lowering::LowerLoad() {
  const Space space = TakeSpace(Space::kGeneric);
  const uint32_t aux = TakeMemoryOrder();
  TakeCacheHints();
  const uint32_t vector = TakeVector();
  const Type type = TakeType();
  if (SizeOf(type) == 0 || SizeOf(type) * vector > 32) return FailUnknown();
  if (!AllUsed() || !NeedOperands(2, 3)) return;
  if (space == Space::kParam && Op(1).kind == Operand::Kind::kAddress &&
      Op(1).base_kind != Operand::Kind::kRegister) {
    return LowerParamLoad(type, vector);
  }
  MemoryKey key{space, type, true, vector};
  int64_t offset = 0;
  const int32_t address = Address(Op(1), &key.address64, &offset);
  std::vector<int32_t> registers;
  if (vector == 1) {
    registers.push_back(Destination(Op(0), type));
  } else {
    if (Op(0).kind != Operand::Kind::kList || Op(0).child_count != vector) return FailUnknown();
    for (uint32_t i = 0; i < vector; ++i) registers.push_back(Destination(Child(Op(0), i), type));
  }
  const ExecFn fn = SelectLoad(key);
  if (fn == nullptr) return FailUnknown();
  if (!ok()) return;
  LowInstr& low = Emit(fn, MemoryCost(space));
  low.in.a = address;
  low.in.imm = offset;
  low.in.aux = aux;
  if (vector == 1) {
    low.in.d = registers[0];
    return;
  }
  low.in.count = static_cast<uint8_t>(vector);
  low.in.extra = static_cast<uint32_t>(low_.extras.size());
  low.extra_defs = static_cast<uint8_t>(vector);
  low_.extras.insert(low_.extras.end(), registers.begin(), registers.end());
}

void Lowering::LowerStore() {
  const bool async = Take("async");
  if (async && !Take("mbarrier::complete_tx::bytes")) return FailUnknown();
  const Space space = TakeSpace(Space::kGeneric);
  if (async && space != Space::kShared) return FailUnknown();
  const uint32_t aux = TakeMemoryOrder();
  TakeCacheHints();
  const uint32_t vector = TakeVector();
  const Type type = TakeType();
  if (SizeOf(type) == 0 || SizeOf(type) * vector > 32) return FailUnknown();
  if (!AllUsed() || !NeedOperands(async ? 3 : 2, 3)) return;
  if (space == Space::kParam) return LowerParamStore(type, vector);
  if (space == Space::kConst) return FailUnknown();
  MemoryKey key{space, type, true, vector};
  int64_t offset = 0;
  const int32_t address = Address(Op(0), &key.address64, &offset);
  std::vector<int32_t> registers;
  if (vector == 1) {
    registers.push_back(Source(Op(1), type));
  } else {
    if (Op(1).kind != Operand::Kind::kList || Op(1).child_count != vector) return FailUnknown();
    for (uint32_t i = 0; i < vector; ++i) registers.push_back(Source(Child(Op(1), i), type));
  }
  const ExecFn fn = SelectStore(key);
  if (fn == nullptr) return FailUnknown();
  if (!ok()) return;
  LowInstr& low = Emit(fn, MemoryCost(space));
  low.in.a = address;
  low.in.imm = offset;
  low.in.aux = aux;
  if (vector == 1) {
    low.in.b = registers[0];
  } else {
    low.in.count = static_cast<uint8_t>(vector);
    low.in.extra = static_cast<uint32_t>(low_.extras.size());
    low_.extras.insert(low_.extras.end(), registers.begin(), registers.end());
  }
  if (async) LowerArrival(Op(2), SizeOf(type) * vector);
}

// st.async and red.async are complete at their issue: they are the access, and then the arrival of
// its bytes at an mbarrier.
void Lowering::LowerArrival(const Operand& barrier, uint32_t bytes) {
  bool wide = true;
  int64_t offset = 0;
  const int32_t a = Address(barrier, &wide, &offset);
  if (!ok()) return;
  LowInstr& low = Emit(SelectMbarrier(MbarrierOp::kCompleteTx, wide, false), CostCounters::kAtomic);
  low.in.a = a;
  low.in.b = Constant(RegClass::k32, bytes);
  low.in.imm = offset;
}

void Lowering::LowerParamLoad(Type type, uint32_t vector) {
  const Operand& address = Op(1);
  if (address.base_kind != Operand::Kind::kVariable || address.child_count != 0 ||
      ast_.vars[static_cast<size_t>(address.var)].space != Space::kParam) {
    return Fail("not a parameter: '" + std::string(address.name.substr(0, 100)) + "'");
  }
  const Variable& v = ast_.vars[static_cast<size_t>(address.var)];
  const bool kernel = ast_.is_entry && static_cast<size_t>(address.var) < ast_.params.size();
  const uint64_t bytes = uint64_t{SizeOf(type)} * vector;
  if (address.value < 0 || static_cast<uint64_t>(address.value) + bytes > v.size)
    return Fail("access beyond the parameter");
  int64_t at = address.value +
               (kernel ? kernel_param_offset_[static_cast<size_t>(address.var)] : v.area_offset);
  if (at % SizeOf(type) != 0) return Fail("misaligned parameter access");
  const ExecFn fn = kernel ? SelectKernelParamLoad(type) : SelectParamAreaLoad(type);
  if (fn == nullptr) return FailUnknown();
  if (vector > 1 && (Op(0).kind != Operand::Kind::kList || Op(0).child_count != vector))
    return FailUnknown();
  for (uint32_t i = 0; i < vector && ok(); ++i, at += SizeOf(type)) {
    const Operand& to = vector == 1 ? Op(0) : Child(Op(0), i);
    if (to.kind == Operand::Kind::kSink) continue;
    const int32_t d = Destination(to, type);
    LowInstr& low = Emit(fn, CostCounters::kInteger);
    low.in.d = d;
    low.in.imm = at;
  }
}

void Lowering::LowerParamStore(Type type, uint32_t vector) {
  const Operand& address = Op(0);
  if (address.kind != Operand::Kind::kAddress || address.base_kind != Operand::Kind::kVariable ||
      address.child_count != 0 ||
      ast_.vars[static_cast<size_t>(address.var)].space != Space::kParam ||
      (ast_.is_entry && static_cast<size_t>(address.var) < ast_.params.size())) {
    return Fail("the parameter cannot be written");
  }
  const Variable& v = ast_.vars[static_cast<size_t>(address.var)];
  const uint64_t bytes = uint64_t{SizeOf(type)} * vector;
  if (address.value < 0 || static_cast<uint64_t>(address.value) + bytes > v.size)
    return Fail("access beyond the parameter");
  int64_t at = address.value + v.area_offset;
  const ExecFn fn = SelectParamAreaStore(type);
  if (fn == nullptr) return FailUnknown();
  if (vector > 1 && (Op(1).kind != Operand::Kind::kList || Op(1).child_count != vector))
    return FailUnknown();
  for (uint32_t i = 0; i < vector && ok(); ++i, at += SizeOf(type)) {
    const int32_t value = Source(vector == 1 ? Op(1) : Child(Op(1), i), type);
    LowInstr& low = Emit(fn, CostCounters::kInteger);
    low.in.b = value;
    low.in.imm = at;
  }
}

void Lowering::LowerAtom() {
  const bool red = parts_[0] == "red";
  const bool async = red && Take("async");
  if (async && !Take("mbarrier::complete_tx::bytes")) return FailUnknown();
  const Space space = TakeSpace(Space::kGeneric);
  if (async && space != Space::kShared) return FailUnknown();
  uint32_t aux = TakeMemoryOrder() | MemoryAux::kPolling;
  TakeCacheHints();
  const bool noftz = Take("noftz");
  Take("ftz");
  AtomOp op = AtomOp::kAdd;
  const bool found = TakeAtomOp(&op);
  const uint32_t vector = TakeVector();
  const Type type = TakeType();
  if (!found || (space != Space::kGeneric && space != Space::kGlobal && space != Space::kShared))
    return FailUnknown();
  if (!AllUsed()) return;
  const size_t first = red ? 0 : 1;
  const size_t wanted = first + (op == AtomOp::kCas ? 3 : 2);
  if (!NeedOperands(async ? wanted + 1 : wanted, wanted + 1)) return;
  MemoryKey key{space, type, true, vector, noftz};
  int64_t offset = 0;
  const int32_t address = Address(Op(first), &key.address64, &offset);
  const ExecFn fn = SelectAtomic(op, key);
  if (fn == nullptr) return FailUnknown();
  if (vector > 1) {
    std::vector<int32_t> registers;
    const Operand& values = Op(first + 1);
    if (values.kind != Operand::Kind::kList || values.child_count != vector) return FailUnknown();
    if (!red && (Op(0).kind != Operand::Kind::kList || Op(0).child_count != vector))
      return FailUnknown();
    for (uint32_t i = 0; !red && i < vector; ++i)
      registers.push_back(Destination(Child(Op(0), i), type));
    for (uint32_t i = 0; i < vector; ++i) registers.push_back(Source(Child(values, i), type));
    if (!ok()) return;
    LowInstr& low = Emit(fn, CostCounters::kAtomic);
    low.in.a = address;
    low.in.imm = offset;
    low.in.aux = aux | (red ? 0 : MemoryAux::kVectorResults);
    low.in.extra = static_cast<uint32_t>(low_.extras.size());
    low.in.count = static_cast<uint8_t>(registers.size());
    low.extra_defs = red ? 0 : static_cast<uint8_t>(vector);
    low_.extras.insert(low_.extras.end(), registers.begin(), registers.end());
    return;
  }
  const int32_t b = Source(Op(first + 1), type);
  const int32_t c = op == AtomOp::kCas ? Source(Op(first + 2), type) : kNoOperand;
  const int32_t d =
      red || Op(0).kind == Operand::Kind::kSink ? kNoOperand : Destination(Op(0), type);
  if (!ok()) return;
  LowInstr& low = Emit(fn, CostCounters::kAtomic);
  low.in.d = d;
  low.in.a = address;
  low.in.b = b;
  low.in.c = c;
  low.in.imm = offset;
  low.in.aux = aux;
  if (async) LowerArrival(Op(wanted), SizeOf(type));
}

void Lowering::LowerCvta() {
  const bool to = Take("to");
  const Space space = TakeSpace(Space::kGeneric);
  const Type type = TakeType();
  if (space == Space::kGeneric || (SizeOf(type) != 4 && SizeOf(type) != 8)) return FailUnknown();
  EmitSimple(SelectCvta(space, to, SizeOf(type) == 8), CostCounters::kInteger, type, {type});
}

void Lowering::LowerIsSpace() {
  const bool cluster = std::find(parts_.begin(), parts_.end(), "shared::cluster") != parts_.end();
  const Space space = TakeSpace(Space::kGeneric);
  if (space == Space::kGeneric || !AllUsed() || !NeedOperands(2, 2)) return FailUnknown();
  if (Op(1).kind != Operand::Kind::kRegister) return FailUnknown();
  const bool wide = low_.vregs[static_cast<size_t>(Op(1).vreg)] == RegClass::k64;
  const int32_t a = Source(Op(1), wide ? Type::kU64 : Type::kU32);
  const int32_t d = PredDestination(Op(0).kind == Operand::Kind::kRegister ? Op(0).vreg : -1);
  if (!ok()) return;
  LowInstr& low = Emit(SelectIsSpace(space, wide, cluster), CostCounters::kInteger);
  low.in.d = d;
  low.in.a = a;
}

// Prefetches are hints: a program sees no effect, not even for bad addresses.
void Lowering::LowerPrefetch() {
  for (std::string_view& p : parts_) {
    if (p == "L1" || p == "L2" || p.substr(0, 4) == "L2::" || p == "global" || p == "local" ||
        p == "tensormap" || p == "param" || p == "const") {
      p = {};
    }
  }
  if (AllUsed()) Emit(ExecNop, CostCounters::kControl);
}

void Lowering::LowerCreatePolicy() {
  if (OpCount() < 1) return FailUnknown();
  const int32_t d = Destination(Op(0), Type::kB64);
  if (!ok()) return;
  LowInstr& low = Emit(SelectVectorOp(VectorOp::kMov, Type::kB64, {}), CostCounters::kInteger);
  low.in.d = d;
  low.in.a = Constant(RegClass::k64, 0);
}

void Lowering::LowerMapa() {
  const bool generic = TakeSpace(Space::kGeneric) == Space::kGeneric;
  const Type type = TakeType();
  EmitSimple(SelectMapa(SizeOf(type) == 8, generic), CostCounters::kInteger, type,
             {type, Type::kU32});
}

void Lowering::LowerGetCtaRank() {
  const bool generic = TakeSpace(Space::kGeneric) == Space::kGeneric;
  const Type type = TakeType();
  EmitSimple(SelectGetCtaRank(SizeOf(type) == 8, generic), CostCounters::kInteger, Type::kU32,
             {type});
}

// cp.async copies at its issue, so groups are complete at once.
void Lowering::LowerCp() {
  const bool reduce = Take("reduce");
  if (!Take("async")) return FailUnknown();
  if (Take("bulk")) return LowerBulk(reduce);
  if (reduce) return FailUnknown();
  if (Take("commit_group") || Take("wait_all")) {
    if (AllUsed() && NeedOperands(0, 0)) Emit(ExecNop, CostCounters::kControl);
    return;
  }
  if (Take("wait_group")) {
    if (AllUsed() && NeedOperands(1, 1)) Emit(ExecNop, CostCounters::kControl);
    return;
  }
  if (Take("mbarrier")) {
    const bool noinc = Take("noinc");
    if (!Take("arrive")) return FailUnknown();
    const bool generic = TakeSpace(Space::kGeneric) == Space::kGeneric;
    TakeType();
    if (!AllUsed() || !NeedOperands(1, 1)) return;
    bool wide = true;
    int64_t offset = 0;
    const int32_t a = Address(Op(0), &wide, &offset);
    if (!ok()) return;
    LowInstr& low =
        Emit(SelectMbarrier(MbarrierOp::kCpAsyncArrive, wide, generic), CostCounters::kAtomic);
    low.in.a = a;
    low.in.imm = offset;
    low.in.aux = noinc ? 1 : 0;
    return;
  }
  TakeCacheHints();
  if (!Take("shared") && !Take("shared::cta")) return FailUnknown();
  if (!Take("global") || !AllUsed() || !NeedOperands(3, 5)) return FailUnknown();
  bool wide = true, global_wide = true;
  int64_t to = 0, from = 0;
  const int32_t a = Address(Op(0), &wide, &to);
  const int32_t b = Address(Op(1), &global_wide, &from);
  if (Op(2).kind != Operand::Kind::kInteger ||
      (Op(2).value != 4 && Op(2).value != 8 && Op(2).value != 16))
    return FailUnknown();
  if (to < INT32_MIN / 2 || to > INT32_MAX / 2 || from < INT32_MIN / 2 || from > INT32_MAX / 2)
    return FailUnknown();
  int32_t size = kNoOperand;
  if (OpCount() > 3) {
    const Operand& o = Op(3);
    const bool is_policy = o.kind == Operand::Kind::kRegister &&
                           low_.vregs[static_cast<size_t>(o.vreg)] == RegClass::k64;
    const bool is_predicate = o.kind == Operand::Kind::kRegister &&
                              low_.vregs[static_cast<size_t>(o.vreg)] == RegClass::kPred;
    if (is_predicate) {  // where it holds, the source is not read, and zeros are written
      const int32_t ignore = PredValue(o);
      size = NewTemp(RegClass::k32);
      LowInstr& select =
          EmitUnguarded(SelectVectorOp(VectorOp::kSelp, Type::kU32, {}), CostCounters::kInteger);
      select.in.d = size;
      select.in.a = Constant(RegClass::k32, 0);
      select.in.b = Constant(RegClass::k32, static_cast<uint64_t>(Op(2).value));
      select.in.c = ignore;
    } else if (!is_policy) {
      size = Source(o, Type::kU32);
    }
  }
  if (!ok()) return;
  LowInstr& low = Emit(SelectCpAsync(wide, global_wide), CostCounters::kGlobalMemory);
  low.in.a = a;
  low.in.b = b;
  low.in.c = size;
  low.in.imm = static_cast<int64_t>(static_cast<uint64_t>(to) << 32 | static_cast<uint32_t>(from));
  low.in.aux = static_cast<uint32_t>(Op(2).value);
}

void Lowering::LowerAlloca() {
  const Type type = TakeType();
  if (!AllUsed() || !NeedOperands(2, 3)) return;
  const int32_t a = Source(Op(1), type);
  const int32_t d = Destination(Op(0), type);
  int64_t align = 8;
  if (OpCount() == 3) align = Op(2).value;
  if (align <= 0 || align > 4096 || (align & (align - 1)) != 0) return FailUnknown();
  if (!ok() || (SizeOf(type) != 4 && SizeOf(type) != 8)) return FailUnknown();
  LowInstr& low = Emit(AllocaHandler(SizeOf(type) == 8), CostCounters::kInteger);
  low.in.d = d;
  low.in.a = a;
  low.in.imm = align;
}

void Lowering::LowerStack() {
  const bool save = parts_[0] == "stacksave";
  const Type type = TakeType();
  if (!AllUsed() || !NeedOperands(1, 1) || (SizeOf(type) != 4 && SizeOf(type) != 8))
    return FailUnknown();
  const bool wide = SizeOf(type) == 8;
  const int32_t r = save ? Destination(Op(0), type) : Source(Op(0), type);
  if (!ok()) return;
  LowInstr& low =
      Emit(save ? StackSaveHandler(wide) : StackRestoreHandler(wide), CostCounters::kInteger);
  (save ? low.in.d : low.in.a) = r;
}

void Lowering::LowerMbarrier() {
  const bool init = Take("init"), inval = Take("inval"), arrive = Take("arrive"),
             drop = Take("arrive_drop");
  const bool test = Take("test_wait") || Take("try_wait");
  const bool pending = Take("pending_count"), expect = Take("expect_tx"),
             complete = Take("complete_tx");
  const bool no_complete = Take("noComplete"), parity = Take("parity");
  const bool generic = TakeSpace(Space::kGeneric) == Space::kGeneric;
  const uint32_t aux = TakeMemoryOrder();
  if (TakeType() != Type::kB64 || !AllUsed()) return FailUnknown();
  MbarrierOp op;
  size_t address_at = 0, low_count = 1, high_count = 2;
  if (init) {
    op = MbarrierOp::kInit;
    low_count = 2;
  } else if (inval) {
    op = MbarrierOp::kInval;
    high_count = 1;
  } else if (test) {
    op = parity ? MbarrierOp::kTestWaitParity : MbarrierOp::kTestWait;
    address_at = 1;
    low_count = 3;
    high_count = 4;
  } else if (pending) {
    if (!NeedOperands(2, 2)) return;
    const int32_t a = Source(Op(1), Type::kB64);
    const int32_t d = Destination(Op(0), Type::kU32);
    if (!ok()) return;
    LowInstr& low =
        Emit(SelectMbarrier(MbarrierOp::kPendingCount, true, false), CostCounters::kInteger);
    low.in.d = d;
    low.in.b = a;
    return;
  } else if (arrive || drop) {
    op = expect && drop ? MbarrierOp::kArriveDropExpectTx
         : expect       ? MbarrierOp::kArriveExpectTx
         : drop         ? MbarrierOp::kArriveDrop
         : no_complete  ? MbarrierOp::kArriveNoComplete
                        : MbarrierOp::kArrive;
    // For barriers of other blocks the state is missing or _.
    address_at = OpCount() > 0 && Op(0).kind == Operand::Kind::kAddress ? 0 : 1;
    low_count = address_at + 1;
    high_count = address_at + 2;
  } else if (expect || complete) {
    op = expect ? MbarrierOp::kExpectTx : MbarrierOp::kCompleteTx;
    low_count = 2;
  } else {
    return FailUnknown();
  }
  if (!NeedOperands(low_count, high_count)) return;
  bool wide = true;
  int64_t offset = 0;
  const int32_t a = Address(Op(address_at), &wide, &offset);
  int32_t b = kNoOperand, d = kNoOperand;
  if (OpCount() > address_at + 1) {
    b = Source(Op(address_at + 1), op == MbarrierOp::kTestWait ? Type::kB64 : Type::kU32);
  }
  if (address_at == 1 && Op(0).kind != Operand::Kind::kSink) {
    d = test ? PredDestination(Op(0).kind == Operand::Kind::kRegister ? Op(0).vreg : -1)
             : Destination(Op(0), Type::kB64);
  }
  if (!ok()) return;
  LowInstr& low = Emit(SelectMbarrier(op, wide, generic), CostCounters::kAtomic);
  low.in.a = a;
  low.in.b = b;
  low.in.d = d;
  low.in.imm = offset;
  low.in.aux = aux;
}

void Lowering::LowerMembar() {
  for (std::string_view word : {"cta",
                                "gl",
                                "sys",
                                "gpu",
                                "cluster",
                                "sc",
                                "acq_rel",
                                "acquire",
                                "release",
                                "proxy",
                                "async",
                                "alias",
                                "global",
                                "async::generic",
                                "async.global",
                                "mbarrier_init",
                                "tensormap::generic",
                                "shared::cta",
                                "shared::cluster",
                                "async.shared::cta",
                                "sync_restrict",
                                "sync_restrict::shared::cta",
                                "sync_restrict::shared::cluster",
                                "shared"}) {
    Take(word);
  }
  if (AllUsed()) Emit(FenceHandler(), CostCounters::kControl);
}

}  // namespace detshare::soft::ptx
