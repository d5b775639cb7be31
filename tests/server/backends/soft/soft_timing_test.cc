#include "server/backends/soft/soft_timing.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <memory>
#include <random>
#include <utility>
#include <vector>

namespace detshare::soft {
namespace {

constexpr Picoseconds kUs = 1'000'000;

// A stream of work on a timeline, in microseconds.
class TestQueue {
 public:
  explicit TestQueue(Timeline& timeline, bool urgent = false)
      : timeline_(timeline), track_(std::make_shared<Timeline::Track>(urgent)) {}

  Timeline::EntryPtr Submit() { return timeline_.Submit(track_); }

  std::shared_ptr<TimePoint> Record() {
    auto point = std::make_shared<TimePoint>();
    timeline_.EndRecord(Submit(), point);
    return point;
  }
  void Wait(const std::shared_ptr<TimePoint>& point) { timeline_.EndWait(Submit(), point); }

  void End(const Timeline::EntryPtr& entry, const Placement& placement,
           const std::vector<Picoseconds>& units) {
    Picoseconds sum = 0;
    for (const Picoseconds unit : units) sum += unit;
    timeline_.EndKernel(entry, placement, units, sum);
  }
  void Kernel(const Placement& placement, const std::vector<Picoseconds>& units) {
    End(Submit(), placement, units);
  }

