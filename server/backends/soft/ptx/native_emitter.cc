#include "server/backends/soft/ptx/native_emitter.h"

#include <algorithm>
#include <cstddef>

#include "server/backends/soft/ptx/control_ops.h"
#include "server/backends/soft/ptx/memory_ops.h"
#include "server/backends/soft/ptx/native_operands.h"

namespace detshare::soft::ptx {

using namespace asmjit::x86;

namespace {

constexpr uint32_t kAddressSlots = 28;                   // of 16 bytes on the stack
constexpr int32_t kStackBytes = 16 * kAddressSlots + 8;  // calls need it aligned

}  // namespace

NativeConstants::NativeConstants() {
  for (uint32_t s = 0; s < 5; ++s) {
    for (uint32_t lane = 0; lane < kLanes; ++lane) {
      steps32[s][lane] = lane << s;
      steps64[s][lane] = uint64_t{lane} << s;
    }
  }
  for (uint32_t i = 0; i < 16; ++i) {
    for (uint32_t k = 0; k < 2; ++k) {
      deal2[k][i] = 2 * i + k;
      mix2[k][i] = i % 2 * 16 + 8 * k + i / 2;
    }
    for (uint32_t k = 0; k < 4; ++k) {
      deal4[k][i] = (4 * i + k) % 32;
      mix4[k][i] = i % 2 * 16 + 4 * k + i / 4;
    }
  }
  for (uint32_t i = 0; i < 8; ++i) {
    for (uint32_t k = 0; k < 2; ++k) {
      deal2_64[k][i] = 2 * i + k;
      mix2_64[k][i] = i % 2 * 8 + 4 * k + i / 2;
    }
  }
}

const NativeConstants kNativeConstants;

void EmitEnter(Assembler* assembler) {
  Assembler& a = *assembler;
  for (const Gp& r : {rbx, rbp, r12, r13, r14, r15}) a.push(r);
  a.sub(rsp, kStackBytes);
  a.mov(rbx, rdi);
  a.mov(r12, DETSHARE_CONTEXT(regs));
  a.mov(r13, DETSHARE_CONTEXT(consts));
  a.mov(rbp, DETSHARE_CONTEXT(counters));
  a.mov(r14, asmjit::imm(reinterpret_cast<uint64_t>(&kNativeConstants)));
  a.jmp(rsi);
}

NativeEmitter::NativeEmitter(const FunctionCode& function,
                             const std::vector<NativeSegment>& segments, uint32_t begin,
                             uint32_t end, asmjit::CodeHolder* holder)
    : function_(function),
      segments_(segments),
      begin_(begin),
      end_(end),
      holder_(holder),
      a_(holder) {
  holder->setErrorHandler(&failed_);
}

uint64_t NativeEmitter::EntryOffset(uint32_t segment) const {
  return holder_->labelOffset(labels_[segment - begin_].entry);
}

bool NativeEmitter::Emit() {
  labels_.resize(end_ - begin_);
  for (SegmentLabels& l : labels_) {
    l.entry = a_.newLabel();
    for (int some = 0; some < 2; ++some) {
      l.body[some] = a_.newLabel();
      l.start[some] = a_.newLabel();
    }
  }
  return_ = a_.newLabel();
  EmitVersion(false);
  EmitVersion(true);
  for (uint32_t s = begin_; s < end_; ++s) EmitEntry(s);
  a_.bind(return_);
  a_.vzeroupper();
  a_.add(rsp, kStackBytes);
  for (const Gp& r : {r15, r14, r13, r12, rbp, rbx}) a_.pop(r);
  a_.ret();
  return !failed_.failed;
}

void NativeEmitter::EmitEntry(uint32_t segment) {
  const SegmentLabels& l = labels_[segment - begin_];
  a_.bind(l.entry);
  a_.mov(r15d, DETSHARE_CONTEXT(mask));
  a_.cmp(r15d, -1);
  a_.je(l.start[0]);
  LoadMasks();
  a_.jmp(l.start[1]);
}

void NativeEmitter::EmitVersion(bool some_lanes) {
  some_lanes_ = some_lanes;
  reachable_ = false;
  for (uint32_t s = begin_; s < end_; ++s) EmitSegment(s);
  for (size_t i = 0; i < cold_.size(); ++i) {
    const Cold cold = std::move(cold_[i]);
    cold();
  }
  cold_.clear();
}

const NativeSegment* NativeEmitter::SegmentAt(uint32_t instr) const {
  const uint32_t number = instr < function_.code.size() ? function_.code[instr].segment : 0;
  if (number == 0 || number - 1 < begin_ || number - 1 >= end_) return nullptr;
  return &segments_[number - 1];
}

void NativeEmitter::EmitSegment(uint32_t segment) {
  const NativeSegment& s = segments_[segment];
  const SegmentLabels& l = labels_[segment - begin_];
  if (reachable_) Settle();
  if (s.target || !reachable_) {
    if (reachable_) StoreDirty();
    ForgetAll();
    addresses_.clear();
    free_slots_ = (1u << kAddressSlots) - 1;
    a_.bind(l.start[some_lanes_]);
    chain_end_ = s.begin + s.length;
    for (uint32_t next = segment + 1;
         next < end_ && segments_[next].begin == chain_end_ && !segments_[next].target; ++next)
      chain_end_ += segments_[next].length;
  } else {
    // A warp that enters here knows nothing of the addresses.
    cold_.push_back([this, start = l.start[some_lanes_], body = l.body[some_lanes_],
                     cached = cache_, addresses = addresses_] {
      a_.bind(start);
      for (const KnownAddress& k : addresses) a_.mov(KindWord(k.slot), kUnknown);
      LoadCold(cached);
      a_.jmp(body);
    });
  }
  a_.bind(l.body[some_lanes_]);
  const Label short_turn = a_.newLabel();
  a_.cmp(DETSHARE_CONTEXT(budget), s.length);
  a_.jl(short_turn);
  cold_.push_back([this, short_turn, cached = cache_, begin = s.begin] {
    a_.bind(short_turn);
    StoreCold(cached);
    Return(begin);
  });
  reachable_ = true;
  for (uint32_t i = s.begin; i < s.begin + s.length && reachable_; ++i) EmitInstr(i);
  const uint32_t end = s.begin + s.length;
  if (!reachable_) return;
  if (segment + 1 < end_ && segments_[segment + 1].begin == end) return;
  Settle();
  StoreDirty();
  GoTo(end);
  reachable_ = false;
}

void NativeEmitter::EmitInstr(uint32_t i) {
  const Instr& in = function_.code[i];
  const Meaning* meaning = MeaningOf(in.fn);
  instr_ = i;
  if (meaning != nullptr && in.guard < 0) {
    if (meaning->kind == Meaning::Kind::kBranch) return EmitBranch(in);
    if (meaning->kind == Meaning::Kind::kBranchCond) return EmitBranchCond(i);
  }
  ++pending_[in.cost_class()];
  if (in.fn == ExecNop) return;
  if (meaning != nullptr) {
    resume_ = a_.newLabel();
    bool done = false;
    using Kind = Meaning::Kind;
    if (meaning->kind == Kind::kLoad || meaning->kind == Kind::kStore) {
      done = in.guard < 0 && EmitMemory(i, *meaning);
    } else {
      BeginGuard(in);
      switch (meaning->kind) {
        case Kind::kVector:
          done = EmitVector(in, *meaning);
          break;
        case Kind::kKernelParam:
          EmitKernelParam(in, *meaning);
          done = true;
          break;
        case Kind::kSpecialRegister:
          done = EmitSpecialRegister(in);
          break;
        case Kind::kAddSharedWindow:
          EmitConstant64(in, 1);
          done = true;
          break;
        case Kind::kSubSharedWindow:
          EmitConstant64(in, -1);
          done = true;
          break;
        default:
          break;
      }
      guarded_ = false;
    }
    a_.bind(*resume_);
    if (done) return;
  }
  CallHandler(i);
}

// Sets edi to the lanes that execute the instruction.
void NativeEmitter::BeginGuard(const Instr& in) {
  guarded_ = in.guard >= 0;
  if (!guarded_) return;
  a_.mov(edi, dword_ptr(r12, in.guard));
  if ((in.flags & Instr::kGuardNegated) != 0) a_.not_(edi);
  if (some_lanes_) a_.and_(edi, r15d);
}

void NativeEmitter::EmitBranch(const Instr& in) {
  ++pending_[in.cost_class()];
  Settle();
  StoreDirty();
  GoTo(static_cast<uint32_t>(in.imm));
  reachable_ = false;
}

void NativeEmitter::EmitBranchCond(uint32_t i) {
  const Instr& in = function_.code[i];
  const Label taken = a_.newLabel(), diverges = a_.newLabel();
  LoadPredicate(eax, in.a);
  if ((in.aux & 1) != 0) a_.not_(eax);
  if (some_lanes_) {
    a_.and_(eax, r15d);
    a_.cmp(eax, r15d);
  } else {
    a_.cmp(eax, -1);
  }
  a_.je(taken);
  a_.test(eax, eax);
  a_.jnz(diverges);
  // The handler makes the splits.
  cold_.push_back([this, diverges, i, cached = cache_, pending = pending_] {
    a_.bind(diverges);
    pending_ = pending;
    Settle();
    StoreCold(cached);
    Return(i);
  });
  ++pending_[in.cost_class()];
  cold_.push_back(
      [this, taken, target = static_cast<uint32_t>(in.imm), cached = cache_, pending = pending_] {
        a_.bind(taken);
        cache_ = cached;
        pending_ = pending;
        Settle();
        StoreDirty();
        GoTo(target);
      });
}

void NativeEmitter::GoTo(uint32_t target) {
  const NativeSegment* s = SegmentAt(target);
  if (s == nullptr || !s->target) return Return(target);
  a_.jmp(labels_[static_cast<size_t>(s - segments_.data()) - begin_].body[some_lanes_]);
}

void NativeEmitter::Return(uint32_t pc) {
  a_.mov(rax, asmjit::imm(reinterpret_cast<uint64_t>(function_.code.data() + pc)));
  a_.mov(DETSHARE_CONTEXT(pc), rax);
  a_.jmp(return_);
}

void NativeEmitter::AddCosts(bool back) {
  uint32_t all = 0;
  for (uint32_t c = 0; c < pending_.size(); ++c) {
    if (pending_[c] == 0) continue;
    all += pending_[c];
    const Mem counter =
        qword_ptr(rbp, static_cast<int32_t>(offsetof(CostCounters, instructions) + 8 * c));
    if (back) {
      a_.sub(counter, pending_[c]);
    } else {
      a_.add(counter, pending_[c]);
    }
  }
  if (all == 0) return;
  if (back) {
    a_.add(DETSHARE_CONTEXT(budget), all);
  } else {
    a_.sub(DETSHARE_CONTEXT(budget), all);
  }
}

void NativeEmitter::Settle() {
  AddCosts(false);
  pending_.fill(0);
}

void NativeEmitter::LoadMasks() {
  a_.kmovd(k1, r15d);
  a_.kshiftrd(k2, k1, 8);
  a_.kshiftrd(k3, k1, 16);
  a_.kshiftrd(k4, k1, 24);
}

// Lanes of a guarded instruction are in edi, and it has some.
void NativeEmitter::EmitCall(uint32_t i, bool guarded) {
  const Instr* in = &function_.code[i];
  a_.mov(rax, asmjit::imm(reinterpret_cast<uint64_t>(in + 1)));
  a_.mov(DETSHARE_CONTEXT(pc), rax);
  if (guarded) {
    a_.mov(edx, edi);
  } else if (some_lanes_) {
    a_.mov(edx, r15d);
  } else {
    a_.mov(edx, -1);
  }
  a_.mov(rdi, rbx);
  a_.mov(rsi, asmjit::imm(reinterpret_cast<uint64_t>(in)));
  a_.vzeroupper();
  a_.mov(rax, asmjit::imm(reinterpret_cast<uint64_t>(in->fn)));
  a_.call(rax);
}

void NativeEmitter::CallForLanes(uint32_t i, bool guarded, Label skip) {
  if (guarded) {
    a_.test(edi, edi);
    a_.jz(skip);
  }
  EmitCall(i, guarded);
  a_.cmp(DETSHARE_CONTEXT(budget), 0);
  a_.jle(return_);
}

void NativeEmitter::CallHandler(uint32_t i) {
  const Instr& in = function_.code[i];
  Settle();
  StoreDirty();
  const Label skip = a_.newLabel();
  BeginGuard(in);
  const bool guarded = guarded_;
  guarded_ = false;
  CallForLanes(i, guarded, skip);
  // No handler of these instructions is known to do so; but then the chain would be wrong.
  a_.mov(rax, asmjit::imm(reinterpret_cast<uint64_t>(&in + 1)));
  a_.cmp(DETSHARE_CONTEXT(pc), rax);
  a_.jne(return_);
  a_.cmp(DETSHARE_CONTEXT(mask), r15d);
  a_.jne(return_);
  a_.bind(skip);
  if (some_lanes_) LoadMasks();
  ForgetAll();
  for (size_t k = addresses_.size(); k-- > 0;) {
    if (Defines(in, addresses_[k].operand)) ForgetAddress(addresses_[k].operand);
  }
}

void NativeEmitter::HandleInstead(uint32_t i, Label enter, std::vector<Cached> before) {
  // The instruction's own destinations join the cached registers after this call.
  cold_.push_back([this, i, enter, before = std::move(before), after = cache_, pending = pending_,
                   resume = *resume_, guarded = guarded_] {
    a_.bind(enter);
    StoreCold(before);
    pending_ = pending;
    AddCosts(false);
    const Label skip = a_.newLabel();
    CallForLanes(i, guarded, skip);
    a_.bind(skip);
    AddCosts(true);
    pending_.fill(0);
    if (some_lanes_) LoadMasks();
    LoadCold(after);
    a_.jmp(resume);
  });
}

Assembler& NativeEmitter::Masked(uint32_t part, uint32_t count) {
  if (guarded_) {
    a_.mov(ecx, edi);
    if (part != 0) a_.shr(ecx, part * (kLanes / count));
    a_.kmovd(k5, ecx);
    a_.k(k5);
  } else if (some_lanes_) {
    const KReg of4[] = {k1, k2, k3, k4};
    a_.k(of4[part * 4 / count]);
  }
  return a_;
}

}  // namespace detshare::soft::ptx
