// Emits the machine code of some segments of a function.
//
// Registers of the code:
//   rbx the Context, r12 the frame's registers, r13 the constant pool, r14 NativeConstants,
//   rbp the CostCounters, zmm0..27 cached registers, zmm28..31 and k5..k7 temporaries, k1..k4 the lanes
//   of a partial mask (0..15, 8..15, 16..31, 24..31), edi the lanes of a guarded instruction.
//
// Each segment has two versions: for all 32 lanes, and for some. A cached register may be *dirty*, newer
// than in the frame, and *raw*: its active lanes are results of f32 arithmetic whose NaNs do not have
// the hardware's bits yet. Most results are only used in further arithmetic, which does not look at the
// bits of a NaN.
#pragma once

#include <asmjit/asmjit.h>

#include <array>
#include <functional>
#include <optional>
#include <vector>

#include "server/backends/soft/ptx/ir.h"
#include "server/backends/soft/ptx/native_code.h"
#include "server/backends/soft/ptx/native_meaning.h"

namespace detshare::soft::ptx {

// Emits the function that enters native code: void (Context*, const void* code).
void EmitEnter(asmjit::x86::Assembler* assembler);

class NativeEmitter {
 public:
  NativeEmitter(const FunctionCode& function, const std::vector<NativeSegment>& segments,
                uint32_t begin, uint32_t end, asmjit::CodeHolder* holder);
  // Returns false when the assembler fails.
  bool Emit();
  uint64_t EntryOffset(uint32_t segment) const;

 private:
  using Zmm = asmjit::x86::Zmm;
  using KReg = asmjit::x86::KReg;
  using Gp = asmjit::x86::Gp;
  using Mem = asmjit::x86::Mem;
  using Label = asmjit::Label;

  // The vectors of a register: 2 for 32-bit lanes, 4 for 64-bit lanes.
  struct Parts {
    std::array<Zmm, 4> z;
    uint32_t count = 0;
    const Zmm& operator[](uint32_t part) const { return z[part]; }
  };
  struct Cached {
    int32_t operand = 0;
    Parts parts;
    bool dirty = false;
    bool raw = false;
    uint32_t used_at = 0;  // the last instruction that needs it in vectors
  };
  // An address register that is checked, in three words of the stack: an AddressKind; the host pointer of
  // lane 0, or, for kGather, the begin of shared memory or the lowest global address; and the distance of
  // the highest global address.
  struct KnownAddress {
    int32_t operand = 0;
    uint32_t step = 0;
    Space space = Space::kGlobal;
    bool wide = false;
    uint32_t last_use = 0;
    uint32_t slot = 0;
  };
  enum AddressKind { kRow, kOneAddress, kGather, kUnknown };

  // Code outside of the usual path.
  using Cold = std::function<void()>;

  // --- segments (native_emitter.cc) ---
  void EmitVersion(bool some_lanes);
  void EmitSegment(uint32_t segment);
  void EmitEntry(uint32_t segment);
  void EmitInstr(uint32_t i);
  void EmitBranch(const Instr& in);
  void EmitBranchCond(uint32_t i);
  // Leaves the chain for instruction `target`: jumps to its native code, or returns.
  void GoTo(uint32_t target);
  void Return(uint32_t pc);
  // Stores the dirty registers and calls the handler. Returns when the turn ended.
  void CallHandler(uint32_t i);
  // Calls the handler from cold code, and goes on behind the instruction. `before` are the cached registers
  // in front of it.
  void HandleInstead(uint32_t i, Label enter, std::vector<Cached> before);
  void EmitCall(uint32_t i, bool guarded);
  // Calls the handler, or goes to `skip` if no guarded lane is active. Returns when the turn ended.
  void CallForLanes(uint32_t i, bool guarded, Label skip);
  // Adds the counts of the instructions since the last call to the counters and the budget.
  void Settle();
  void AddCosts(bool back);
  void LoadMasks();
  const NativeSegment* SegmentAt(uint32_t instr) const;

  // --- cached registers (native_registers.cc) ---
  Cached* Find(int32_t operand);
  Parts Source(int32_t operand, uint32_t count);     // with the exact bits
  Parts RawSource(int32_t operand, uint32_t count);  // f32: NaNs may have other bits
  Parts Destination(int32_t operand, uint32_t count);
  void SetRaw(int32_t operand, bool raw);
  Parts Allocate(uint32_t count);
  void Evict(size_t index);
  uint32_t NextUse(int32_t operand) const;
  void Canonicalise(Cached* cached);
  void Store(Cached* cached);
  void StoreDirty();
  void StoreCold(const std::vector<Cached>& cached);
  void LoadCold(const std::vector<Cached>& cached);
  void ForgetAll();
  // Those of `old` that are still cached.
  std::vector<Cached> Remaining(const std::vector<Cached>& old);
  Mem Place(int32_t operand, uint32_t part = 0) const;

  // --- lanes ---
  // The assembler, which writes only the active lanes with its next instruction.
  asmjit::x86::Assembler& Masked(uint32_t part, uint32_t count);
  bool AllLanes() const { return !some_lanes_ && !guarded_; }
  void BeginGuard(const Instr& in);

