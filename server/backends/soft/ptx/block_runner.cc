#include "server/backends/soft/ptx/block_runner.h"

#include <algorithm>
#include <cstdio>

#include "server/backends/soft/ptx/control_ops.h"
#include "server/backends/soft/ptx/native_code.h"
#include "server/backends/soft/ptx/warp.h"

namespace detshare::soft::ptx {

// --- launch ---

namespace {
constexpr uint64_t kMaxLocalBytes = uint64_t{512} << 20;  // of one unit
}

KernelLaunch::KernelLaunch(std::unique_ptr<PreparedLaunch> prepared)
    : prepared_(std::move(prepared)) {}
KernelLaunch::~KernelLaunch() = default;
const KernelInfo& KernelLaunch::kernel() const { return *prepared_->info; }
const LaunchConfig& KernelLaunch::config() const { return prepared_->config; }
uint32_t KernelLaunch::blocks_per_unit() const { return prepared_->cluster_blocks; }
uint32_t KernelLaunch::shared_bytes_per_block() const { return prepared_->shared_bytes; }
uint64_t KernelLaunch::unit_count() const {
  const auto& g = prepared_->config.grid;
  return uint64_t{g[0]} * g[1] * g[2] / prepared_->cluster_blocks;
}

absl::StatusOr<std::unique_ptr<KernelLaunch>> KernelLaunch::Create(const Executable& executable,
                                                                   size_t kernel_index,
                                                                   LaunchConfig config,
                                                                   const LaunchServices& services) {
  const ModuleCode& module = executable.module().code();
  if (kernel_index >= module.kernels.size())
    return absl::InvalidArgumentError("the kernel does not exist");
  if (services.guard == nullptr)
    return absl::InvalidArgumentError("the launch has no memory guard");
  const KernelInfo& info = module.kernels[kernel_index];
  uint64_t threads = 1, cluster = 1;
  static constexpr uint32_t kMaxGrid[3] = {0x7fffffffu, 65535, 65535};
  static constexpr uint32_t kMaxBlock[3] = {1024, 1024, 64};
  for (size_t d = 0; d < 3; ++d) {
    if (config.grid[d] == 0 || config.grid[d] > kMaxGrid[d])
      return absl::InvalidArgumentError("bad grid dimensions");
    if (config.block[d] == 0 || config.block[d] > kMaxBlock[d])
      return absl::InvalidArgumentError("bad block dimensions");
    if (config.cluster[d] == 0 || config.cluster[d] > 16 ||
        config.grid[d] % config.cluster[d] != 0) {
      return absl::InvalidArgumentError("bad cluster dimensions");
    }
    threads *= config.block[d];
    cluster *= config.cluster[d];
  }
  if (threads > 1024 || threads > info.max_threads_per_block)
    return absl::InvalidArgumentError("too many threads in a block");
  if (cluster > 16) return absl::InvalidArgumentError("too many blocks in a cluster");
  if (info.required_block[0] != 0 && config.block != info.required_block) {
    return absl::InvalidArgumentError("the kernel requires other block dimensions");
  }
  if (info.required_cluster[0] != 0 && config.cluster != info.required_cluster) {
    return absl::InvalidArgumentError("the kernel requires other cluster dimensions");
  }
  if (config.params.size() < info.param_bytes)
    return absl::InvalidArgumentError("too few parameter bytes");
  auto prepared = std::make_unique<PreparedLaunch>();
  prepared->dynamic_shared_offset = (info.static_shared_bytes + 15) / 16 * 16;
  const uint64_t shared =
      config.dynamic_shared_bytes == 0
          ? info.static_shared_bytes
          : uint64_t{prepared->dynamic_shared_offset} + config.dynamic_shared_bytes;
  if (shared > config.max_shared_bytes || shared > kClusterStride / 2) {
    return absl::InvalidArgumentError("too much shared memory");
  }
  prepared->module = &module;
  prepared->executable = &executable.code();
  prepared->info = &info;
  prepared->function = module.kernel_function[kernel_index];
  prepared->services = services;
  prepared->block_threads = static_cast<uint32_t>(threads);
  prepared->cluster_blocks = static_cast<uint32_t>(cluster);
  prepared->shared_bytes = static_cast<uint32_t>(shared);
  prepared->shared_allocated = static_cast<uint32_t>((shared + 255) / 256 * 256);
  prepared->shared_accessible =
      prepared->shared_allocated + (info.uses_reserved_shared ? kReservedSharedBytes : 0);
  const uint64_t stack =
      std::max<uint64_t>(config.stack_bytes_per_thread, info.local_bytes_per_thread + 64);
  prepared->stack_bytes =
      static_cast<uint32_t>(std::min<uint64_t>((stack + 15) / 16 * 16, 512u << 10));
  if (uint64_t{prepared->stack_bytes} * ((threads + kLanes - 1) / kLanes * kLanes) * cluster >
      kMaxLocalBytes) {
    return absl::ResourceExhaustedError("too much local memory");
  }
  // Kernels read parameters in whole words, so the parameters are padded.
  config.params.resize((std::max<size_t>(config.params.size(), info.param_bytes) + 31) / 16 * 16);
  prepared->config = std::move(config);
  return std::unique_ptr<KernelLaunch>(new KernelLaunch(std::move(prepared)));
}

// --- runner ---

struct BlockRunner::Impl {
  explicit Impl(const PreparedLaunch* launch_in) : launch(launch_in) {
    unit.launch = launch;
    const uint32_t warps = (launch->block_threads + kLanes - 1) / kLanes;
    const FunctionCode& function = launch->module->functions[launch->function];
    const size_t params_bytes = size_t{function.param_area_bytes} * kLanes;
    const size_t warp_bytes = (function.frame_bytes + params_bytes + 63) / 64 * 64;
    thread_indices.resize(3 * kLanes * size_t{warps});
    const std::array<uint32_t, 3>& size = launch->config.block;
    for (uint32_t t = 0; t < warps * kLanes; ++t) {
      uint32_t* const index = thread_indices.data() + 3 * kLanes * (t / kLanes) + t % kLanes;
      index[0] = t % size[0];
      index[kLanes] = t / size[0] % size[1];
      index[2 * kLanes] = t / size[0] / size[1];
    }
    unit.blocks.resize(launch->cluster_blocks);
    for (uint32_t rank = 0; rank < unit.blocks.size(); ++rank) {
      Block& block = unit.blocks[rank];
      block.unit = &unit;
      block.rank = rank;
      block.shared = AllocateAligned(launch->shared_accessible);
      block.local = AllocateSparse(size_t{launch->stack_bytes} * warps * kLanes);
      block.registers = AllocateAligned(warp_bytes * warps);
      out_of_memory = out_of_memory || block.shared == nullptr || block.local == nullptr ||
                      block.registers == nullptr;
      block.warps.resize(warps);
      for (uint32_t w = 0; w < warps; ++w) {
        Warp& warp = block.warps[w];
        warp.block = &block;
        warp.index = w;
        const uint32_t lanes = std::min(kLanes, launch->block_threads - w * kLanes);
        warp.lanes = lanes == kLanes ? kFullMask : (1u << lanes) - 1;
        warp.local = block.local.get() + size_t{launch->stack_bytes} * w * kLanes;
        warp.base.function = &function;
        warp.base.consts = launch->executable->const_pools[launch->function].get();
        warp.base.regs = block.registers.get() + warp_bytes * w;
        warp.base.params = warp.base.regs + function.frame_bytes;
        warp.base.local_top = function.local_bytes;
      }
    }
  }

