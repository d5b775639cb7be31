// Decoded code: functions, and modules of functions.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "server/backends/soft/ptx/aligned_bytes.h"
#include "server/backends/soft/ptx/instr.h"
#include "server/backends/soft/ptx/module_info.h"

namespace detshare::soft::ptx {

class NativeCode;

// A constant of a function's pool.
struct ConstEntry {
  enum class Kind : uint8_t { kValue, kGlobal, kFunction, kOwnShared };
  Kind kind = Kind::kValue;
  RegClass reg_class = RegClass::k32;
  uint32_t offset = 0;  // in the pool
  uint32_t index = 0;   // of the global or function
  uint64_t value = 0;   // value or addend; kOwnShared: offset from the function's shared_begin
  uint64_t high = 0;    // upper half of a 128-bit value
};

// The place of a parameter in the per-lane parameter area of a frame.
struct ParamPlace {
  uint32_t offset = 0;
  uint32_t size = 0;
};

enum class Builtin : uint8_t {
  kNone,
  kVprintf,
  kAssertFail,
  kMalloc,
  kFree,
  kSetConditional,
  kOldDeviceRuntime,  // what the older device runtime (CDP1) calls
  // The device runtime (device_runtime.h):
  kParameterBuffer,
  kLaunchDevice,
  kCreateStream,
  kCreateEvent,
  kStreamOperation,  // one that needs nothing, since kernels run in the order of their launches
  kGetLastError,
  kPeekAtLastError,
  kGetDevice,
  kGetDeviceAttribute,
  kDeviceMalloc,
  kDeviceFree,
  kMemcpyAsync,
  kMemcpy2DAsync,
  kMemcpy3DAsync,
  kMemsetAsync,
  kMemset2DAsync,
  kMemset3DAsync,
  kUnsupportedRuntime,
};

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
  bool uses_module_shared = false;    // names a shared variable of module scope
  bool uses_reserved_shared = false;  // asks where the reserved shared memory lies
  std::vector<Instr> code;
  std::vector<int32_t> extras;
  std::vector<CallSite> calls;
  std::vector<std::vector<uint32_t>>
      branch_tables;  // instruction indices for brx.idx, which share tables
  std::vector<ConstEntry> consts;
  std::vector<uint32_t> callees;  // functions that it calls directly or whose address it takes
  uint32_t const_bytes = 0;
  uint32_t frame_bytes = 0;
  uint32_t param_area_bytes = 0;   // per lane
  std::vector<ParamPlace> params;  // formals in the area
  std::vector<ParamPlace> returns;
  uint32_t local_bytes = 0;
  uint32_t shared_begin = 0, shared_end = 0;  // own static shared variables
  uint32_t shared_align = 16;                 // of the own static shared variables
  uint32_t dynamic_shared_align = 16;         // of the dynamic shared memory that it names
  uint32_t register_pressure = 0;             // in 32-bit registers
  std::shared_ptr<NativeCode> native;         // of `code`
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
  bool launches_kernels = false;  // some function may launch a kernel
  std::vector<KernelInfo> kernels;
  std::vector<uint32_t> kernel_function;  // index into functions, for each kernel
  std::vector<GlobalInfo> globals;
  std::vector<GlobalData> global_data;
  std::vector<FunctionCode> functions;
  std::unordered_map<std::string, int> kernel_index;
  std::unordered_map<std::string, int> global_index;
};

struct ExecutableCode {
  const ModuleCode* module = nullptr;
  std::vector<AlignedBytes> const_pools;  // one for each function
};

// Fixed addresses above every host address. So the generic addresses of these spaces depend only on
// the kernel.
constexpr uint64_t kSharedWindow = uint64_t{1} << 48;
constexpr uint64_t kLocalWindow = kSharedWindow + (uint64_t{1} << 40);
constexpr uint64_t kParamWindow = kSharedWindow + (uint64_t{2} << 40);
constexpr uint64_t kFunctionWindow = kSharedWindow + (uint64_t{3} << 40);
constexpr uint64_t kWindowSize = uint64_t{1} << 40;
constexpr uint64_t kFunctionStride = 16;
// A shared address below the stride is in the block's own shared memory. In the block `rank` of the
// cluster it is (rank + 1) * kClusterStride + offset.
constexpr uint32_t kClusterStride = 1u << 24;

constexpr uint64_t FunctionAddress(uint32_t index) {
  return kFunctionWindow + kFunctionStride * (index + 1);
}

}  // namespace detshare::soft::ptx
