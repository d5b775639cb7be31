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

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/backends/soft/ptx/fault.h"
#include "server/backends/soft/ptx/host_services.h"
#include "server/backends/soft/ptx/module.h"
#include "server/backends/soft/ptx/texture.h"

namespace detshare::soft::ptx {

struct LaunchConfig {
  std::array<uint32_t, 3> grid{1, 1, 1};
  std::array<uint32_t, 3> block{1, 1, 1};
  std::array<uint32_t, 3> cluster{1, 1, 1};  // divides grid in each dimension
  uint32_t dynamic_shared_bytes = 0;
  uint32_t max_shared_bytes = 227 * 1024;  // static + dynamic may not exceed it
  uint32_t stack_bytes_per_thread =
      1024;  // CU_LIMIT_STACK_SIZE; at least the kernel's own frames are always given
  uint32_t sm_count = 132;  // %nsmid
  uint64_t grid_id = 0;     // %gridid
  bool cooperative = false;
  // Cooperative launches: an address of at least 16 zeroed writable bytes, 8-aligned, used by
  // grid.sync(); the same for all blocks. The kernel may access [address, address + bytes) besides
  // what the MemoryGuard allows.
  uint64_t grid_workspace_address = 0;
  uint32_t grid_workspace_bytes = 0;
  uint64_t start_time_ns = 0;   // %globaltimer at the first cycle of a unit
  uint64_t start_cycle = 0;     // %clock64 at the first cycle of a unit
  std::vector<uint8_t> params;  // laid out as KernelInfo::params says; at least param_bytes long
};

struct LaunchServices {
  const MemoryGuard* guard = nullptr;     // required
  OutputSink* output = nullptr;           // null: output is dropped
  DeviceHeap* heap = nullptr;             // null: device malloc() returns null
  const ImageTable* images = nullptr;     // null: there are no textures and surfaces
  GraphConditions* conditions = nullptr;  // null: there are none
};

// Deterministic costs of one unit: for kernels without races they depend on the inputs alone. An
// "instruction" is one issued for a warp, whatever the number of active threads.
struct CostCounters {
  enum Class : uint8_t {
    kControl,  // branches, calls, votes, shuffles, fences
    kInteger,  // integer, logic, moves, conversions, predicates
    kFloat32,  // f32, f16 and bf16 arithmetic
    kFloat64,
    kSpecial,       // division, roots, transcendental functions
    kSharedMemory,  // shared and local memory
    kGlobalMemory,  // global, constant and generic memory
    kAtomic,
    kMatrix,  // mma
    kClassCount
  };
  std::array<uint64_t, kClassCount> instructions{};
  uint64_t global_bytes_read = 0;  // bytes asked for by the active threads
  uint64_t global_bytes_written = 0;
  uint64_t global_sectors = 0;  // 32-byte pieces touched, counted per instruction
  uint64_t barriers = 0;        // completed block barriers
  uint64_t sleep_ns = 0;        // nanosleep, longest warp-wise sum

  uint64_t TotalInstructions() const;
  void Add(const CostCounters& other);
};

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

  struct Impl;
  const Impl& impl() const { return *impl_; }

 private:
  explicit KernelLaunch(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
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
