// Runs the blocks of one kernel launch.
//
// A KernelLaunch is prepared once for each launch. Any number of BlockRunners on any number of
// threads share it, read-only. A BlockRunner executes one *unit* at a time: a block or, when the
// launch has clusters, all blocks of a cluster, which see each other's shared memory. A BlockRunner
// can suspend a unit after a number of instructions and resume it later on any thread. So a few CPU
// threads can keep many blocks in flight, as cooperative grids and kernels whose blocks wait for
// each other through memory need.
//
//   auto launch = KernelLaunch::Create(executable, kernel_index, config, services);
//   BlockRunner runner(launch->get());
//   for (each unit) {
//     runner.Start(unit, {sm});
//     while (runner.Run(kBudget) == RunState::kYielded) {...}
//     runner.counters();
//   }
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
  // The executable and the services must outlive the launch. Returns InvalidArgument when the
  // kernel cannot be launched with `config`: dimensions that are zero, too large or not the
  // required ones, more than 1024 or max_threads_per_block threads, a grid that clusters do not
  // divide, more shared memory than max_shared_bytes, or too few parameter bytes. Returns
  // ResourceExhausted when the stacks of a unit's threads take more than 512 MiB.
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
  kSpinning,  // like kYielded, but every warp polls memory or sleeps: run other units of the grid
              // first
  kDone,
  kFaulted,  // see fault(); do not start other units of the launch
};

// Used by one thread at a time, which may be a different thread for each call.
class BlockRunner {
 public:
  // `launch` must outlive the runner. The runner allocates the memory of a unit once and reuses it.
  explicit BlockRunner(const KernelLaunch* launch);
  ~BlockRunner();
  BlockRunner(const BlockRunner&) = delete;
  BlockRunner& operator=(const BlockRunner&) = delete;

  // Prepares unit `unit` (row-major order, x fastest). `sm_ids` has a virtual SM id for each block
  // of the unit, or one id for all blocks.
  void Start(uint64_t unit, const std::vector<uint32_t>& sm_ids);

  // Executes about `instruction_budget` warp instructions. A turn of a warp may exceed the budget.
  RunState Run(uint64_t instruction_budget);

  const Fault& fault() const;
  // The costs of the unit since Start.
  const CostCounters& counters() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace detshare::soft::ptx
