#include "server/backends/soft/soft_timing.h"

#include <catch2/catch.hpp>
#include <memory>
#include <vector>

namespace detshare::soft {
namespace {

constexpr Picoseconds kUs = 1'000'000;

// A stream of work on a timeline, in microseconds.
class TestQueue {
 public:
  explicit TestQueue(Timeline& timeline) : timeline_(timeline) {}

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
  std::shared_ptr<Timeline::Track> track_ = std::make_shared<Timeline::Track>();
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

}  // namespace detshare::soft