  void Start(uint64_t index, const std::vector<uint32_t>& sm_ids);
  RunState Run(uint64_t budget);
  // Runs a turn of a warp. Returns the number of issued instructions; 0 when no split is ready.
  uint64_t RunTurn(Block& block, Warp& warp, bool* polled);

  const PreparedLaunch* launch;
  Unit unit;
  std::vector<uint32_t> thread_indices;  // of each warp of a block: 32 of x, of y and of z
  bool out_of_memory = false;
  size_t next_block = 0;
  size_t next_warp = 0;
};

void BlockRunner::Impl::Start(uint64_t index, const std::vector<uint32_t>& sm_ids) {
  const LaunchConfig& config = launch->config;
  std::array<uint32_t, 3> clusters;
  for (size_t d = 0; d < 3; ++d) clusters[d] = config.grid[d] / config.cluster[d];
  unit.first_block = {static_cast<uint32_t>(index % clusters[0] * config.cluster[0]),
                      static_cast<uint32_t>(index / clusters[0] % clusters[1] * config.cluster[1]),
                      static_cast<uint32_t>(index / clusters[0] / clusters[1] * config.cluster[2])};
  unit.counters = CostCounters{};
  unit.cycles = 0;
  unit.cluster_arrived = 0;
  unit.cluster_generation = 0;
  unit.fault = Fault{};
  if (out_of_memory) {
    unit.fault.kind = FaultKind::kStackOverflow;
    unit.fault.kernel = launch->info->name;
  }
  next_block = next_warp = 0;
  const FunctionCode& function = launch->module->functions[launch->function];
  for (uint32_t rank = 0; rank < unit.blocks.size(); ++rank) {
    Block& block = unit.blocks[rank];
    block.id = {unit.first_block[0] + rank % config.cluster[0],
                unit.first_block[1] + rank / config.cluster[0] % config.cluster[1],
                unit.first_block[2] + rank / config.cluster[0] / config.cluster[1]};
    block.sm_id = sm_ids.empty() ? 0 : sm_ids[std::min<size_t>(rank, sm_ids.size() - 1)];
    block.threads_alive = launch->block_threads;
    block.barriers.fill(Barrier{});
    block.runtime_errors.clear();
    if (block.shared != nullptr)
      std::fill_n(block.shared.get(), launch->shared_accessible, uint8_t{0});
    for (Warp& warp : block.warps) {
      warp.alive = warp.lanes;
      // The rest of a split or join is set when it is taken.
      for (Split& split : warp.splits) split.state = SplitState::kFree;
      for (Join& join : warp.joins) join.used = false;
      warp.split_count = 0;
      warp.base.lanes = warp.lanes;
      warp.base.local_top = function.local_bytes;
      warp.free_frames.clear();
      for (auto& frame : warp.frames) warp.free_frames.push_back(frame.get());
      warp.polls = 0;
      warp.steps_since_arrival = 0;
      warp.sleep_ns = 0;
      warp.cluster_phase = 0;
      warp.cluster_arrived = 0;
      AddSplit(warp, function.code.data(), &warp.base, warp.lanes, -1, false);
    }
  }
}

namespace {

constexpr int64_t kTurn = 4096;          // instructions of a warp before the next warp's turn
constexpr int64_t kDivergedTurn = 1024;  // the same while other splits of the warp are ready
constexpr uint32_t kBreakPolls =
    256;  // polling operations after which lanes no longer wait at joins
constexpr uint64_t kBreakSteps = 1 << 20;

}  // namespace

uint64_t BlockRunner::Impl::RunTurn(Block& block, Warp& warp, bool* polled) {
  int16_t index = -1;
  uint32_t ready = 0;
  for (uint8_t i = 0; i < warp.split_count; ++i) {
    if (warp.splits[warp.order[i]].state != SplitState::kReady) continue;
    if (index < 0) index = warp.order[i];
    ++ready;
  }
  if (index < 0) return 0;
  Split& split = warp.splits[static_cast<size_t>(index)];
  Context c;
  c.pc = split.pc;
  c.frame = split.frame;
  c.regs = split.frame->regs;
  c.consts = split.frame->consts;
  c.mask = split.mask;
  c.turn_length = c.budget = ready > 1 ? kDivergedTurn : kTurn;
  c.warp = &warp;
  c.block = &block;
  c.unit = &unit;
  c.split = index;
  c.shared = block.shared.get();
  c.shared_bytes = launch->shared_accessible;
  c.local = warp.local;
  c.stack_bytes = launch->stack_bytes;
  c.kernel_params = launch->config.params.data();
  c.kernel_param_bytes = static_cast<uint32_t>(launch->config.params.size());
  c.counters = &unit.counters;
  c.block_size = launch->config.block.data();
  c.grid_size = launch->config.grid.data();
  c.block_id = block.id.data();
  c.thread_index = thread_indices.data() + 3 * kLanes * size_t{warp.index};
  if (!unit.ranges.empty()) {
    c.range_begin = unit.ranges[0].begin;
    c.range_end = unit.ranges[0].end;
    c.range_writable = unit.ranges[0].writable;
  }
  auto& counts = unit.counters.instructions;
  const NativeUse native = launch->config.native;
  while (c.budget > 0) {
    const Instr& in = *c.pc;
    if (in.segment != 0 && native != NativeUse::kNever &&
        c.frame->function->native->Run(c, in.segment, native == NativeUse::kAtOnce)) {
      continue;
    }
    ++c.pc;
    --c.budget;
    uint32_t mask = c.mask;
    ++counts[in.cost_class()];
    if (in.guard >= 0) {
      const uint32_t p = *reinterpret_cast<const uint32_t*>(c.regs + in.guard);
      mask &= (in.flags & Instr::kGuardNegated) != 0 ? ~p : p;
      if (mask == 0) continue;
    }
    in.fn(c, in, mask);
  }
  const uint64_t issued = static_cast<uint64_t>(c.turn_length - c.unused - c.budget);
  unit.cycles += issued;
  warp.steps_since_arrival += issued;
  if (c.split >= 0) {
    Split& s = warp.splits[static_cast<size_t>(c.split)];
    s.pc = c.pc;
    s.mask = c.mask;
    s.frame = c.frame;
    RotateSplit(warp, c.split);
  }
  if (warp.polls >= kBreakPolls || warp.steps_since_arrival >= kBreakSteps) BreakJoins(warp);
  *polled = c.turn_polls != 0;
  return issued;
}

RunState BlockRunner::Impl::Run(uint64_t budget) {
  if (unit.fault.kind != FaultKind::kNone) return RunState::kFaulted;
  unit.ranges.clear();
  if (launch->config.grid_workspace_bytes != 0) {
    unit.ranges.push_back(
        {launch->config.grid_workspace_address,
         launch->config.grid_workspace_address + launch->config.grid_workspace_bytes, true});
  }
  uint64_t used = 0;
  bool only_polled = true;  // since Run began
  for (;;) {
    bool any_ready = false, alive = false, all_polled = true;
    const bool whole_pass = next_block == 0 && next_warp == 0;
    for (; next_block < unit.blocks.size(); ++next_block, next_warp = 0) {
      Block& block = unit.blocks[next_block];
      for (; next_warp < block.warps.size(); ++next_warp) {
        if (used >= budget) return only_polled ? RunState::kSpinning : RunState::kYielded;
        Warp& warp = block.warps[next_warp];
        if (warp.alive == 0) continue;
        alive = true;
        bool polled = false;
        const uint64_t issued = RunTurn(block, warp, &polled);
        if (unit.fault.kind != FaultKind::kNone) return RunState::kFaulted;
        if (issued == 0) continue;
        any_ready = true;
        used += issued;
        all_polled = all_polled && polled;
      }
    }
    next_block = next_warp = 0;
    if (!whole_pass && !any_ready) continue;
    if (!alive) return RunState::kDone;
    if (!any_ready) {
      // All splits wait. Lanes that wait at joins may be needed by the others.
      bool broke = false;
      for (Block& block : unit.blocks) {
        for (Warp& warp : block.warps) {
          const uint8_t before = warp.split_count;
          if (warp.alive != 0) BreakJoins(warp);
          broke = broke || warp.split_count != before;
        }
      }
      if (!broke) {
        unit.fault.kind = FaultKind::kDeadlock;
        unit.fault.kernel = launch->info->name;
        unit.fault.block = unit.first_block;
        return RunState::kFaulted;
      }
      continue;
    }
    only_polled = only_polled && all_polled;
    // Every warp polls, so all of them wait for work outside this unit.
    if (all_polled && used >= budget / 16) return RunState::kSpinning;
  }
}

BlockRunner::BlockRunner(const KernelLaunch* launch)
    : impl_(std::make_unique<Impl>(&launch->prepared())) {}
BlockRunner::~BlockRunner() = default;
void BlockRunner::Start(uint64_t unit, const std::vector<uint32_t>& sm_ids) {
  impl_->Start(unit, sm_ids);
}
RunState BlockRunner::Run(uint64_t instruction_budget) { return impl_->Run(instruction_budget); }
const Fault& BlockRunner::fault() const { return impl_->unit.fault; }
const CostCounters& BlockRunner::counters() const { return impl_->unit.counters; }

}  // namespace detshare::soft::ptx
