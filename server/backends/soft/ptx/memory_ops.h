// Loads, stores, atomics and address operations.
#pragma once

#include "server/backends/soft/ptx/instr.h"

namespace detshare::soft::ptx {

// Instr fields: a is the address (32- or 64-bit lanes), imm its offset; d is the register, or
// extra/count are the registers; b is the value of a scalar store. aux: MemoryAux.
struct MemoryAux {
  static constexpr uint32_t kPolling = 1;  // volatile, relaxed, acquire: see NotePoll
  static constexpr uint32_t kAcquire = 2;
  static constexpr uint32_t kRelease = 4;
  static constexpr uint32_t kVectorResults =
      8;  // a vector atom: the first half of the registers is for results
};

struct MemoryKey {
  Space space = Space::kGeneric;
  Type type = Type::kB32;
  bool address64 = true;
  uint32_t vector = 1;
  bool noftz = false;  // an addition of f32 keeps subnormal values also in global memory
};

// Returns null when PTX has no such instruction.
ExecFn SelectLoad(const MemoryKey& key);
ExecFn SelectStore(const MemoryKey& key);

enum class AtomOp : uint8_t { kAdd, kMin, kMax, kInc, kDec, kExch, kCas, kAnd, kOr, kXor };

// d is the old value or kNoOperand; b and c are the operands (registers of the type's class). For
// vectors extra/count are the destinations, if the instruction has any, and then the sources. aux:
// MemoryAux.
ExecFn SelectAtomic(AtomOp op, const MemoryKey& key);

// Combines a value of SizeOf(type) bytes at `from` with the one in memory at `to`, which is aligned.
using Reduction = void (*)(uint8_t* to, const uint8_t* from);
// Additions of f32 flush subnormal values, except with `noftz`. Returns null when PTX has no such
// operation.
Reduction SelectReduction(AtomOp op, Type type, bool noftz = false);

// Uniform parameters of the kernel: d = param[imm].
ExecFn SelectKernelParamLoad(Type type);
// The frame's parameter area at imm.
ExecFn SelectParamAreaLoad(Type type);   // d
ExecFn SelectParamAreaStore(Type type);  // b

ExecFn LocalAddressHandler(bool wide);   // d = local address of the frame's variable at imm
ExecFn DynamicSharedHandler(bool wide);  // d = shared address of the dynamic part + imm
ExecFn SelectCvta(Space space, bool to_space, bool wide);  // d, a
// Predicate d, address a. `cluster`: shared memory of all blocks of the cluster, not of the own one only.
ExecFn SelectIsSpace(Space space, bool wide, bool cluster);
ExecFn SelectMapa(bool wide, bool generic);  // d = address a in the cluster's block b
ExecFn SelectGetCtaRank(bool wide, bool generic);
ExecFn SelectCpAsync(
    bool shared64,
    bool global64);  // a shared, b global, count bytes in imm low half; c source size or none
ExecFn AllocaHandler(bool wide);  // d = local address of a bytes, aligned to imm
ExecFn StackSaveHandler(bool wide);
ExecFn StackRestoreHandler(bool wide);
ExecFn FenceHandler();

// mbarrier objects: 64-bit words in shared memory (see mbarrier.cc). a: the address; b, c:
// operands; d: state or predicate.
enum class MbarrierOp : uint8_t {
  kInit,
  kInval,
  kArrive,
  kArriveNoComplete,
  kArriveDrop,
  kTestWait,
  kTestWaitParity,
  kPendingCount,
  kExpectTx,
  kCompleteTx,
  kArriveExpectTx,
  kArriveDropExpectTx,
  kCpAsyncArrive
};
ExecFn SelectMbarrier(MbarrierOp op, bool address64, bool generic);

}  // namespace detshare::soft::ptx
