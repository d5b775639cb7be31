// Virtual time: how long work would take on the GPU that the software GPU stands for.
//
// Time passes for work alone and depends only on what was submitted and in which order, never on
// how fast this machine runs. The model, in picoseconds:
//
//  - A queue has a tail: the moment when all of its work so far is complete. A piece of work
//    begins at the tail at the earliest. A marker's time is the tail where it was recorded; waiting
//    for a marker raises the tail to that time. Fences and host functions take no time, and an idle
//    host takes none either.
//  - Work is placed in the order of submission, over all queues (list scheduling): nothing that was
//    submitted later makes something earlier start later.
//  - An SM has 32 slots. A block of a kernel of which N fit on an SM takes 32/N of them, all at
//    once. Each block goes to the SM where it can start first; among equals where fewest blocks of
//    its kernel are, then to the lowest. A cluster's blocks start and end together. Grids of more
//    than kExactUnits blocks are spread evenly, as a liquid.
//  - A block takes the longest of three times, after kBlockStart: the latency of the instructions
//    of one warp (the average one); its issue slots, shared with the blocks of its kernel on the
//    same SM; its memory traffic, at its share of the SM's bandwidth, which is the card's divided
//    by the SMs in use, and at most kSmBandwidth.
//  - A kernel takes kLaunchStart before its first block and kLaunchEnd after its last.
//  - A copy or fill occupies one of three engines (to the device, from it, on it) for a fixed time
//    and one by its size.
//
// Times are known when the work is done and all work submitted before it is. Whoever asks earlier
// than the latter (a tenant's kernel may run for ever) gets the reply that leaves the unfinished
// work of other queues out of account.
//
// What a kernel sees is not this: %smid is the SM that the block has on an idle partition when all
// blocks take equally long, and the global timer counts the session's launches.
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
inline constexpr uint64_t kHostBandwidth = 55;  // bytes a nanosecond, over PCIe
inline constexpr uint64_t kOnDeviceCopyBandwidth = 2000;
inline constexpr uint64_t kFillBandwidth = 3000;
inline constexpr uint64_t kExactUnits = 16'384;

// Where the blocks of a launch may run, and how closely they are packed.
struct Placement {
  int first_sm = 0;
  int sm_count = 1;
  int blocks_per_sm = 1;         // as many fit on an SM
  uint32_t blocks_per_unit = 1;  // cluster size
  uint64_t units = 1;
  uint64_t warps_per_block = 1;
};

// How long each block of the unit (cluster) takes whose counters these are.
Picoseconds UnitDuration(const Placement& placement, const ptx::CostCounters& counters);

enum class CopyEngine { kToDevice, kFromDevice, kOnDevice };
Picoseconds TransferDuration(CopyEngine engine, uint64_t bytes, bool fill);

// The moment of a point in a queue's work.
class TimePoint {
 private:
  friend class Timeline;
  bool resolved_ = false;  // Timeline::mutex_
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

  // Takes the place of a piece of work in the order of submission. Each is ended by one of the
  // calls below, a track's in its order.
  EntryPtr Submit(std::shared_ptr<Track> track);

  // `durations`: of each unit in turn; more than kExactUnits: empty, and their sum counts.
  void EndKernel(const EntryPtr& entry, const Placement& placement,
                 std::vector<Picoseconds> durations, Picoseconds sum);
  void EndTransfer(const EntryPtr& entry, CopyEngine engine, Picoseconds duration);
  void EndRecord(const EntryPtr& entry, std::shared_ptr<TimePoint> point);
  // `late`: the record of the point was submitted after the wait, and has ended.
  void EndWait(const EntryPtr& entry, std::shared_ptr<TimePoint> point, bool late = false);
  // It took no time: a fence, or skipped work.
  void EndNothing(const EntryPtr& entry);

  // The time of a point whose EndRecord was called. Nullopt when it was not.
  std::optional<Picoseconds> At(const TimePoint& point);

 private:
  void End(const EntryPtr& entry);
  void ResolveFront();
  void ResolveAllEnded();
  void Resolve(Entry& entry);
  Picoseconds PlaceUnits(const Entry& entry, Picoseconds ready);
  Picoseconds PlaceSpread(const Entry& entry, Picoseconds ready);

  // When each slot of an SM is free, sorted.
  using Slots = std::array<Picoseconds, kSlotsPerSm>;

  std::mutex mutex_;
  std::vector<Slots> sms_;
  std::array<Picoseconds, 3> engines_{};
  // Entries that are kept for the sake of the order of submission, before those that have ended go
  // ahead.
  static constexpr size_t kLongestBacklog = 1 << 16;
  size_t backlog_limit_ = kLongestBacklog;
  std::deque<EntryPtr>
      unresolved_;  // in the order of submission; ended and resolved ones may be among them
};

}  // namespace detshare::soft
