// Decoded code: flat arrays of instructions with handlers and operand places resolved.
//
// A warp's registers live in one frame: each register is an array over the 32 lanes (128 bytes for
// everything up to 32 bits, 256 for 64, 512 for 128), a predicate is one 32-bit mask. Immediates
// and addresses are constants of the same shape in a pool of the function, so that handlers do not
// care. An operand is the byte offset of its array: in the frame when non-negative, in the constant
// pool (with the sign bit cleared) when negative.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "server/backends/soft/ptx/block_runner.h"
#include "server/backends/soft/ptx/module.h"
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
  uint32_t aux = 0;    // meaning is the handler's
  uint8_t count = 0;
  uint8_t flags = 0;

  static constexpr uint8_t kGuardNegated = 1;
  static constexpr uint8_t kClassShift = 4;  // CostCounters::Class in the upper bits

  CostCounters::Class cost_class() const {
    return static_cast<CostCounters::Class>(flags >> kClassShift);
  }
};
static_assert(sizeof(Instr) == 64);

// A constant of a function's pool.
struct ConstEntry {
  enum class Kind : uint8_t { kValue, kGlobal, kFunction, kOwnShared };
  Kind kind = Kind::kValue;
  RegClass reg_class = RegClass::k32;
  uint32_t offset = 0;  // in the pool
  uint32_t index = 0;   // of the global or function
  uint64_t value = 0;   // or addend; kOwnShared: offset from the function's shared_begin
  uint64_t high = 0;    // upper half of a 128-bit value
};

// Where a parameter lies in the per-lane parameter area of a frame.
struct ParamPlace {
  uint32_t offset = 0;
  uint32_t size = 0;
};

enum class Builtin : uint8_t { kNone, kVprintf, kAssertFail, kMalloc, kFree, kSetConditional };

struct CallSite {
  int32_t callee = -1;  // function index; -1: indirect through the register operand `a`
  Builtin builtin = Builtin::kNone;
  std::vector<ParamPlace> args;  // in the caller's area
  std::vector<ParamPlace> returns;
};

struct FunctionCode {
  std::string name;
  bool is_entry = false;
  bool has_indirect_calls = false;
  bool uses_module_shared = false;  // names a shared variable of module scope
  bool uses_dynamic_shared = false;
  std::vector<Instr> code;
  std::vector<int32_t> extras;
  std::vector<CallSite> calls;
  std::vector<std::vector<uint32_t>> branch_tables;  // instruction indices for brx.idx
  std::vector<ConstEntry> consts;
  std::vector<uint32_t> callees;  // direct, and functions whose address is taken
  uint32_t const_bytes = 0;
  uint32_t frame_bytes = 0;
  uint32_t param_area_bytes = 0;   // per lane
  std::vector<ParamPlace> params;  // formals in the area
  std::vector<ParamPlace> returns;
  uint32_t local_bytes = 0;
  uint32_t shared_begin = 0, shared_end = 0;  // own static shared variables
  uint32_t register_pressure = 0;             // in 32-bit registers
};

struct GlobalReloc {
  uint64_t offset = 0;
  bool is_function = false;
  uint32_t index = 0;
  int64_t addend = 0;
  uint8_t size = 8;
  uint8_t shift = 0;
};

struct GlobalData {
  std::vector<uint8_t> image;
  std::vector<GlobalReloc> relocations;
};

struct ModuleCode {
  uint32_t version = 0;
  uint32_t target = 0;
  std::vector<KernelInfo> kernels;
  std::vector<uint32_t> kernel_function;  // index into functions, for each kernel
  std::vector<GlobalInfo> globals;
  std::vector<GlobalData> global_data;
  std::vector<FunctionCode> functions;
  std::unordered_map<std::string, int> kernel_index;
  std::unordered_map<std::string, int> global_index;
};

struct AlignedFree {
  void operator()(uint8_t* p) const;
};
using AlignedBytes = std::unique_ptr<uint8_t[], AlignedFree>;
// Zeroed and aligned to 64; at least one byte.
AlignedBytes AllocateAligned(size_t bytes);

struct ExecutableCode {
  const ModuleCode* module = nullptr;
  std::vector<AlignedBytes> const_pools;  // one for each function
};

// Fixed places above every host address, so that generic addresses of these spaces depend on
// nothing outside the kernel.
constexpr uint64_t kSharedWindow = uint64_t{1} << 48;
constexpr uint64_t kLocalWindow = kSharedWindow + (uint64_t{1} << 40);
constexpr uint64_t kParamWindow = kSharedWindow + (uint64_t{2} << 40);
constexpr uint64_t kFunctionWindow = kSharedWindow + (uint64_t{3} << 40);
constexpr uint64_t kWindowSize = uint64_t{1} << 40;
constexpr uint64_t kFunctionStride = 16;
// A shared address below this is the block's own; above, (rank + 1) * this + offset names a block
// of the cluster.
constexpr uint32_t kClusterStride = 1u << 24;

constexpr uint64_t FunctionAddress(uint32_t index) {
  return kFunctionWindow + kFunctionStride * (index + 1);
}

}  // namespace detshare::soft::ptx
