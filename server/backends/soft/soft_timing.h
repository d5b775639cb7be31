// Virtual time: how long work would take on the GPU that the software GPU stands for.
//
// Only work takes virtual time. It depends only on which work is submitted and in which order,
// never on the speed of the host. The model, in picoseconds:
//
//  - A queue has a tail: the moment when all of its work so far is complete. A piece of work begins
//    at the tail or later. The time of a marker is the tail at its record. A wait for a marker
//    raises the tail to the marker's time. Fences, host functions and an idle host take no time.
//  - Work is placed in the order of submission, over all queues (list scheduling). So later work
//    never delays earlier work.
//  - An SM has 32 slots. If N blocks of a kernel fit on an SM, each block takes 32/N slots, all at
//    once. A block goes to the SM where it can start first; among equal SMs, to the one with the
//    fewest blocks of its kernel, then to the one with the lowest number. The blocks of a cluster
//    start and end together. Grids of more than kExactUnits units spread evenly, like a liquid.
//  - A block takes kBlockStart and then the longest of three times: the latency of the instructions
//    of its average warp; its issue slots, shared with the blocks of its kernel on the same SM; and
//    its memory traffic, at its share of the SM's bandwidth. The bandwidth of an SM is the card's
//    divided by the number of SMs in use, and at most kSmBandwidth.
//  - A kernel takes kLaunchStart before its first block and kLaunchEnd after its last block.
//  - A copy or fill occupies one of three engines (to the device, from it, on it) for a fixed time
//    and a time that grows with its size.
//
// A time is exact once the work and all work submitted before it are done. A tenant's kernel may
// run for ever, so a caller that asks earlier gets a time that ignores the unfinished work of other
// queues.
//
// Kernels do not see virtual time. %smid is the SM that the block gets on an idle partition when
// all blocks take equally long, and the global timer counts the session's launches.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "server/backends/soft/ptx/cost_counters.h"

namespace detshare::soft {

using Picoseconds = uint64_t;

inline constexpr uint64_t kClockKhz = 1'980'000;
inline constexpr uint64_t kIssuesPerCycle = 4;
inline constexpr uint64_t kSlotsPerSm = 32;
inline constexpr uint64_t kCardBandwidth = 4800;  // bytes a nanosecond
inline constexpr uint64_t kSmBandwidth = 96;      // bytes a nanosecond
inline constexpr Picoseconds kBlockStart = 50'000;
inline constexpr Picoseconds kLaunchStart = 1'500'000;
inline constexpr Picoseconds kLaunchEnd = 500'000;
inline constexpr Picoseconds kTransferStart = 1'200'000;
inline constexpr uint64_t kHostBandwidth = 55;            // bytes a nanosecond, over PCIe
inline constexpr uint64_t kOnDeviceCopyBandwidth = 2000;  // bytes a nanosecond
inline constexpr uint64_t kFillBandwidth = 3000;          // bytes a nanosecond
inline constexpr uint64_t kExactUnits = 16'384;

// The SMs on which the blocks of a launch may run, and how many blocks share an SM.
struct Placement {
  int first_sm = 0;
  int sm_count = 1;
  int blocks_per_sm = 1;         // the number that fits on an SM
  uint32_t blocks_per_unit = 1;  // cluster size
  uint64_t units = 1;
  uint64_t warps_per_block = 1;
};

// How long each block of a unit (block or cluster) takes. `counters` are those of the unit.
Picoseconds UnitDuration(const Placement& placement, const ptx::CostCounters& counters);

enum class CopyEngine { kToDevice, kFromDevice, kOnDevice };
Picoseconds TransferDuration(CopyEngine engine, uint64_t bytes, bool fill);

// The moment of a point in a queue's work.
class TimePoint {
 private:
  friend class Timeline;
  bool resolved_ = false;  // Timeline::mutex_ guards both
  Picoseconds at_ = 0;
};

// Any thread.
class Timeline {
 public:
  explicit Timeline(int sm_count);

  // A queue's tail.
  struct Track {
   private:
    friend class Timeline;
    Picoseconds tail = 0;
  };
  struct Entry;
  using EntryPtr = std::shared_ptr<Entry>;

  // Takes a place for a piece of work in the order of submission. The caller ends each entry with
  // one of the calls below, and the entries of a track in their order.
  EntryPtr Submit(std::shared_ptr<Track> track);

  // `durations`: the duration of each unit in turn. Empty for a grid of more than kExactUnits
  // units, for which only the `sum` of the durations counts.
  void EndKernel(const EntryPtr& entry, const Placement& placement,
                 std::vector<Picoseconds> durations, Picoseconds sum);
  void EndTransfer(const EntryPtr& entry, CopyEngine engine, Picoseconds duration);
  void EndRecord(const EntryPtr& entry, std::shared_ptr<TimePoint> point);
  // `late`: the point's record was submitted after the wait. It must have ended.
  void EndWait(const EntryPtr& entry, std::shared_ptr<TimePoint> point, bool late = false);
  // For work that takes no time: a fence, or skipped work.
  void EndNothing(const EntryPtr& entry);

  // The time of a point; nullopt before EndRecord was called for it.
  std::optional<Picoseconds> At(const TimePoint& point);

 private:
  void End(const EntryPtr& entry);
  void ResolveFront();
  void ResolveAllEnded();
  void Resolve(Entry& entry);
  Picoseconds PlaceUnits(const Entry& entry, Picoseconds ready);
  Picoseconds PlaceSpread(const Entry& entry, Picoseconds ready);

  // For each slot of an SM the moment when it becomes free, sorted.
  using Slots = std::array<Picoseconds, kSlotsPerSm>;

  std::mutex mutex_;
  std::vector<Slots> sms_;
  std::array<Picoseconds, 3> engines_{};
  // The number of entries that are kept for the order of submission. Beyond it, entries that have
  // ended are resolved before earlier entries that have not.
  static constexpr size_t kLongestBacklog = 1 << 16;
  size_t backlog_limit_ = kLongestBacklog;
  std::deque<EntryPtr>
      unresolved_;  // in the order of submission; some may have ended or be resolved already
};

}  // namespace detshare::soft
