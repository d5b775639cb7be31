// What a handler does, for the translation of instructions to machine code.
//
// A handler's address says what the handler does, also when the compiler or linker gives two equal
// handlers one address. So decoded instructions need no further description.
#pragma once

#include "server/backends/soft/ptx/instr.h"
#include "server/backends/soft/ptx/memory_ops.h"
#include "server/backends/soft/ptx/vector_ops.h"

namespace detshare::soft::ptx {

struct Meaning {
  enum class Kind : uint8_t {
    kVector,           // op, type, flags, compare
    kLoad,             // memory; vectors are all kLoad of vector 2, and Instr::count says how long
    kStore,            // likewise
    kKernelParam,      // type: d = the parameter at imm
    kSpecialRegister,  // of 32 bits; Instr::aux says which
    kAddSharedWindow,  // d = a + kSharedWindow, in 64 bits
    kSubSharedWindow,
    kBranch,
    kBranchCond,
  };
  Kind kind = Kind::kVector;
  VectorOp op = VectorOp::kMov;
  Type type = Type::kNone;
  VectorFlags flags;
  Compare compare = Compare::kEq;
  MemoryKey memory;
};

// Returns null for handlers that are not translated.
const Meaning* MeaningOf(ExecFn fn);

}  // namespace detshare::soft::ptx
