// A kernel launch as a task of the engine: its units (blocks, or clusters) are run by as many
// workers as are free.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "server/backends/soft/ptx/block_runner.h"
#include "server/backends/soft/soft_engine.h"

namespace detshare::soft {

struct LoadedModule;

struct GridRequest {
  std::shared_ptr<SpaceState> space;
  std::shared_ptr<LoadedModule> module;
  size_t kernel = 0;  // index in the module
  ptx::LaunchConfig config;
  Placement placement;
  uint64_t quantum = 0;         // warp instructions of a turn
  uint64_t resident_units = 1;  // that may have begun and not ended
  std::function<void(std::string_view)> log;
};

// Units begin in their order. One that has not ended after a turn goes to the end of the line of
// those that have begun; one that only polls memory makes way for units that have not begun, in
// case it waits for them.
class GridJob final : public Job, private ptx::OutputSink {
 public:
  // CUDA_ERROR_INVALID_VALUE when the interpreter refuses the shape.
  static absl::StatusOr<std::unique_ptr<GridJob>> Create(GridRequest request);
  ~GridJob() override;

  Claimed Claim(Chunk* chunk) override;
  bool HasMore() const override;
  void Perform(Chunk* chunk) override;
  bool Finish(Chunk* chunk) override;
  // Prints what the units printed, in the order of the units; then tells the space of a fault, so
  // that whoever learns of the fault finds the text.
  void Conclude(Timeline& timeline, const Timeline::EntryPtr& entry) override;

 private:
  // A unit under way, or several short ones to be run one after the other. In one worker's hands,
  // or in ready_ or idle_.
  struct Runner {
    explicit Runner(const ptx::KernelLaunch* launch) : blocks(launch) {}
    ptx::BlockRunner blocks;
    bool begun = false;     // `unit` has been started
    bool spinning = false;  // it only polled memory in its last turn
    uint64_t unit = 0, end = 0;
    uint64_t turns = 0;              // of `unit`
    uint64_t unit_instructions = 0;  // of `unit` so far
    std::vector<uint32_t> sms;
    std::string text;  // printed by `unit`
    // Of the turn that ends:
    uint64_t done_units = 0, done_instructions = 0;
    Picoseconds done_sum = 0;
    std::vector<std::pair<uint64_t, std::string>> done_texts;
  };

  explicit GridJob(GridRequest request);
  void Print(std::string_view text) override;
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
  std::unique_ptr<uint64_t[]> workspace_;  // of grid.sync()
  std::unique_ptr<ptx::KernelLaunch> launch_;
  uint64_t units_ = 0;

  // Guarded by the engine's lock.
  uint64_t next_unit_ = 0;
  std::vector<std::pair<uint64_t, uint64_t>> returned_;  // units taken and given back unbegun
  uint64_t in_flight_ = 0;
  uint64_t done_units_ = 0, done_instructions_ = 0;
  Picoseconds sum_ = 0;
  std::map<uint64_t, std::string> texts_;
  std::deque<std::unique_ptr<Runner>> ready_;
  std::vector<std::unique_ptr<Runner>> idle_;

  // Each unit's is written by whoever ran the unit; read in Conclude.
  std::vector<Picoseconds> durations_;
  // The fault of the lowest unit that had one; all units stop soon after the first.
  std::mutex fault_mutex_;
  uint64_t fault_unit_ = 0;
  ptx::Fault fault_;
  std::atomic<bool> faulted_{false};     // relaxed: fault_ has its mutex
  std::atomic<uint64_t> text_bytes_{0};  // relaxed: a limit, nothing is published by it
};

}  // namespace detshare::soft
