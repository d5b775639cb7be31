// A kernel launch as a task of the engine. All free workers run its units, which are blocks or
// clusters.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/mutex.h"
#include "server/backends/soft/ptx/block_runner.h"
#include "server/backends/soft/soft_engine.h"

namespace detshare::soft {

struct LoadedModule;

// What a unit has printed, or several.
struct UnitText {
  std::string printed, failed_assertions;
  bool empty() const { return printed.empty() && failed_assertions.empty(); }
};

struct GridRequest;

// Counts a child and its memory for its session while it waits.
class WaitingChild {
 public:
  // Null if too many children of the session wait.
  static std::shared_ptr<WaitingChild> Create(std::shared_ptr<SpaceState> space, uint64_t bytes);
  ~WaitingChild() { space_->waiting_children.fetch_sub(1, std::memory_order_relaxed); }
  WaitingChild(const WaitingChild&) = delete;
  WaitingChild& operator=(const WaitingChild&) = delete;

 private:
  WaitingChild(std::shared_ptr<SpaceState> space, uint64_t bytes)
      : space_(std::move(space)), held_(space_, bytes) {}

  const std::shared_ptr<SpaceState> space_;
  const HeldMemory held_;
};

// Plans the launch of another kernel of the same module, with the errors of PlanLaunch.
using PlanChild = std::function<absl::StatusOr<GridRequest>(const ptx::ChildLaunch& launch)>;

struct GridRequest {
  std::shared_ptr<SpaceState> space;
  std::shared_ptr<LoadedModule> module;
  size_t kernel = 0;  // index in the module
  ptx::LaunchConfig config;
  Placement placement;
  uint64_t quantum = 0;         // length of a turn in warp instructions
  uint64_t resident_units = 1;  // units that may be under way at the same time
  std::function<void(std::string_view)> log;
  const DeviceProperties* device = nullptr;
  PlanChild plan_child;                   // null unless the kernel may launch kernels
  bool tail = false;                      // a child that begins after all others of its parent
  int depth = 0;                          // how many ancestors the kernel has
  std::shared_ptr<WaitingChild> waiting;  // of a child until its turn
};

// The results of a grid, or of a grid and its descendants.
struct GridOutcome {
  UnitText text;
  bool lost_text = false;  // it printed too much
  std::optional<ptx::Fault> fault;
  bool complete = false;  // all units ran to their end
  uint64_t units = 0;
  std::vector<Picoseconds> durations;  // as Timeline::EndKernel takes them
  Picoseconds sum = 0;

  // Adds the outcome of the grid that ran next.
  void Append(GridOutcome next);
  // Passes on the text. Then sets the fault of the space, so that the text is there when the session
  // learns of the fault. Ends the entry.
  void Deliver(const GridRequest& request, Timeline& timeline, const Timeline::EntryPtr& entry) &&;
};

// Units begin in the order of their numbers. A unit that has not ended after some turns goes to the
// end of the line of units under way. A unit that only polls memory goes there after each turn, and
// lets units begin that have not begun, because it may wait for them.
class GridJob final : public Job, private ptx::OutputSink, private ptx::DeviceRuntime {
 public:
  // CUDA_ERROR_INVALID_VALUE when the interpreter refuses the shape.
  static absl::StatusOr<std::unique_ptr<GridJob>> Create(GridRequest request);
  ~GridJob() override;

  bool RunsOnSms() const override { return true; }
  Claimed Claim(Chunk* chunk) override;
  bool HasMore() const override;
  uint64_t extra_bytes() const override;
  void Perform(Chunk* chunk) override;
  bool Finish(Chunk* chunk) override;
  void Conclude(Timeline& timeline, const Timeline::EntryPtr& entry) override;

  // Once the grid has ended:
  const GridRequest& request() const { return request_; }
  GridOutcome TakeOutcome();
  // The kernels that the grid launched, in the order of the units, those of the tail last.
  std::vector<GridRequest> TakeChildren();

 private:
  // Runs one unit, or several short units one after the other. A worker owns it, or it is in ready_
  // or idle_.
  struct Runner {
    explicit Runner(const ptx::KernelLaunch* launch) : blocks(launch) {}
    ptx::BlockRunner blocks;
    bool begun = false;     // `unit` has begun
    bool spinning = false;  // `unit` only polled memory in its last turn
    uint64_t unit = 0, end = 0;
    uint64_t turns = 0;              // of `unit`
    uint64_t unit_instructions = 0;  // of `unit` so far
    std::vector<uint32_t> sms;
    UnitText text;                      // of `unit`
    std::vector<GridRequest> children;  // that `unit` launched
    // The units that ended in this turn:
    uint64_t done_units = 0, done_instructions = 0;
    Picoseconds done_sum = 0;
    std::vector<std::pair<uint64_t, UnitText>> done_texts;
    std::vector<std::pair<uint64_t, std::vector<GridRequest>>> done_children;
  };

  explicit GridJob(GridRequest request);
  void Print(std::string_view text) override;
  void PrintError(std::string_view text) override;
  bool GetAttribute(int attribute, int* value) const override;
  int Launch(ptx::ChildLaunch launch) override;
  // Appends to a text of the unit that this thread runs, within the kernel's limit.
  void Append(std::string UnitText::*text, std::string_view more);
  void TakeTurn(Runner& runner);
  void Begin(Runner& runner);
  void KeepFault(uint64_t unit, const ptx::Fault& fault);
  bool HasNewUnits() const { return !returned_.empty() || next_unit_ < units_; }
  bool MayBegin() const {
    return HasNewUnits() && in_flight_ + ready_.size() < request_.resident_units;
  }
  bool Stopped() const {
    return faulted_.load(std::memory_order_relaxed) || request_.space->stopped();
  }
  uint64_t BatchSize() const;

  GridRequest request_;
  std::unique_ptr<uint64_t[]> workspace_;  // the memory that grid.sync() uses
  std::unique_ptr<ptx::KernelLaunch> launch_;
  uint64_t units_ = 0;

  // Guarded by the engine's lock.
  uint64_t next_unit_ = 0;
  std::vector<std::pair<uint64_t, uint64_t>> returned_;  // ranges of units that a runner gave back
  uint64_t in_flight_ = 0;
  uint64_t done_units_ = 0, done_instructions_ = 0;
  Picoseconds sum_ = 0;
  std::map<uint64_t, UnitText> texts_;
  std::map<uint64_t, std::vector<GridRequest>> children_;
  std::deque<std::unique_ptr<Runner>> ready_;
  std::vector<std::unique_ptr<Runner>> idle_;

  // By unit. The worker that runs a unit writes its duration; Conclude reads them.
  std::vector<Picoseconds> durations_;
  // The fault of the lowest unit that has one. All units stop soon after the first fault.
  Mutex fault_mutex_;
  uint64_t fault_unit_ ABSL_GUARDED_BY(fault_mutex_) = 0;
  ptx::Fault fault_ ABSL_GUARDED_BY(fault_mutex_);
  std::atomic<bool> faulted_{false};     // relaxed: fault_mutex_ publishes fault_
  std::atomic<uint64_t> text_bytes_{0};  // relaxed: a count that publishes nothing
};

}  // namespace detshare::soft
