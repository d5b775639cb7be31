#include "server/backends/soft/soft_timing.h"

#include <algorithm>
#include <queue>
#include <tuple>

namespace detshare::soft {
namespace {

using ptx::CostCounters;

// The cost of an instruction of a warp: cycles until its result can be used, and issue slots.
struct InstructionCost {
  uint64_t latency;
  uint64_t issues;
};
constexpr std::array<InstructionCost, CostCounters::kClassCount> kCosts = {{
    {8, 1},    // control
    {4, 1},    // integer
    {4, 1},    // float32
    {8, 2},    // float64
    {20, 4},   // special
    {25, 1},   // shared memory
    {150, 1},  // global memory: several accesses overlap
    {200, 2},  // atomic
    {32, 8},   // matrix
}};
constexpr uint64_t kBarrierCycles = 20;
constexpr uint64_t kSectorBytes = 32;

Picoseconds FromCycles(uint64_t cycles) { return cycles * 1'000'000'000 / kClockKhz; }

uint64_t CeilDivide(uint64_t a, uint64_t b) { return (a + b - 1) / b; }

size_t SlotsPerBlock(const Placement& placement) {
  return std::max<size_t>(1, kSlotsPerSm / std::max(1, placement.blocks_per_sm));
}

}  // namespace

Picoseconds UnitDuration(const Placement& placement, const CostCounters& counters) {
  uint64_t latency = 0, issues = 0;
  for (size_t i = 0; i < kCosts.size(); ++i) {
    latency += counters.instructions[i] * kCosts[i].latency;
    issues += counters.instructions[i] * kCosts[i].issues;
  }
  const uint64_t unit_warps = placement.warps_per_block * placement.blocks_per_unit;
  const uint64_t blocks = placement.units * placement.blocks_per_unit;
  const uint64_t busy_sms = std::min<uint64_t>(placement.sm_count, blocks);
  const uint64_t neighbours =
      std::min<uint64_t>(placement.blocks_per_sm, CeilDivide(blocks, busy_sms));
  const uint64_t bandwidth =
      std::min(kSmBandwidth, std::max<uint64_t>(1, kCardBandwidth / busy_sms));

  const Picoseconds by_latency =
      FromCycles(latency / unit_warps +
                 counters.barriers * kBarrierCycles / placement.blocks_per_unit) +
      counters.sleep_ns * 1000;
  const Picoseconds by_issue =
      FromCycles(CeilDivide(issues * neighbours, kIssuesPerCycle * placement.blocks_per_unit));
  const Picoseconds by_memory =
      CeilDivide(counters.global_sectors * kSectorBytes * neighbours * 1000,
                 bandwidth * placement.blocks_per_unit);
  return kBlockStart + std::max({by_latency, by_issue, by_memory});
}

Picoseconds TransferDuration(CopyEngine engine, uint64_t bytes, bool fill) {
  const uint64_t bandwidth = fill                              ? kFillBandwidth
                             : engine == CopyEngine::kOnDevice ? kOnDeviceCopyBandwidth
                                                               : kHostBandwidth;
  return kTransferStart + CeilDivide(bytes * 1000, bandwidth);
}

struct Timeline::Entry {
  enum class Kind { kNothing, kKernel, kTransfer, kRecord, kWait };
  Kind kind = Kind::kNothing;
  bool ended = false, resolved = false;
  std::shared_ptr<Track> track;
  std::shared_ptr<TimePoint> point;
  Placement placement;
  std::vector<Picoseconds> durations;
  Picoseconds sum = 0;  // the duration of a transfer
  CopyEngine engine = CopyEngine::kOnDevice;
};

Timeline::Timeline(int sm_count) : ordinary_sms_(sm_count), urgent_sms_(sm_count) {}

Timeline::EntryPtr Timeline::Submit(std::shared_ptr<Track> track) {
  auto entry = std::make_shared<Entry>();
  entry->track = std::move(track);
  const MutexLock lock(&mutex_);
  unresolved_.push_back(entry);
  if (unresolved_.size() > backlog_limit_) {
    ResolveAllEnded();
    backlog_limit_ = std::max(kLongestBacklog, 2 * unresolved_.size());
  }
  return entry;
}

void Timeline::EndKernel(const EntryPtr& entry, const Placement& placement,
                         std::vector<Picoseconds> durations, Picoseconds sum) {
  const MutexLock lock(&mutex_);
  entry->kind = Entry::Kind::kKernel;
  entry->placement = placement;
  entry->durations = std::move(durations);
  entry->sum = sum;
  End(entry);
}

void Timeline::EndTransfer(const EntryPtr& entry, CopyEngine engine, Picoseconds duration) {
  const MutexLock lock(&mutex_);
  entry->kind = Entry::Kind::kTransfer;
  entry->engine = engine;
  entry->sum = duration;
  End(entry);
}

void Timeline::EndRecord(const EntryPtr& entry, std::shared_ptr<TimePoint> point) {
  const MutexLock lock(&mutex_);
  entry->kind = Entry::Kind::kRecord;
  entry->point = std::move(point);
  End(entry);
}

void Timeline::EndWait(const EntryPtr& entry, std::shared_ptr<TimePoint> point, bool late) {
  const MutexLock lock(&mutex_);
  // The wait has not ended yet, so this resolves the record before the wait.
  if (late) ResolveAllEnded();
  entry->kind = Entry::Kind::kWait;
  entry->point = std::move(point);
  End(entry);
}

void Timeline::EndNothing(const EntryPtr& entry) {
  const MutexLock lock(&mutex_);
  End(entry);
}

std::optional<Picoseconds> Timeline::At(const TimePoint& point) {
  const MutexLock lock(&mutex_);
  if (!point.resolved_) ResolveAllEnded();
  if (!point.resolved_) return std::nullopt;
  return point.at_;
}

void Timeline::End(const EntryPtr& entry) {
  entry->ended = true;
  ResolveFront();
}

void Timeline::ResolveFront() {
  while (!unresolved_.empty() && unresolved_.front()->ended) {
    Resolve(*unresolved_.front());
    unresolved_.pop_front();
  }
}

// When an entry has ended, all entries that it depends on have ended, too, and precede it. So one
// pass is enough.
void Timeline::ResolveAllEnded() {
  for (const EntryPtr& entry : unresolved_) {
    if (entry->ended) Resolve(*entry);
  }
  std::erase_if(unresolved_, [](const EntryPtr& entry) { return entry->resolved; });
}

void Timeline::Resolve(Entry& entry) {
  if (entry.resolved) return;
  entry.resolved = true;
  Track& track = *entry.track;
  switch (entry.kind) {
    case Entry::Kind::kNothing:
      break;
    case Entry::Kind::kKernel:
      ResolveKernel(entry);
      break;
    case Entry::Kind::kTransfer: {
      Picoseconds& free = engines_[static_cast<size_t>(entry.engine)];
      free = std::max(Tail(track), free) + entry.sum;
      track.device = free;
      break;
    }
    case Entry::Kind::kRecord:
      entry.point->at_ = Tail(track);
      entry.point->resolved_ = true;
      break;
    case Entry::Kind::kWait:
      track.device = std::max(track.device, entry.point->at_);
      break;
  }
}

Picoseconds Timeline::Tail(const Track& track) const {
  return std::max(track.device, slices_.ToDevice(track.ordinary));
}

void Timeline::ResolveKernel(const Entry& entry) {
  Track& track = *entry.track;
  if (!track.urgent) {
    const Picoseconds launch = std::max(track.ordinary, slices_.ToOrdinary(track.device));
    track.ordinary = Place(entry, launch + kLaunchStart, ordinary_sms_) + kLaunchEnd;
    slices_.AddOrdinary(launch, track.ordinary);
    return;
  }
  const Picoseconds launch = track.device;
  const Picoseconds ready = FirstStart(entry.placement, launch + kLaunchStart, urgent_sms_);
  const Picoseconds delay = slices_.DelayOfUrgent(launch, ready);
  if (delay > 0) {
    // The other kernels of the turn wait for the switch, too.
    for (Slots& slots : urgent_sms_) {
      for (Picoseconds& slot : slots) slot = std::max(slot, ready + delay);
    }
  }
  track.device = Place(entry, ready + delay, urgent_sms_) + kLaunchEnd;
  slices_.AddUrgent(ready, track.device);
}

Picoseconds Timeline::FirstStart(const Placement& placement, Picoseconds ready, const Sms& sms) {
  const size_t slots = SlotsPerBlock(placement);
  Picoseconds free = sms[placement.first_sm][slots - 1];
  for (int sm = placement.first_sm; sm < placement.first_sm + placement.sm_count; ++sm) {
    free = std::min(free, sms[sm][slots - 1]);
  }
  return std::max(ready, free);
}

Picoseconds Timeline::Place(const Entry& entry, Picoseconds ready, Sms& sms) {
  return entry.durations.empty() ? PlaceSpread(entry, ready, sms) : PlaceUnits(entry, ready, sms);
}

Picoseconds Timeline::PlaceUnits(const Entry& entry, Picoseconds ready, Sms& sms) {
  const Placement& placement = entry.placement;
  const size_t slots_per_block = SlotsPerBlock(placement);

  // The SMs by (earliest start, blocks placed, number). Each SM is in the heap once.
  using Candidate = std::tuple<Picoseconds, uint64_t, int>;
  std::vector<Candidate> heap;
  heap.reserve(placement.sm_count);
  const auto start_on = [&](int sm) { return std::max(ready, sms[sm][slots_per_block - 1]); };
  for (int sm = placement.first_sm; sm < placement.first_sm + placement.sm_count; ++sm) {
    heap.emplace_back(start_on(sm), 0, sm);
  }
  std::make_heap(heap.begin(), heap.end(), std::greater<>());

  Picoseconds last_end = ready;
  std::vector<Candidate> chosen;
  for (const Picoseconds duration : entry.durations) {
    // The blocks of a unit go to different SMs. When a cluster has more blocks than there are SMs,
    // the remaining blocks are not placed.
    chosen.clear();
    Picoseconds start = ready;
    for (uint32_t block = 0; block < placement.blocks_per_unit && !heap.empty(); ++block) {
      std::pop_heap(heap.begin(), heap.end(), std::greater<>());
      chosen.push_back(heap.back());
      heap.pop_back();
      start = std::max(start, std::get<0>(chosen.back()));
    }
    const Picoseconds end = start + duration;
    for (auto& [when, placed, sm] : chosen) {
      Slots& slots = sms[sm];
      // The block takes the first slots, which are free again at `end`. The other slots stay
      // sorted, so a rotation sorts all.
      const auto taken = slots.begin() + slots_per_block;
      const auto place = std::upper_bound(taken, slots.end(), end);
      std::fill(slots.begin(), taken, end);
      std::rotate(slots.begin(), taken, place);
      heap.emplace_back(start_on(sm), placed + 1, sm);
      std::push_heap(heap.begin(), heap.end(), std::greater<>());
    }
    last_end = std::max(last_end, end);
  }
  return last_end;
}

Picoseconds Timeline::PlaceSpread(const Entry& entry, Picoseconds ready, Sms& sms) {
  const Placement& placement = entry.placement;
  const size_t slots_per_block = SlotsPerBlock(placement);
  std::vector<Picoseconds> free;
  for (int sm = placement.first_sm; sm < placement.first_sm + placement.sm_count; ++sm) {
    for (const Picoseconds slot : sms[sm]) free.push_back(std::max(ready, slot));
  }
  std::sort(free.begin(), free.end());

  // The level up to which the work, times its slots, fills the slots above their free times.
  const unsigned __int128 work =
      static_cast<unsigned __int128>(entry.sum) * slots_per_block * placement.blocks_per_unit;
  unsigned __int128 below = 0;  // sum of the free times of the slots that are used
  Picoseconds level = ready;
  for (size_t used = 1; used <= free.size(); ++used) {
    below += free[used - 1];
    level = static_cast<Picoseconds>((work + below + used - 1) / used);
    if (used == free.size() || level <= free[used]) break;
  }
  for (int sm = placement.first_sm; sm < placement.first_sm + placement.sm_count; ++sm) {
    for (Picoseconds& slot : sms[sm]) slot = std::max(slot, level);
  }
  return level;
}

}  // namespace detshare::soft
