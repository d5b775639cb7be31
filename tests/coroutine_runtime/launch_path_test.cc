// The launch path does not allocate. Every operator new of this program is counted.
#include <catch2/catch.hpp>
#include <cstdlib>
#include <new>

#include "coroutine_runtime/gpu_coroutine.h"
#include "coroutine_runtime/gpu_graph.h"
#include "tests/coroutine_runtime/fake_device.h"

namespace {
thread_local size_t allocations = 0;
}  // namespace

void* operator new(size_t bytes) {
  ++allocations;
  if (void* memory = std::malloc(bytes)) return memory;
  throw std::bad_alloc();
}
void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  ++allocations;
  return std::malloc(bytes);
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace detshare {
namespace {

// Accepts everything and does nothing.
class NullQueue final : public Queue {
 public:
  absl::Status Launch(AddressSpace&, Kernel&, const LaunchShape&,
                      absl::Span<const std::byte>) override {
    return absl::OkStatus();
  }
  absl::Status Copy(AddressSpace&, const CopyRequest&) override { return absl::OkStatus(); }
  absl::Status Fill(AddressSpace&, const FillRequest&) override { return absl::OkStatus(); }
  absl::Status WriteFence(AddressSpace&, std::atomic<uint64_t>*, uint64_t) override {
    return absl::OkStatus();
  }
  absl::Status WaitFence(AddressSpace&, const std::atomic<uint64_t>*, uint64_t) override {
    return absl::OkStatus();
  }
  absl::Status MemoryOps(AddressSpace&, absl::Span<const MemoryOp>) override {
    return absl::OkStatus();
  }
  absl::Status Record(Marker&) override { return absl::OkStatus(); }
  absl::Status Wait(Marker&) override { return absl::OkStatus(); }
  absl::Status LaunchGraph(AddressSpace&, Graph&, absl::Span<const uint64_t>) override {
    return absl::OkStatus();
  }
  // Every second look finds work.
  bool Idle() override { return idle_ = !idle_; }

 private:
  bool idle_ = false;
};

class NullPartition final : public Partition {
 public:
  int first_sm() const override { return 0; }
  int sm_count() const override { return 8; }
  absl::StatusOr<std::unique_ptr<Queue>> CreateQueue(int) override {
    return std::make_unique<NullQueue>();
  }
};

class NullDevice final : public FakeDevice {
 public:
  Partition& whole() override { return null_whole_; }
  Partition* urgent() override {
    return properties().preemption.available ? &null_urgent_ : nullptr;
  }

 private:
  NullPartition null_whole_, null_urgent_;
};

TEST_CASE("Operations of a followed session allocate nothing") {
  NullDevice device;
  NullPartition low, high;
  QueuePool pool(device);
  Executor executor;
  Parking parking{executor};
  std::unique_ptr<AddressSpace> space = *device.CreateAddressSpace(1ull << 40, 1ull << 40);
  std::unique_ptr<GpuCoroutine> coroutine = *GpuCoroutine::Create(device, *space, pool, parking);
  SchedBoard board;
  DurationTable durations(16);
  ManualClock clock;
  SchedEntity entity(board, durations, clock, [](SchedEntity::News) {});
  SchedEntity::Assignment assignment;
  assignment.followed = true;
  assignment.rank = 1;
  assignment.idle = {&low, &high, &high, policy::kMicrosecond, 0, policy::kSecond, policy::kSecond};
  assignment.contended = {&high,           &low,           &low, policy::kMicrosecond, 0,
                          policy::kSecond, policy::kSecond};
  assignment.tail = assignment.contended;
  assignment.partitions = {&low, &high};
  entity.Publish(assignment);
  coroutine->Attach(entity);
  for (StreamId id = 1; id <= 4; ++id) {
    REQUIRE(coroutine->CreateStream(id, 1, {.legacy_default = id == 1}).ok());
  }
  FakeKernel kernel;
  bool ok = true;
  const auto round = [&](unsigned number) {
    // From time to time a session that goes first has work.
    board.busy.fetch_xor(number % 2);
    for (StreamId id = 1; id <= 4; ++id) {
      for (uint32_t blocks = 1; blocks <= 3; ++blocks) {
        ok = ok && coroutine->MayRun();
        LaunchShape shape;
        shape.grid.x = blocks;
        ok = ok && coroutine->Launch(id, kernel, shape, {}).ok();
        ok = ok && coroutine->Copy(id, {.width = 64}).ok();
        ok = ok && coroutine->Fill(id, {}).ok();
      }
      coroutine->WatchWork(id == 4);
    }
  };
  for (unsigned i = 0; i < 20; ++i) round(i);
  const size_t before = allocations;
  for (unsigned i = 0; i < 100; ++i) round(i);
  CHECK(ok);
  CHECK(allocations == before);
  CHECK(coroutine->counters().migrations > 100);
  coroutine->Detach();
}

TEST_CASE("Operations allocate nothing, even when the session moves at every one") {
  NullDevice device;
  NullPartition low, high;
  QueuePool pool(device);
  Executor executor;
  Parking parking{executor};
  std::unique_ptr<AddressSpace> space = *device.CreateAddressSpace(1ull << 40, 1ull << 40);
  std::unique_ptr<GpuCoroutine> coroutine = *GpuCoroutine::Create(device, *space, pool, parking);
  constexpr int kStreams = 8;
  for (StreamId id = 1; id <= kStreams; ++id) {
    REQUIRE(coroutine->CreateStream(id, 1, {.legacy_default = id == 1}).ok());
  }
  REQUIRE(coroutine->CreateEvent(1, 1, false).ok());
  FakeKernel kernel;
  GraphDescription description;
  description.graphs.emplace_back().nodes.resize(3);
  GraphPlace refused;
  const std::unique_ptr<GpuGraph> graph = *GpuGraph::Create(*coroutine, description, &refused);
  std::atomic<uint64_t> fence{0};
  bool ok = true;
  const auto round = [&] {
    for (StreamId id = 1; id <= kStreams; ++id) {
      for (NullPartition* partition : {&low, &high}) {
        coroutine->Bind(*partition);
        ok = ok && coroutine->Launch(id, kernel, {}, {}).ok();
        ok = ok && coroutine->Copy(id, {}).ok();
        ok = ok && graph->Launch(id, {}).ok();
        ok = ok && coroutine->Fill(id, {}).ok();
        ok = ok && coroutine->RecordEvent(1, id, &fence, 1).ok();
        ok = ok && coroutine->WaitEvent(1 + id % kStreams, 1).ok();
        ok = ok && coroutine->Signal(id, &fence, 1).ok();
        ok = ok && coroutine->SignalContext(1, &fence, 1).ok();
        executor.Poll();
      }
    }
  };
  round();  // takes queues from the pool and makes markers
  const size_t before = allocations;
  for (int i = 0; i < 100; ++i) round();
  const size_t after = allocations;
  CHECK(ok);
  CHECK(after == before);
}

TEST_CASE("Operations allocate nothing when the session moves between time-slice groups") {
  NullDevice device;
  device.EnablePreemption(/*latency_ns=*/190'000);
  QueuePool pool(device);
  Executor executor;
  Parking parking{executor};
  SchedBoard board;
  DurationTable durations(16);
  ManualClock clock;
  SchedEntity entity(board, durations, clock, [](SchedEntity::News) {});
  std::unique_ptr<GpuCoroutine> coroutine;  // destroyed after the space
  std::unique_ptr<AddressSpace> space = *device.CreateAddressSpace(1ull << 40, 1ull << 40);
  coroutine = *GpuCoroutine::Create(device, *space, pool, parking);
  NullPartition low;
  const auto give = [&](bool urgent) {
    SchedEntity::Assignment assignment;
    assignment.followed = true;
    assignment.urgent = assignment.preempts = urgent;
    assignment.idle.partition = assignment.idle.long_partition =
        assignment.idle.yielding_partition = &low;
    assignment.contended = assignment.tail = assignment.idle;
    assignment.partitions = {&low, &device.whole(), device.urgent()};
    entity.Publish(assignment);
  };
  give(false);
  coroutine->Attach(entity);
  constexpr int kStreams = 4;
  for (StreamId id = 1; id <= kStreams; ++id) {
    REQUIRE(coroutine->CreateStream(id, 1, {.legacy_default = id == 1}).ok());
  }
  REQUIRE(coroutine->CreateEvent(1, 1, false).ok());
  FakeKernel kernel, bound;
  bound.bound = true;
  GraphDescription description;
  description.graphs.emplace_back().nodes.resize(3);
  GraphPlace refused;
  const std::unique_ptr<GpuGraph> graph = *GpuGraph::Create(*coroutine, description, &refused);
  std::atomic<uint64_t> fence{0};
  bool ok = true;
  size_t allocated = 0;
  const auto round = [&](FakeKernel& code, unsigned number) {
    give(number % 2 == 0);  // the scheduler's thread may allocate
    const size_t before = allocations;
    ok = ok && coroutine->MayRun();
    for (StreamId id = 1; id <= kStreams; ++id) {
      ok = ok && coroutine->Launch(id, code, {}, {}).ok();
      ok = ok && coroutine->Copy(id, {.width = 64}).ok();
      ok = ok && graph->Launch(id, {}).ok();
      ok = ok && coroutine->Fill(id, {}).ok();
      ok = ok && coroutine->RecordEvent(1, id, &fence, 1).ok();
      ok = ok && coroutine->WaitEvent(1 + id % kStreams, 1).ok();
      ok = ok && coroutine->Signal(id, &fence, 1).ok();
      ok = ok && coroutine->SignalContext(1, &fence, 1).ok();
      coroutine->WatchWork(id == kStreams);
    }
    allocated += allocations - before;
    while (coroutine->MakeReady()) {
    }
  };
  const auto steady = [&](FakeKernel& code) {
    for (unsigned i = 0; i < 20; ++i) round(code, i);
    allocated = 0;
    for (unsigned i = 0; i < 100; ++i) round(code, i);
    CHECK(ok);
    CHECK(allocated == 0);
  };
  steady(kernel);
  CHECK(coroutine->counters().migrations > 100);
  steady(bound);
  CHECK(space->bound());
  coroutine->Detach();
}

}  // namespace
}  // namespace detshare
