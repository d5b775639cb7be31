#include "server/backends/soft/ptx/native_code.h"

#include <asmjit/asmjit.h>
#include <sys/mman.h>

#include <algorithm>

#include "server/backends/soft/ptx/control_ops.h"
#include "server/backends/soft/ptx/ir.h"
#include "server/backends/soft/ptx/native_emitter.h"
#include "server/backends/soft/ptx/native_meaning.h"

namespace detshare::soft::ptx {
namespace {

constexpr uint32_t kRegionSegments = 64;  // bounds the time that a warp waits for its code
// Runs of a region's segments before its code is made, for each of them. Then the handlers have taken about
// a third of the time that making the code takes.
constexpr uint32_t kWarmRuns = 64;

// Copies the code to pages of its own, which are never writable and executable at once. Returns null when
// the process may not have such pages.
void* Load(asmjit::CodeHolder* holder, size_t* size) {
  if (holder->flatten() != asmjit::kErrorOk || holder->hasUnresolvedLinks()) return nullptr;
  *size = holder->codeSize();
  void* const pages =
      mmap(nullptr, *size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (pages == MAP_FAILED) return nullptr;
  if (holder->relocateToBase(reinterpret_cast<uint64_t>(pages)) == asmjit::kErrorOk &&
      holder->copyFlattenedData(pages, *size) == asmjit::kErrorOk &&
      mprotect(pages, *size, PROT_READ | PROT_EXEC) == 0)
    return pages;
  munmap(pages, *size);
  return nullptr;
}

using EnterFn = void (*)(Context*, const void*);

// The way into all native code. Null when this process can have none.
EnterFn Enter() {
  static const EnterFn enter = [] {
    if (!CpuRunsNativeCode()) return EnterFn{nullptr};
    asmjit::CodeHolder holder;
    holder.init(asmjit::Environment::host());
    asmjit::x86::Assembler assembler(&holder);
    EmitEnter(&assembler);
    size_t size = 0;
    return reinterpret_cast<EnterFn>(Load(&holder, &size));
  }();
  return enter;
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
  enter_ = Enter();
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
    if (regions_[r].pages != nullptr) munmap(regions_[r].pages, regions_[r].size);
  }
}

const void* NativeCode::Warm(uint32_t segment, bool at_once) {
  Region& region = regions_[segment / kRegionSegments];
  const uint32_t enough = kWarmRuns * (region.end - region.begin);
  uint32_t runs = region.runs.load(std::memory_order_relaxed);
  // The thread that counts the last run makes the code. The others do not wait for it.
  do {
    if (runs >= enough) return nullptr;
  } while (!region.runs.compare_exchange_weak(runs, at_once ? enough : runs + 1,
                                              std::memory_order_relaxed));
  if (!at_once && runs + 1 < enough) return nullptr;
  Make(&region);
  return entries_[segment].code.load(std::memory_order_relaxed);
}

void NativeCode::Make(Region* region) {
  asmjit::CodeHolder holder;
  holder.init(asmjit::Environment::host());
  NativeEmitter emitter(function_, segments_, region->begin, region->end, &holder);
  if (!emitter.Emit()) return;
  region->pages = Load(&holder, &region->size);
  if (region->pages == nullptr) return;
  for (uint32_t s = region->begin; s < region->end; ++s) {
    entries_[s].code.store(static_cast<const uint8_t*>(region->pages) + emitter.EntryOffset(s),
                           std::memory_order_release);
  }
}

}  // namespace detshare::soft::ptx
