// Virtual time: how long work would take on the GPU that the software GPU stands for.
//
// Only work takes virtual time. It depends only on which work is submitted and in which order,
// never on the speed of the host. The model, in picoseconds:
//
//  - A queue has a tail: the moment when all of its work so far is complete. A piece of work begins
//    at the tail or later. The time of a marker is the tail at its record. A wait for a marker
//    raises the tail to the marker's time. Fences, host functions and an idle host take no time.
//  - Work is placed in the order of submission, over all queues (list scheduling). So work never
//    delays work of its time-slice group that was submitted earlier.
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
//  - Kernels of the urgent time-slice group find all SMs free of ordinary work, after the delays of
//    soft_time_slices.h, and stop the ordinary kernels meanwhile. Copies and fills are not stopped,
//    and keep the times at which they were placed.
//
// The time of a marker follows from the work that was submitted before its record, and never
// changes. An urgent kernel that is submitted after the record of an ordinary marker may begin
// before the marker's time, because idle time does not exist. It then delays the ordinary queue's
// later markers, also if the queue gets no work between the two.
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
#include <optional>
#include <vector>

#include "proto/mutex.h"
#include "server/backends/soft/ptx/cost_counters.h"
#include "server/backends/soft/soft_time_slices.h"

namespace detshare::soft {

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

  // A queue's tail: the later of two times.
  class Track {
   public:
    explicit Track(bool urgent = false) : urgent(urgent) {}
    const bool urgent;  // the queue is of the urgent group

   private:
    friend class Timeline;
    Picoseconds device = 0;    // the end of the work that is not on the ordinary clock
    Picoseconds ordinary = 0;  // the end of the ordinary kernels, on their clock
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
  void End(const EntryPtr& entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ResolveFront() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ResolveAllEnded() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Resolve(Entry& entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Picoseconds Tail(const Track& track) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ResolveKernel(const Entry& entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // For each slot of an SM the moment when it becomes free, sorted.
  using Slots = std::array<Picoseconds, kSlotsPerSm>;
  using Sms = std::vector<Slots>;
  // The first moment from `ready` on when a block of the kernel can begin.
  static Picoseconds FirstStart(const Placement& placement, Picoseconds ready, const Sms& sms);
  // Place the blocks of a kernel, and return the end of the last. `ready` and the slots' times are
  // on the clock of the kernel's group.
  static Picoseconds Place(const Entry& entry, Picoseconds ready, Sms& sms);
  static Picoseconds PlaceUnits(const Entry& entry, Picoseconds ready, Sms& sms);
  static Picoseconds PlaceSpread(const Entry& entry, Picoseconds ready, Sms& sms);

  Mutex mutex_;
  Sms ordinary_sms_ ABSL_GUARDED_BY(mutex_), urgent_sms_ ABSL_GUARDED_BY(mutex_);
  TimeSlices slices_ ABSL_GUARDED_BY(mutex_);
  std::array<Picoseconds, 3> engines_ ABSL_GUARDED_BY(mutex_){};
  // The number of entries that are kept for the order of submission. Beyond it, entries that have
  // ended are resolved before earlier entries that have not.
  static constexpr size_t kLongestBacklog = 1 << 16;
  size_t backlog_limit_ ABSL_GUARDED_BY(mutex_) = kLongestBacklog;
  // In the order of submission. Some may have ended or be resolved already.
  std::deque<EntryPtr> unresolved_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace detshare::soft
