// Runs the blocks of one kernel launch.
//
// A KernelLaunch is prepared once per launch and shared, read-only, by any number of BlockRunners
// on any number of threads. A BlockRunner executes one *unit* at a time: one block, or all blocks
// of one cluster when the launch has clusters (they see each other's shared memory and are stepped
// together). A unit can be suspended after a number of instructions and resumed later on any
// thread, so that a few CPU threads can keep many blocks in flight: needed for cooperative grids
// and for kernels whose blocks wait for each other through memory.
//
//   auto launch = KernelLaunch::Create(executable, kernel_index, config, services);
//   BlockRunner runner(launch->get());
//   for (each unit) { runner.Start(unit, {sm}); while (runner.Run(kBudget) == RunState::kYielded)
//   {...} runner.counters(); }
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "server/backends/soft/ptx/cost_counters.h"
#include "server/backends/soft/ptx/fault.h"
#include "server/backends/soft/ptx/launch.h"
#include "server/backends/soft/ptx/module.h"

namespace detshare::soft::ptx {

struct PreparedLaunch;  // internal

class KernelLaunch {
 public:
  // InvalidArgument when the geometry is impossible for the kernel: zero or too large dimensions,
  // more than 1024 or max_threads_per_block threads, a grid that clusters do not divide, more
  // shared memory than max_shared_bytes, too few parameter bytes, other than the required block or
  // cluster dimensions. ResourceExhausted when the threads' stacks take more than 512 MiB. The
  // executable and the services must outlive the launch.
  static absl::StatusOr<std::unique_ptr<KernelLaunch>> Create(const Executable& executable,
                                                              size_t kernel_index,
                                                              LaunchConfig config,
                                                              const LaunchServices& services);
  ~KernelLaunch();
  KernelLaunch(const KernelLaunch&) = delete;
  KernelLaunch& operator=(const KernelLaunch&) = delete;

  const KernelInfo& kernel() const;
  const LaunchConfig& config() const;
  uint64_t unit_count() const;  // clusters of the grid (blocks, without clusters)
  uint32_t blocks_per_unit() const;
  uint32_t shared_bytes_per_block() const;  // static and dynamic

  const PreparedLaunch& prepared() const { return *prepared_; }

 private:
  explicit KernelLaunch(std::unique_ptr<PreparedLaunch> prepared);
  std::unique_ptr<PreparedLaunch> prepared_;
};

enum class RunState {
  kYielded,   // the budget is used up: call Run again
  kSpinning,  // as kYielded, but every warp polls memory or sleeps: run other units of the grid
              // first
  kDone,
  kFaulted,  // see fault(); the launch is over, no other unit should be started
};

// Not thread-safe: one thread at a time, any thread each time.
class BlockRunner {
 public:
  // `launch` must outlive the runner. Memory for a unit is allocated once and reused by each Start.
  explicit BlockRunner(const KernelLaunch* launch);
  ~BlockRunner();
  BlockRunner(const BlockRunner&) = delete;
  BlockRunner& operator=(const BlockRunner&) = delete;

  // Prepares unit `unit` (row-major, x fastest). sm_ids has one virtual SM id for each block of the
  // unit, or one for all.
  void Start(uint64_t unit, const std::vector<uint32_t>& sm_ids);

  // Executes about `instruction_budget` warp instructions (it may exceed it by a turn of one warp).
  RunState Run(uint64_t instruction_budget);

  const Fault& fault() const;
  // Of the unit since Start.
  const CostCounters& counters() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace detshare::soft::ptx
