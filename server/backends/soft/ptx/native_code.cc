#include "server/backends/soft/ptx/native_code.h"

#include <asmjit/asmjit.h>

#include <algorithm>

#include "server/backends/soft/ptx/control_ops.h"
#include "server/backends/soft/ptx/ir.h"
#include "server/backends/soft/ptx/native_emitter.h"
#include "server/backends/soft/ptx/native_meaning.h"

namespace detshare::soft::ptx {
namespace {

constexpr uint32_t kRegionSegments = 128;  // bounds the time that a warp waits for its code
constexpr uint32_t kWarmRuns = 48;         // of a region's segments, before its code is made

// Executable memory for all modules. Data and code have separate mappings, so no page is writable and
// executable at once.
struct Memory {
  Memory() : runtime(Params()) {
    if (!CpuRunsNativeCode()) return;
    asmjit::CodeHolder holder;
    holder.init(runtime.environment());
    asmjit::x86::Assembler assembler(&holder);
    EmitEnter(&assembler);
    if (runtime.add(&enter, &holder) != asmjit::kErrorOk) enter = nullptr;
  }
  static const asmjit::JitAllocator::CreateParams* Params() {
    static const asmjit::JitAllocator::CreateParams params = [] {
      asmjit::JitAllocator::CreateParams p{};
      p.options = asmjit::JitAllocatorOptions::kUseDualMapping;
      return p;
    }();
    return &params;
  }
  asmjit::JitRuntime runtime;
  void (*enter)(Context*, const void*) = nullptr;  // null when there is no executable memory
};

// It stays until the process ends, because modules may end as late.
Memory& ExecutableMemory() {
  static Memory* const memory = new Memory;
  return *memory;
}

// The instructions to which a branch may go.
std::vector<bool> BranchTargets(const FunctionCode& function) {
  std::vector<bool> target(function.code.size() + 1, false);
  for (const Instr& in : function.code) {
    if (in.fn == ExecBranch || in.fn == ExecBranchCond) target[static_cast<size_t>(in.imm)] = true;
  }
  for (const auto& table : function.branch_tables) {
    for (uint32_t t : table) target[t] = true;
  }
  return target;
}

// Whether a warp may go on in native code behind this instruction.
bool StaysInChain(const Instr& in) {
  return in.cost_class() != CostCounters::kControl || in.fn == ExecNop || in.fn == ExecActiveMask;
}

}  // namespace

bool CpuRunsNativeCode() {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw");
}

NativeCode::NativeCode(FunctionCode* function) : function_(*function) {
  enter_ = ExecutableMemory().enter;
  if (enter_ == nullptr) return;
  std::vector<Instr>& code = function->code;
  const std::vector<bool> target = BranchTargets(*function);
  bool after_control = true;
  for (uint32_t i = 0; i < code.size(); ++i) {
    const bool stays = StaysInChain(code[i]);
    const bool branch = code[i].fn == ExecBranch || code[i].fn == ExecBranchCond;
    const bool full = !segments_.empty() && segments_.back().length >= kSegmentInstrs;
    if (!stays && !branch) {
      after_control = true;
      continue;
    }
    if (branch && (after_control || target[i])) {  // a branch alone gains nothing
      after_control = true;
      continue;
    }
    if (after_control || target[i] || (full && !branch)) {
      segments_.push_back({i, 0, after_control || target[i]});
      code[i].segment = static_cast<uint32_t>(segments_.size());
    }
    after_control = branch;
    ++segments_.back().length;
  }
  entries_ = std::make_unique<Entry[]>(segments_.size());
  const size_t regions = (segments_.size() + kRegionSegments - 1) / kRegionSegments;
  regions_ = std::make_unique<Region[]>(regions);
  for (size_t r = 0; r < regions; ++r) {
    regions_[r].begin = static_cast<uint32_t>(r * kRegionSegments);
    regions_[r].end =
        static_cast<uint32_t>(std::min(segments_.size(), (r + 1) * size_t{kRegionSegments}));
  }
}

NativeCode::~NativeCode() {
  const size_t regions = (segments_.size() + kRegionSegments - 1) / kRegionSegments;
  for (size_t r = 0; r < regions; ++r) {
    if (regions_[r].code != nullptr) ExecutableMemory().runtime.release(regions_[r].code);
  }
}

const void* NativeCode::Warm(uint32_t segment, bool at_once) {
  Region& region = regions_[segment / kRegionSegments];
  uint32_t runs = region.runs.load(std::memory_order_relaxed);
  // The thread that counts the last run makes the code. The others do not wait for it.
  do {
    if (runs > kWarmRuns) return nullptr;
  } while (!region.runs.compare_exchange_weak(runs, at_once ? kWarmRuns + 1 : runs + 1,
                                              std::memory_order_relaxed));
  if (!at_once && runs != kWarmRuns) return nullptr;
  Make(&region);
  return entries_[segment].code.load(std::memory_order_relaxed);
}

void NativeCode::Make(Region* region) {
  asmjit::JitRuntime& runtime = ExecutableMemory().runtime;
  asmjit::CodeHolder holder;
  holder.init(runtime.environment());
  NativeEmitter emitter(function_, segments_, region->begin, region->end, &holder);
  if (!emitter.Emit()) return;
  void* code = nullptr;
  if (runtime.add(&code, &holder) != asmjit::kErrorOk) return;
  region->code = code;
  for (uint32_t s = region->begin; s < region->end; ++s) {
    entries_[s].code.store(static_cast<const uint8_t*>(code) + emitter.EntryOffset(s),
                           std::memory_order_release);
  }
}

}  // namespace detshare::soft::ptx