  // --- instructions (native_integer.cc, native_float.cc) ---
  bool EmitVector(const Instr& in, const Meaning& m);
  bool EmitMove(const Instr& in, const Meaning& m);
  bool EmitInteger(const Instr& in, const Meaning& m);
  bool EmitProduct(const Instr& in, const Meaning& m);
  bool EmitShift(const Instr& in, const Meaning& m);
  bool EmitWidth(const Instr& in, const Meaning& m);
  bool EmitPredicate(const Instr& in, const Meaning& m);
  void EmitSelect(const Instr& in, const Meaning& m);
  void EmitSetp(const Instr& in, const Meaning& m);
  void SetPredicate(int32_t operand, Gp value);
  void LoadPredicate(Gp to, int32_t operand);
  bool EmitFloat(const Instr& in, const Meaning& m);
  bool EmitFloat32(const Instr& in, const Meaning& m);
  void EmitPart32(VectorOp op, uint32_t p, const Zmm& to, const std::array<Zmm, 3>& from,
                  bool direct);
  bool EmitFloat64(const Instr& in, const Meaning& m);
  bool EmitConvert(const Instr& in, const Meaning& m);
  void EmitMinMax(const Instr& in, const Meaning& m);
  void EmitRsqrt(const Instr& in, const Meaning& m);
  void Flush(const Zmm& z);
  void FixNan(const Zmm& z);
  // The same for the active lanes of part `part` of a register of 32 bits.
  void FixActiveNan(uint32_t part, const Zmm& z);
  // The lower halves of the 64-bit lanes of two vectors, in zmm28.
  void Narrow(const Zmm& low, const Zmm& high);
  // Half `half` of a vector of 32-bit lanes, in the lower half of the result, which may be `temporary`.
  asmjit::x86::Ymm Half(const Zmm& z, uint32_t half, const Zmm& temporary);
  bool EmitSpecialRegister(const Instr& in);
  void EmitConstant64(const Instr& in, int64_t value);

  // --- memory (native_memory.cc) ---
  bool EmitMemory(uint32_t i, const Meaning& m);
  void EmitKernelParam(const Instr& in, const Meaning& m);
  const KnownAddress* FindAddress(uint32_t i, const Meaning& m, uint32_t step);
  const KnownAddress* LearnAddress(uint32_t i, const Meaning& m, uint32_t step);
  void EmitPattern(const Parts& address, uint32_t step, bool wide, Label other);
  void EmitCheckShared(const KnownAddress& known, int64_t low, int64_t end, Label other);
  void EmitCheckGlobal(const KnownAddress& known, int64_t low, int64_t end, bool write,
                       Label other);
  bool CanGather(const KnownAddress& known) const;
  // Checks addresses without a pattern. rax, rdx and ecx are as for EmitCheckGlobal.
  void EmitCheckEach(const KnownAddress& known, const Parts& address, int64_t low, int64_t end,
                     bool write, Label other);
  void EmitGather(const Instr& in, const KnownAddress& known, const Parts& value, bool store);
  void LoadRow(const std::vector<Parts>& to, const Meaning& m, Mem from);
  void LoadOne(const std::vector<Parts>& to, const Meaning& m, Mem from);
  void LoadVectorRow(const std::vector<Parts>& to, const Meaning& m, Mem from);
  void StoreRow(const std::vector<Parts>& values, const Meaning& m, Mem to);
  void StoreVectorRow(const std::vector<Parts>& from, const Meaning& m, Mem to);
  void CountGlobal(const Instr& in, uint32_t step, bool write, bool row);
  void ForgetAddress(int32_t operand);
  bool Defines(const Instr& in, int32_t operand) const;

  struct Failures : asmjit::ErrorHandler {
    void handleError(asmjit::Error, const char*, asmjit::BaseEmitter*) override { failed = true; }
    bool failed = false;
  };

  const FunctionCode& function_;
  const std::vector<NativeSegment>& segments_;
  const uint32_t begin_, end_;  // segments
  asmjit::CodeHolder* const holder_;
  asmjit::x86::Assembler a_;
  Failures failed_;

  struct SegmentLabels {
    Label entry;
    Label body[2];   // all lanes, some lanes
    Label start[2];  // loads what the body expects
  };
  std::vector<SegmentLabels> labels_;
  Label return_;
  std::vector<Cold> cold_;

  // The state of the emission.
  bool some_lanes_ = false;
  bool guarded_ = false;
  bool reachable_ = false;  // whether the code before falls through
  uint32_t instr_ = 0;
  uint32_t chain_end_ = 0;
  std::vector<Cached> cache_;
  uint32_t free_ = 0;  // a bit for each vector
  std::vector<KnownAddress> addresses_;
  uint32_t free_slots_ = 0;
  std::array<uint32_t, CostCounters::kClassCount> pending_{};
  std::optional<Label> resume_;  // behind the present instruction, for cold code
};

}  // namespace detshare::soft::ptx
