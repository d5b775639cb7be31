// The run-time state of a unit: its blocks, their warps, and the *splits* of a warp. A split is a
// group of lanes that share a program counter.
//
// A warp begins as one split. A divergent branch makes two splits that share a *join*: the
// reconvergence point, which is the branch's immediate post-dominator, and the lanes expected
// there. Lanes that reach the point wait until every expected lane has come, exited or left the
// function. Then they go on as one split. Every split gets its turn, so lanes can poll for the work
// of diverged lanes of their own warp. When the running splits of a warp only poll, lanes that wait
// at a join go on without the others, and the join is `broken`. This is correct, because the wait
// at a join is only an optimisation.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "server/backends/soft/ptx/context.h"
#include "server/backends/soft/ptx/cost_counters.h"
#include "server/backends/soft/ptx/fault.h"
#include "server/backends/soft/ptx/ir.h"
#include "server/backends/soft/ptx/launch.h"

namespace detshare::soft::ptx {

struct Block;
struct PreparedLaunch;
struct Unit;
struct Warp;

// The registers and parameters of one activation of a function by a set of lanes.
struct Frame {
  const FunctionCode* function = nullptr;
  const uint8_t* consts = nullptr;
  uint8_t* regs = nullptr;
  uint8_t* params = nullptr;  // param_area_bytes for each lane
  Frame* caller = nullptr;
  const Instr* return_pc = nullptr;
  const CallSite* call = nullptr;
  uint32_t lanes = 0;       // lanes still inside
  uint32_t local_base = 0;  // begin of its variables in the lanes' local memory
  uint32_t local_top = 0;
  uint32_t depth = 0;
  AlignedBytes storage;
  size_t storage_bytes = 0;
};

enum class SplitState : uint8_t { kFree, kReady, kBarrier, kWarpSync, kClusterBarrier };

struct Split {
  const Instr* pc = nullptr;
  Frame* frame = nullptr;
  uint32_t mask = 0;
  uint32_t sync_mask = 0;  // in kWarpSync: the lanes that must come, if they live
  int16_t join = -1;
  SplitState state = SplitState::kFree;
  uint8_t barrier = 0;  // in kBarrier, and in kWarpSync before a barrier: its number
};

struct Join {
  const Instr* point = nullptr;
  Frame* frame = nullptr;
  uint32_t mask = 0;     // lanes that are expected at the point
  uint32_t arrived = 0;  // those of them that wait at the point
  int16_t parent = -1;
  bool used = false;
  bool broken = false;
};

struct Warp {
  Block* block = nullptr;
  uint32_t index = 0;
  uint32_t lanes = 0;  // lanes that exist
  uint32_t alive = 0;
  std::array<Split, 33> splits;
  std::array<Join, 33> joins;
  std::array<uint8_t, 33> order{};  // indices of the splits in use; the next to run is first
  uint8_t split_count = 0;          // length of order
  Frame base;                       // the kernel's own frame
  std::vector<std::unique_ptr<Frame>> frames;  // for called functions, in use or free
  std::vector<Frame*> free_frames;
  uint8_t* local = nullptr;  // stack_bytes for each lane
  uint32_t polls = 0;        // polling operations since the last arrival at a join
  uint64_t steps_since_arrival = 0;
  uint64_t sleep_ns = 0;
  uint32_t cluster_phase = 0;    // phase of the cluster barrier at the warp's last arrival
  uint32_t cluster_arrived = 0;  // living lanes that have arrived in the present phase
};

struct Barrier {
  uint32_t expected = 0;  // 0: all threads of the block
  uint32_t arrived = 0;
  uint32_t popc = 0;
  bool all = true;
  bool any = false;
};

struct Block {
  Unit* unit = nullptr;
  std::array<uint32_t, 3> id{};
  uint32_t rank = 0;  // in the cluster
  uint32_t sm_id = 0;
  uint32_t threads_alive = 0;
  std::vector<Warp> warps;
  std::array<Barrier, 16> barriers;
  std::map<uint32_t, int32_t> runtime_errors;  // cudaGetLastError() of threads that have an error
  AlignedBytes shared;
  SparseBytes local;
  AlignedBytes registers;
};

struct Unit {
  const PreparedLaunch* launch = nullptr;
  std::vector<Block> blocks;
  std::array<uint32_t, 3> first_block{};
  CostCounters counters;
  uint64_t cycles = 0;           // issued warp instructions: the clock
  uint32_t cluster_arrived = 0;  // lanes of all warps
  uint32_t cluster_generation = 0;
  Fault fault;
  std::vector<MemoryRange> ranges;  // allowed during this Run
  size_t frame_bytes = 0;           // frames of called functions; limited
};

// The shared memory that the hardware reserves in each block. Cooperative groups of several warps
// keep their barriers there.
constexpr uint32_t kReservedSharedBytes = 1024;

// A launch as KernelLaunch::Create prepared it. Read-only while the launch runs.
struct PreparedLaunch {
  const ModuleCode* module = nullptr;
  const ExecutableCode* executable = nullptr;
  const KernelInfo* info = nullptr;
  uint32_t function = 0;
  LaunchConfig config;
  LaunchServices services;
  uint32_t block_threads = 0;
  uint32_t cluster_blocks = 0;
  uint32_t dynamic_shared_offset = 0;
  uint32_t shared_bytes = 0;      // static and dynamic
  uint32_t shared_allocated = 0;  // rounded up as on hardware
  // What the block may access: the allocated memory, and the reserved memory behind it if the kernel
  // asks where that lies.
  uint32_t shared_accessible = 0;
  uint32_t stack_bytes = 0;
};

// Ends the turn and the launch. A unit keeps only its first fault.
void RaiseFault(Context& c, const Instr& in, FaultKind kind, uint64_t address, uint32_t lane);

// Counts a polling operation: an atomic, a volatile or acquiring load, a sleep, or a fence. The
// turn of a warp that does little else ends early.
inline void NotePoll(Context& c) {
  ++c.warp->polls;
  if (++c.turn_polls >= 32) EndTurn(c);
}

}  // namespace detshare::soft::ptx
