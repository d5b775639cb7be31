// Decoded instructions: flat arrays with handlers and operand places resolved.
//
// A warp's registers live in one frame. Each register is an array over the 32 lanes: 128 bytes for
// registers of up to 32 bits, 256 for 64 bits, 512 for 128 bits. A predicate is one 32-bit mask.
// Immediates and addresses are constants of the same shape in a pool of the function, so handlers
// treat them like registers. An operand is the byte offset of its array: in the frame when it is
// non-negative; in the constant pool, with the sign bit cleared, when it is negative.
#pragma once

#include <cstdint>

#include "server/backends/soft/ptx/cost_counters.h"
#include "server/backends/soft/ptx/types.h"

namespace detshare::soft::ptx {

struct Context;
struct Instr;

// Executes `in` for the lanes of `mask`, which is never empty.
using ExecFn = void (*)(Context& c, const Instr& in, uint32_t mask);

constexpr int32_t kNoOperand = INT32_MAX;
constexpr uint32_t kLanes = 32;
constexpr uint32_t kFullMask = 0xffffffffu;

constexpr uint32_t BytesOf(RegClass c) {
  switch (c) {
    case RegClass::kPred:
      return 4;
    case RegClass::k32:
      return 4 * kLanes;
    case RegClass::k64:
      return 8 * kLanes;
    default:
      return 16 * kLanes;
  }
}

struct Instr {
  ExecFn fn = nullptr;
  int32_t d = kNoOperand;   // destination
  int32_t d2 = kNoOperand;  // second destination
  int32_t a = kNoOperand;
  int32_t b = kNoOperand;
  int32_t c = kNoOperand;
  int32_t e = kNoOperand;
  int64_t imm = 0;
  int32_t guard = -1;  // frame offset of @p
  uint32_t line = 0;
  uint32_t extra = 0;  // first of `count` operands in FunctionCode::extras
  uint32_t aux = 0;    // each handler defines its meaning
  uint8_t count = 0;
  uint8_t flags = 0;
  uint32_t segment =
      0;  // 1 + the number of the native segment that begins here (native_code.h), or 0

  static constexpr uint8_t kGuardNegated = 1;
  static constexpr uint8_t kClassShift = 4;  // CostCounters::Class in the upper bits

  CostCounters::Class cost_class() const {
    return static_cast<CostCounters::Class>(flags >> kClassShift);
  }
};
static_assert(sizeof(Instr) == 64);

}  // namespace detshare::soft::ptx