 private:
  Timeline& timeline_;
  const std::shared_ptr<Timeline::Track> track_;
};

Placement On(int first, int count, int per_sm, uint64_t units) {
  Placement placement;
  placement.first_sm = first;
  placement.sm_count = count;
  placement.blocks_per_sm = per_sm;
  placement.units = units;
  return placement;
}

constexpr Picoseconds kOverhead = kLaunchStart + kLaunchEnd;

}  // namespace

TEST_CASE("nothing takes no time") {
  Timeline timeline(4);
  TestQueue queue(timeline);
  CHECK(timeline.At(*queue.Record()) == Picoseconds{0});
}

TEST_CASE("a kernel takes its blocks' time and the launch") {
  Timeline timeline(4);
  TestQueue queue(timeline);
  queue.Kernel(On(0, 4, 1, 4), {10 * kUs, 20 * kUs, 10 * kUs, 10 * kUs});
  CHECK(timeline.At(*queue.Record()) == 20 * kUs + kOverhead);
}

TEST_CASE("kernels of a queue run one after the other") {
  Timeline timeline(4);
  TestQueue queue(timeline);
  queue.Kernel(On(0, 4, 1, 1), {10 * kUs});
  queue.Kernel(On(0, 4, 1, 1), {5 * kUs});
  CHECK(timeline.At(*queue.Record()) == 15 * kUs + 2 * kOverhead);
}

TEST_CASE("each block goes to the SM where it can start first") {
  Timeline timeline(2);
  TestQueue queue(timeline);
  // The third block follows the first, and the fourth follows the third.
  queue.Kernel(On(0, 2, 1, 4), {10 * kUs, 100 * kUs, 10 * kUs, 10 * kUs});
  CHECK(timeline.At(*queue.Record()) == 100 * kUs + kOverhead);
}

TEST_CASE("blocks that could start on several SMs are spread over them") {
  Timeline timeline(2);
  TestQueue first(timeline), second(timeline);
  first.Kernel(On(0, 2, 2, 2), {10 * kUs, 10 * kUs});
  second.Kernel(On(0, 1, 2, 1), {10 * kUs});
  CHECK(timeline.At(*second.Record()) == 10 * kUs + kOverhead);
}

TEST_CASE("as many blocks as fit share an SM") {
  Timeline timeline(1);
  TestQueue queue(timeline);
  queue.Kernel(On(0, 1, 4, 8), std::vector<Picoseconds>(8, 10 * kUs));
  CHECK(timeline.At(*queue.Record()) == 20 * kUs + kOverhead);
}

TEST_CASE("kernels on disjoint SMs run at the same time, on the same SMs after each other") {
  Timeline timeline(4);
  TestQueue first(timeline), second(timeline), third(timeline);
  first.Kernel(On(0, 2, 1, 2), {50 * kUs, 50 * kUs});
  second.Kernel(On(2, 2, 1, 2), {50 * kUs, 50 * kUs});
  third.Kernel(On(0, 2, 1, 2), {50 * kUs, 50 * kUs});
  CHECK(timeline.At(*first.Record()) == 50 * kUs + kOverhead);
  CHECK(timeline.At(*second.Record()) == 50 * kUs + kOverhead);
  CHECK(timeline.At(*third.Record()) == 100 * kUs + kOverhead);
}

TEST_CASE("kernels of two queues share an SM that has room for both") {
  Timeline timeline(1);
  TestQueue first(timeline), second(timeline);
  first.Kernel(On(0, 1, 2, 1), {50 * kUs});
  second.Kernel(On(0, 1, 2, 1), {50 * kUs});
  CHECK(timeline.At(*second.Record()) == 50 * kUs + kOverhead);
}

TEST_CASE("the blocks of a cluster start and end together") {
  Timeline timeline(4);
  TestQueue blocker(timeline), queue(timeline);
  blocker.Kernel(On(0, 1, 1, 1), {30 * kUs});
  Placement clusters = On(0, 4, 1, 2);
  clusters.blocks_per_unit = 2;
  // The first cluster takes SMs 1 and 2. The second cluster takes SM 3 and waits for another SM.
  queue.Kernel(clusters, {20 * kUs, 20 * kUs});
  CHECK(timeline.At(*queue.Record()) == 40 * kUs + kOverhead);
}

TEST_CASE("a marker makes another queue wait") {
  Timeline timeline(4);
  TestQueue first(timeline), second(timeline);
  first.Kernel(On(0, 1, 1, 1), {30 * kUs});
  const auto point = first.Record();
  second.Wait(point);
  second.Kernel(On(1, 1, 1, 1), {10 * kUs});
  CHECK(timeline.At(*second.Record()) == 40 * kUs + 2 * kOverhead);
  // The point is earlier than the queue's tail, so the wait changes nothing.
  second.Wait(point);
  CHECK(timeline.At(*second.Record()) == 40 * kUs + 2 * kOverhead);
}

TEST_CASE("the order of ending does not matter") {
  for (const bool reversed : {false, true}) {
    Timeline timeline(2);
    TestQueue first(timeline), second(timeline);
    const auto a = first.Submit(), b = second.Submit();
    const auto end_a = [&] { first.End(a, On(0, 2, 1, 3), {10 * kUs, 40 * kUs, 10 * kUs}); };
    const auto end_b = [&] { second.End(b, On(0, 2, 1, 1), {10 * kUs}); };
    if (reversed) {
      end_b();
      end_a();
    } else {
      end_a();
      end_b();
    }
    CHECK(timeline.At(*first.Record()) == 40 * kUs + kOverhead);
    CHECK(timeline.At(*second.Record()) == 30 * kUs + kOverhead);
  }
}

TEST_CASE("a time that is read before earlier work of other queues has ended ignores that work") {
  Timeline timeline(1);
  TestQueue endless(timeline), queue(timeline);
  const auto entry = endless.Submit();
  queue.Kernel(On(0, 1, 1, 1), {10 * kUs});
  CHECK(timeline.At(*queue.Record()) == 10 * kUs + kOverhead);
  endless.End(entry, On(0, 1, 1, 1), {10 * kUs});
  CHECK(timeline.At(*endless.Record()) == 20 * kUs + kOverhead);
}

TEST_CASE("a point that was not reached has no time") {
  Timeline timeline(1);
  CHECK_FALSE(timeline.At(TimePoint()).has_value());
}

TEST_CASE("copies in one direction share an engine, and each direction has its own") {
  Timeline timeline(1);
  TestQueue first(timeline), second(timeline), third(timeline);
  timeline.EndTransfer(first.Submit(), CopyEngine::kToDevice, 10 * kUs);
  timeline.EndTransfer(second.Submit(), CopyEngine::kToDevice, 10 * kUs);
  timeline.EndTransfer(third.Submit(), CopyEngine::kFromDevice, 10 * kUs);
  CHECK(timeline.At(*second.Record()) == 20 * kUs);
  CHECK(timeline.At(*third.Record()) == 10 * kUs);
  CHECK(TransferDuration(CopyEngine::kToDevice, 55'000'000, false) == kTransferStart + 1000 * kUs);
}

TEST_CASE("skipped work takes no time") {
  Timeline timeline(1);
  TestQueue queue(timeline);
  timeline.EndNothing(queue.Submit());
  CHECK(timeline.At(*queue.Record()) == Picoseconds{0});
}

TEST_CASE("a very large grid is spread evenly over its SMs") {
  Timeline timeline(2);
  TestQueue queue(timeline);
  const uint64_t units = 1'000'000;
  timeline.EndKernel(queue.Submit(), On(0, 2, 4, units), {}, units * kUs);
  CHECK(timeline.At(*queue.Record()) == units * kUs / 8 + kOverhead);
  // The work first fills the gaps that earlier work left.
  Timeline other(2);
  TestQueue small(other), large(other);
  small.Kernel(On(0, 1, 1, 1), {10 * kUs});
  other.EndKernel(large.Submit(), On(0, 2, 1, units), {}, 30 * kUs);
  CHECK(other.At(*large.Record()) == 20 * kUs + kOverhead);
}

TEST_CASE("the durations of the model have fixed values") {
  Placement one = On(0, 132, 16, 1);
  ptx::CostCounters counters;
  CHECK(UnitDuration(one, counters) == kBlockStart);

  // The instructions of a single warp wait for each other.
  counters.instructions[ptx::CostCounters::kFloat32] = 1980;
  CHECK(UnitDuration(one, counters) == kBlockStart + 4 * kUs);

  // Many warps hide the latency. Then the issue slots decide, which the blocks of an SM share.
  Placement wide = On(0, 132, 2, 264);
  wide.warps_per_block = 32;
  counters.instructions[ptx::CostCounters::kFloat32] = 1980 * 32;
  CHECK(UnitDuration(wide, counters) == kBlockStart + 16 * kUs);

  // Memory traffic at the limit of the SM and, when all SMs are busy, at the limit of the card.
  counters = {};
  counters.global_sectors = 3000;
  CHECK(UnitDuration(one, counters) == kBlockStart + 1 * kUs);
  counters.global_sectors = 3600;
  CHECK(UnitDuration(On(0, 132, 1, 132), counters) == kBlockStart + 3200 * kUs / 1000);
}

TEST_CASE("a backlog that is too long does not wait for work that never ends") {
  Timeline timeline(1);
  TestQueue endless(timeline), queue(timeline);
  const auto entry = endless.Submit();
  for (int i = 0; i < 100'000; ++i) timeline.EndNothing(queue.Submit());
  queue.Kernel(On(0, 1, 1, 1), {10 * kUs});
  CHECK(timeline.At(*queue.Record()) == 10 * kUs + kOverhead);
  timeline.EndNothing(entry);
}

TEST_CASE("an urgent kernel stops an ordinary one that fills the device, which goes on after it") {
  Timeline timeline(4);
  TestQueue ordinary(timeline), urgent(timeline, true);
  const std::vector<Picoseconds> all(4, 1000 * kUs);
  ordinary.Kernel(On(0, 4, 1, 4), all);
  const auto before = ordinary.Record();
  urgent.Kernel(On(0, 4, 1, 4), std::vector<Picoseconds>(4, 30 * kUs));
  const auto after = ordinary.Record();
  CHECK(timeline.At(*urgent.Record()) == kPreempt + 30 * kUs + kOverhead);
  CHECK(timeline.At(*before) == 1000 * kUs + kOverhead);
  // The end of an urgent launch is part of its turn.
  CHECK(timeline.At(*after) == 1000 * kUs + kOverhead + kPreempt + 30 * kUs + kLaunchEnd + kResume);
  CHECK(timeline.At(*before) == 1000 * kUs + kOverhead);
}

TEST_CASE("the urgent kernels of a turn pay for one switch") {
  Timeline timeline(4);
  TestQueue ordinary(timeline), first(timeline, true), second(timeline, true);
  ordinary.Kernel(On(0, 4, 1, 4), std::vector<Picoseconds>(4, 1000 * kUs));
  first.Kernel(On(0, 4, 1, 1), {30 * kUs});
  first.Kernel(On(0, 4, 1, 1), {30 * kUs});
  // Begins beside the first when the switch is over.
  second.Kernel(On(0, 4, 1, 1), {10 * kUs});
  CHECK(timeline.At(*first.Record()) == kPreempt + 60 * kUs + 2 * kOverhead);
  CHECK(timeline.At(*second.Record()) == kPreempt + 10 * kUs + kOverhead);
  CHECK(timeline.At(*ordinary.Record()) ==
        1000 * kUs + 2 * kOverhead + kPreempt + 60 * kUs + kOverhead - kLaunchStart + kResume);
}

TEST_CASE("a time-slice group that is alone pays nothing") {
  for (const bool urgent : {false, true}) {
    Timeline timeline(4);
    TestQueue first(timeline, urgent), second(timeline, urgent);
    first.Kernel(On(0, 4, 1, 4), std::vector<Picoseconds>(4, 50 * kUs));
    second.Kernel(On(0, 4, 1, 4), std::vector<Picoseconds>(4, 50 * kUs));
    CHECK(timeline.At(*first.Record()) == 50 * kUs + kOverhead);
    CHECK(timeline.At(*second.Record()) == 100 * kUs + kOverhead);
  }
}

TEST_CASE("a stream that moves between groups pays for the switch to each") {
  Timeline timeline(4);
  TestQueue ordinary(timeline), urgent(timeline, true);
  const auto kernel = [](TestQueue& queue) { queue.Kernel(On(0, 4, 1, 1), {10 * kUs}); };
  const Picoseconds one = 10 * kUs + kOverhead;
  kernel(ordinary);
  urgent.Wait(ordinary.Record());
  kernel(urgent);
  auto at = urgent.Record();
  CHECK(timeline.At(*at) == 2 * one + kSwitch);
  ordinary.Wait(at);
  CHECK(timeline.At(*ordinary.Record()) == 2 * one + kSwitch);
  kernel(ordinary);
  at = ordinary.Record();
  CHECK(timeline.At(*at) == 3 * one + kSwitch + kResume);
  urgent.Wait(at);
  kernel(urgent);
  kernel(urgent);
  CHECK(timeline.At(*urgent.Record()) == 5 * one + 2 * kSwitch + kResume);
}

TEST_CASE("an urgent kernel after others of its group pays nothing while no ordinary work comes") {
  Timeline timeline(4);
  TestQueue ordinary(timeline), urgent(timeline, true), copies(timeline);
  ordinary.Kernel(On(0, 4, 1, 1), {10 * kUs});
  urgent.Wait(ordinary.Record());
  urgent.Kernel(On(0, 4, 1, 1), {10 * kUs});
  timeline.EndTransfer(copies.Submit(), CopyEngine::kToDevice, 5000 * kUs);
  urgent.Wait(copies.Record());
  urgent.Kernel(On(0, 4, 1, 1), {10 * kUs});
  CHECK(timeline.At(*urgent.Record()) == 5010 * kUs + kOverhead);
}

TEST_CASE("copies are not stopped, and take no part in switches") {
  Timeline timeline(4);
  TestQueue ordinary(timeline), urgent(timeline, true);
  timeline.EndTransfer(ordinary.Submit(), CopyEngine::kToDevice, 500 * kUs);
  urgent.Kernel(On(0, 4, 1, 4), std::vector<Picoseconds>(4, 100 * kUs));
  timeline.EndTransfer(urgent.Submit(), CopyEngine::kFromDevice, 10 * kUs);
  CHECK(timeline.At(*urgent.Record()) == 110 * kUs + kOverhead);
  CHECK(timeline.At(*ordinary.Record()) == 500 * kUs);
}

TEST_CASE("an ordinary kernel that comes in a turn begins when the device is back") {
  Timeline timeline(4);
  TestQueue ordinary(timeline), urgent(timeline, true);
  urgent.Kernel(On(0, 4, 1, 1), {100 * kUs});
  timeline.EndTransfer(ordinary.Submit(), CopyEngine::kToDevice, 60 * kUs);
  ordinary.Kernel(On(0, 4, 1, 1), {10 * kUs});
  CHECK(timeline.At(*ordinary.Record()) == 100 * kUs + kOverhead + kResume + 10 * kUs + kOverhead);
}

// Ordinary work with urgent work between takes as long as alone and the stops, whatever the work is
// and in whichever order it ends. The urgent work takes as long as alone and the switches.
TEST_CASE("the times of both groups add up") {
  for (unsigned seed = 0; seed < 20; ++seed) {
    std::mt19937 random(seed);
    Timeline shared(8), alone(8);
    std::vector<TestQueue> ordinary, same, urgent;
    for (int i = 0; i < 3; ++i) {
      ordinary.emplace_back(shared);
      same.emplace_back(alone);
    }
    urgent.emplace_back(shared, true);
    struct Kernel {
      TestQueue* queue;
      Timeline::EntryPtr entry;
      Placement placement;
      std::vector<Picoseconds> units;
    };
    std::vector<Kernel> kernels;
    Picoseconds urgent_time = 0;
    for (int i = 0; i < 60; ++i) {
      const int sms = 1 + static_cast<int>(random() % 8);
      const Placement placement = On(0, sms, 1 + static_cast<int>(random() % 2), 1);
      const std::vector<Picoseconds> units = {(1 + random() % 100) * kUs};
      if (random() % 4 == 0) {
        kernels.push_back({&urgent[0], urgent[0].Submit(), placement, units});
        urgent_time += units[0] + kOverhead;
      } else {
        const size_t queue = random() % 3;
        kernels.push_back({&ordinary[queue], ordinary[queue].Submit(), placement, units});
        same[queue].Kernel(placement, units);
      }
    }
    std::vector<Timeline::EntryPtr> records;
    std::vector<std::shared_ptr<TimePoint>> points;
    for (TestQueue& queue : ordinary) {
      records.push_back(queue.Submit());
      points.push_back(std::make_shared<TimePoint>());
    }
    // The kernels of a queue end in their order.
    std::vector<TestQueue*> turns;
    for (const Kernel& kernel : kernels) turns.push_back(kernel.queue);
    std::shuffle(turns.begin(), turns.end(), random);
    for (TestQueue* const queue : turns) {
      const auto next = std::find_if(kernels.begin(), kernels.end(), [&](const Kernel& kernel) {
        return kernel.queue == queue && kernel.entry != nullptr;
      });
      queue->End(std::exchange(next->entry, nullptr), next->placement, next->units);
    }
    for (size_t i = 0; i < 3; ++i) shared.EndRecord(records[i], points[i]);
    const Picoseconds urgent_end = *shared.At(*urgent[0].Record());
    // The urgent queue was never idle, so it had one turn.
    CHECK((urgent_end == urgent_time || urgent_end == urgent_time + kPreempt));
    const Picoseconds stop = urgent_end - kLaunchStart + kResume;
    for (size_t i = 0; i < 3; ++i) {
      const Picoseconds without = *alone.At(*same[i].Record());
      CHECK(*shared.At(*points[i]) == (without > kLaunchStart ? without + stop : without));
    }
  }
}

TEST_CASE("a history that is too long stays consistent") {
  TimeSlices slices;
  for (Picoseconds i = 1; i <= 3 * TimeSlices::kMaxIntervals; ++i) {
    slices.AddOrdinary(i * 1000 * kUs, i * 1000 * kUs + kUs);
    slices.AddUrgent(i * 2000 * kUs, i * 2000 * kUs + 100 * kUs);
  }
  const Picoseconds count = 3 * TimeSlices::kMaxIntervals, stop = 100 * kUs + kResume;
  const Picoseconds end = count * 2000 * kUs + stop;
  CHECK(slices.ToOrdinary(end) == end - count * stop);
  CHECK(slices.ToDevice(slices.ToOrdinary(end + 7)) == end + 7);
  CHECK(slices.ToOrdinary(end - 1) == slices.ToOrdinary(end));
  CHECK(slices.ToDevice(slices.ToOrdinary(end)) == end - stop);
  CHECK(slices.ToDevice(0) == 0);
}

}  // namespace detshare::soft
