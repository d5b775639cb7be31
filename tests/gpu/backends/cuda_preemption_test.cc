// Time-slice groups on a real GPU. Without a driver, or if the GPU does not preempt, every case
// passes with a warning.
#include <algorithm>
#include <catch2/catch.hpp>
#include <optional>
#include <thread>

#include "absl/strings/str_replace.h"
#include "coroutine_runtime/device_attributes.h"
#include "coroutine_runtime/device_graph.h"
#include "coroutine_runtime/gpu_coroutine.h"
#include "coroutine_runtime/gpu_graph.h"
#include "coroutine_runtime/waves.h"
#include "tests/gpu/backends/gpu_session.h"

namespace detshare {
namespace {

constexpr uint64_t kLong = 200'000'000;  // cycles: about 0.1 s

Device* PreemptingGpu() {
  Device* gpu = Gpu();
  if (gpu == nullptr || gpu->urgent() != nullptr) return gpu;
  WARN("SKIPPED, the GPU does not preempt: " << gpu->properties().preemption.reason);
  return nullptr;
}

// An ordinary session and an urgent one, each with device memory and a library.
struct TwoGroups {
  Session ordinary, urgent;
  std::unique_ptr<Library> ordinary_library, urgent_library;
  Kernel *where, *iota;  // of the ordinary and of the urgent session

  explicit TwoGroups(Device& gpu) : ordinary(gpu), urgent(gpu, 40 * kMiB, 1) {
    urgent.space->set_urgent(true);
    urgent.queue = *gpu.urgent()->CreateQueue(0);
    REQUIRE_OK(ordinary.space->Map(base(ordinary), 2 * kMiB));
    REQUIRE_OK(urgent.space->Map(base(urgent), 2 * kMiB));
    ordinary_library = ordinary.Load(kPtx);
    urgent_library = urgent.Load(kPtx);
    where = *ordinary_library->GetKernel("where");
    iota = *urgent_library->GetKernel("iota");
  }

  static DeviceAddress base(const Session& session) { return session.space->base(); }

  // Fills the device with ordinary work for `cycles`.
  void Fill(uint64_t cycles) {
    const int blocks = 2 * ordinary.device.properties().sm_count;
    REQUIRE_OK(ordinary.queue->Launch(*ordinary.space, *where, Shape(blocks, 1024),
                                      Parameters().Add(base(ordinary)).Add(cycles)));
    REQUIRE_OK(ordinary.queue->WriteFence(*ordinary.space, ordinary.fence, ++ordinary.last_value));
  }
  bool FillEnded() const {
    return ordinary.fence->load(std::memory_order_acquire) >= ordinary.last_value;
  }
  // Computes in the urgent group and checks the result.
  void ComputeUrgently(uint32_t value) {
    REQUIRE_OK(urgent.queue->Launch(*urgent.space, *iota, Shape(1, 32),
                                    Parameters().Add(base(urgent)).Add(value).Add(uint32_t{32})));
    urgent.Copy(urgent.host_address(), base(urgent), 128);
    urgent.Finish();
    REQUIRE(urgent.host_as<uint32_t>()[31] == value + 31);
  }
};

TEST_CASE("Urgent work completes while an ordinary kernel fills the device") {
  Device* gpu = PreemptingGpu();
  if (gpu == nullptr) return;
  TwoGroups groups(*gpu);
  groups.Fill(kLong);
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  for (uint32_t i = 0; i < 20; ++i) groups.ComputeUrgently(i);
  CHECK_FALSE(groups.FillEnded());
  REQUIRE(Session::Reached(*groups.ordinary.fence, groups.ordinary.last_value));
}

TEST_CASE("Work of one group waits for a marker of the other") {
  Device* gpu = PreemptingGpu();
  if (gpu == nullptr) return;
  TwoGroups groups(*gpu);
  auto marker = *gpu->CreateMarker(false);
  groups.Fill(kLong);
  REQUIRE_OK(groups.ordinary.queue->Record(*marker));
  REQUIRE_OK(groups.urgent.queue->Wait(*marker));
  groups.ComputeUrgently(3);
  CHECK(groups.FillEnded());

  // The other way round.
  REQUIRE_OK(groups.urgent.queue->Record(*marker));
  REQUIRE_OK(groups.ordinary.queue->Wait(*marker));
  groups.Fill(1000);
  REQUIRE(Session::Reached(*groups.ordinary.fence, groups.ordinary.last_value));
  CHECK(gpu->Reached(*marker).value());
}

TEST_CASE("Timed markers of two groups have the time between them") {
  Device* gpu = PreemptingGpu();
  if (gpu == nullptr) return;
  TwoGroups groups(*gpu);
  auto start = *gpu->CreateMarker(true), middle = *gpu->CreateMarker(true),
       end = *gpu->CreateMarker(true);
  for (int round = 0; round < 3; ++round) {
    REQUIRE_OK(groups.ordinary.queue->Record(*start));
    groups.Fill(40'000'000);
    REQUIRE_OK(groups.ordinary.queue->Record(*middle));
    REQUIRE_OK(groups.urgent.queue->Wait(*middle));
    REQUIRE_OK(groups.urgent.queue->Record(*end));
    groups.urgent.Finish();
    const float within = gpu->ElapsedMilliseconds(*start, *middle).value();
    const float across = gpu->ElapsedMilliseconds(*start, *end).value();
    INFO(within << " ms within the group, " << across << " ms to the other");
    CHECK(across > within - 0.1f);
    CHECK(across < within + 2);
    CHECK(gpu->ElapsedMilliseconds(*end, *start).value() == Approx(-across).margin(0.1));
  }
}

std::unique_ptr<GroupHold> CreateHold(Device& gpu) {
  auto hold = gpu.CreateHold();
  REQUIRE_OK(hold.status());
  return *std::move(hold);
}

TEST_CASE("A hold keeps ordinary work off the device, ends by itself, and ends when it is told") {
  Device* gpu = PreemptingGpu();
  if (gpu == nullptr) return;
  TwoGroups groups(*gpu);
  const std::unique_ptr<GroupHold> hold = CreateHold(*gpu);
  const auto microseconds_of_fill = [&] {
    const auto begin = std::chrono::steady_clock::now();
    groups.Fill(1000);
    REQUIRE(Session::Reached(*groups.ordinary.fence, groups.ordinary.last_value));
    return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin)
        .count();
  };
  microseconds_of_fill();
  REQUIRE_OK(hold->HoldFor(8'000'000));
  std::this_thread::sleep_for(std::chrono::milliseconds(1));
  CHECK(microseconds_of_fill() > 3000);
  REQUIRE_OK(hold->HoldFor(1'000'000'000));
  groups.ComputeUrgently(1);
  hold->End();
  groups.urgent.Finish();
  CHECK(microseconds_of_fill() < 500'000);
}

TEST_CASE("A kernel that needs most of each SM runs beside a hold") {
  Device* gpu = PreemptingGpu();
  if (gpu == nullptr) return;
  TwoGroups groups(*gpu);
  const std::unique_ptr<GroupHold> hold = CreateHold(*gpu);
  const DeviceProperties& properties = gpu->properties();
  // The largest block, less what the device reserves for the hold's.
  constexpr int kMaxSharedOptin = 97, kReservedShared = 111;  // of CUdevice_attribute
  constexpr int kMaxDynamicShared = 8;                        // of CUfunction_attribute
  const auto shared = static_cast<int>(AttributeOf(properties, kMaxSharedOptin) -
                                       AttributeOf(properties, kReservedShared));
  REQUIRE_OK(groups.iota->SetAttribute(kMaxDynamicShared, shared));
  LaunchShape shape = Shape(properties.sm_count, 384);
  shape.cooperative = true;  // all blocks run at the same time
  shape.dynamic_shared_bytes = static_cast<uint32_t>(shared);
  REQUIRE_FALSE(DelayedByHold(properties, groups.iota->info(), shape));

  REQUIRE_OK(hold->HoldFor(40'000'000));
  std::this_thread::sleep_for(std::chrono::milliseconds(1));
  Session& urgent = groups.urgent;
  REQUIRE_OK(urgent.queue->Launch(
      *urgent.space, *groups.iota, shape,
      Parameters().Add(TwoGroups::base(urgent)).Add(uint32_t{5}).Add(uint32_t{32})));
  REQUIRE_OK(urgent.queue->WriteFence(*urgent.space, urgent.fence, ++urgent.last_value));
  const auto complete = [&] {
    return urgent.fence->load(std::memory_order_acquire) >= urgent.last_value;
  };
  for (int i = 0; i < 1000 && !complete(); ++i) {
    REQUIRE_OK(hold->HoldFor(40'000'000));
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  CHECK(complete());
  hold->End();
  urgent.Finish();
}

TEST_CASE("A session in the urgent group reads and writes the variables of its own copy") {
  Device* gpu = PreemptingGpu();
  if (gpu == nullptr) return;
  TwoGroups groups(*gpu);
  const Library::Global ordinary = *groups.ordinary_library->GetGlobal("counter");
  const Library::Global urgent = *groups.urgent_library->GetGlobal("counter");
  CHECK(groups.urgent.space->bound());
  CHECK(groups.ordinary.space->bound());
  groups.urgent.Copy(groups.urgent.host_address(), urgent.address, 4);
  groups.ordinary.Copy(groups.ordinary.host_address(), ordinary.address, 4);
  groups.urgent.Finish();
  groups.ordinary.Finish();
  CHECK(*groups.urgent.host_as<uint32_t>() == 7);
  CHECK(*groups.ordinary.host_as<uint32_t>() == 7);
}

TEST_CASE("A session that becomes urgent while its stream waits for memory still launches") {
  Device* gpu = PreemptingGpu();
  if (gpu == nullptr) return;
  Session session(*gpu);
  REQUIRE_OK(session.space->Map(kBase, 2 * kMiB));
  // Code with a variable would bind the session to a group.
  std::unique_ptr<Library> library = session.Load(
      absl::StrReplaceAll(kPtx, {{".visible .global .align 4 .u32 counter = 7;\n", ""}}));
  Kernel* const iota = *library->GetKernel("iota");
  QueuePool pool(*gpu);
  std::optional<Executor> executor(std::in_place);
  Parking parking(*executor, /*max_bytes=*/0);  // the wait is the device's
  SchedBoard board;
  DurationTable durations(16);
  const RealClock clock;
  SchedEntity entity(board, durations, clock, [](SchedEntity::News) {});
  auto coroutine = *GpuCoroutine::Create(*gpu, *session.space, pool, parking);
  for (StreamId stream = 1; stream <= 2; ++stream)
    REQUIRE_OK(coroutine->CreateStream(stream, 1, {.non_blocking = true}));
  const auto give = [&](bool urgent) {
    SchedEntity::Assignment assignment;
    assignment.urgent = assignment.preempts = urgent;
    assignment.idle.partition = assignment.idle.long_partition =
        assignment.idle.yielding_partition = &gpu->whole();
    assignment.contended = assignment.tail = assignment.idle;
    assignment.partitions = {&gpu->whole(), gpu->urgent()};
    entity.Publish(assignment);
    if (coroutine->entity() == nullptr) coroutine->Attach(entity);
    coroutine->MayRun();  // takes note of the assignment
  };
  const auto launch = [&](StreamId stream, uint32_t value) {
    return coroutine->Launch(stream, *iota, Shape(1, 32),
                             Parameters().Add(kBase).Add(value).Add(uint32_t{32}));
  };
  give(/*urgent=*/false);
  REQUIRE_OK(launch(1, 1));
  // Stream 1 waits on the device for a word that the host writes.
  std::atomic<uint64_t>& gate = *session.fence;
  std::atomic<uint64_t>& passed = session.fence[1];
  MemoryOp wait;
  wait.operation = MemoryOp::kWait64;
  wait.address = reinterpret_cast<uint64_t>(&gate);
  wait.value = 1;
  REQUIRE_OK(coroutine->MemoryOps(1, {&wait, 1}));
  give(/*urgent=*/true);
  REQUIRE_OK(launch(2, 2));
  CHECK_FALSE(session.space->urgent());
  REQUIRE_OK(coroutine->Signal(2, &passed, 1));
  REQUIRE(Session::Reached(passed, 1));
  gate.store(1);
  REQUIRE_OK(coroutine->Signal(1, &passed, 2));
  REQUIRE(Session::Reached(passed, 2));
  CHECK_FALSE(session.space->bound());
  CHECK(iota->CanStartIn(/*urgent=*/true));
  REQUIRE_OK(launch(2, 3));
  CHECK(session.space->urgent());
  REQUIRE_OK(coroutine->Signal(2, &passed, 3));
  REQUIRE(Session::Reached(passed, 3));
  executor.reset();
  session.queue.reset();
  library.reset();
  session.space.reset();  // destroyed before the coroutine
}

TEST_CASE("A stream that waits for the client keeps no other stream from going on") {
  Device* gpu = PreemptingGpu();
  if (gpu == nullptr) return;
  Session session(*gpu);
  REQUIRE_OK(session.space->Map(kBase, 2 * kMiB));
  std::unique_ptr<Library> library = session.Load(kPtx);
  Kernel* const iota = *library->GetKernel("iota");
  QueuePool pool(*gpu);
  std::optional<Executor> executor(std::in_place);
  Parking parking(*executor);
  auto coroutine = *GpuCoroutine::Create(*gpu, *session.space, pool, parking);
  // More streams than the hardware executes independently of each other.
  constexpr StreamId kStreams = 80;
  std::atomic<uint64_t>& gate = *session.fence;
  std::atomic<uint64_t>* const passed = session.fence + 1;
  const auto launch = [&](StreamId stream, uint64_t value) {
    REQUIRE_OK(coroutine->Launch(stream, *iota, Shape(1, 32),
                                 Parameters()
                                     .Add(kBase + 128 * stream)
                                     .Add(static_cast<uint32_t>(value))
                                     .Add(uint32_t{32})));
    REQUIRE_OK(coroutine->Signal(stream, &passed[stream], value));
  };
  for (StreamId stream = 1; stream <= kStreams; ++stream) {
    REQUIRE_OK(coroutine->CreateStream(stream, 1, {.non_blocking = true}));
    launch(stream, 1);
    REQUIRE(Session::Reached(passed[stream], 1));
  }
  for (StreamId gated = 1; gated <= kStreams; gated += 7) {
    INFO("stream " << gated << " is held back");
    gate.store(0);
    REQUIRE_OK(coroutine->WaitFence(gated, &gate, 1));
    for (StreamId stream = 1; stream <= kStreams; ++stream) launch(stream, 1 + gated);
    for (StreamId stream = 1; stream <= kStreams; ++stream)
      if (stream != gated) REQUIRE(Session::Reached(passed[stream], 1 + gated));
    CHECK(passed[gated].load() < 1 + gated);
    gate.store(1);
    executor->Poll();
    REQUIRE(Session::Reached(passed[gated], 1 + gated));
  }
  executor.reset();
  session.queue.reset();
  library.reset();
  session.space.reset();  // destroyed before the coroutine
}

TEST_CASE("Streams and graphs move between the groups, and their launches keep order") {
  Device* gpu = PreemptingGpu();
  if (gpu == nullptr) return;
  Session session(*gpu);
  REQUIRE_OK(session.space->Map(kBase, 2 * kMiB));
  std::shared_ptr<Library> library = session.Load(kPtx);
  Session neighbour(*gpu, 40 * kMiB, 1);
  REQUIRE_OK(neighbour.space->Map(neighbour.space->base(), 2 * kMiB));
  auto neighbours_library = neighbour.Load(kPtx);
  Kernel* where = *neighbours_library->GetKernel("where");
  QueuePool pool(*gpu);
  std::optional<Executor> executor(std::in_place);
  Parking parking(*executor);
  auto coroutine = *GpuCoroutine::Create(*gpu, *session.space, pool, parking);
  for (StreamId stream = 1; stream <= 2; ++stream) {
    REQUIRE_OK(coroutine->CreateStream(stream, 1, {.non_blocking = true}));
  }
  const auto parameters_of = [](uint32_t value) {
    Parameters parameters;
    const absl::Span<const std::byte> bytes = parameters.Add(kBase).Add(value).Add(uint32_t{32});
    return std::vector<std::byte>(bytes.begin(), bytes.end());
  };
  const auto iota = [&](uint32_t value) {
    KernelStep step;
    step.kernel = std::shared_ptr<Kernel>(library, *library->GetKernel("iota"));
    step.shape = Shape(1, 32);
    step.parameters = parameters_of(value);
    return GraphNode{step};
  };
  GraphDescription description;
  description.graphs.resize(1);
  description.graphs[0].nodes.push_back(iota(0));
  GraphPlace refused;
  auto graph = *GpuGraph::Create(*coroutine, description, &refused);
  Partition* const places[] = {&gpu->whole(), gpu->urgent()};
  for (uint32_t i = 1; i <= 300; ++i) {
    if (i % 10 == 0) {
      REQUIRE_OK(neighbour.queue->Launch(
          *neighbour.space, *where, Shape(2 * gpu->properties().sm_count, 1024),
          Parameters().Add(neighbour.space->base()).Add(uint64_t{100'000})));
    }
    coroutine->Bind(*places[i / 3 % 2]);
    if (i % 2 == 0) {
      REQUIRE_OK(graph->Replace({0, 0}, iota(i)));
      REQUIRE_OK(graph->Launch(1, {}));
    } else {
      REQUIRE_OK(
          coroutine->Launch(1, **library->GetKernel("iota"), Shape(1, 32), parameters_of(i)));
    }
  }
  CopyRequest copy;
  copy.destination = session.host_address();
  copy.source = kBase;
  copy.width = 128;
  REQUIRE_OK(coroutine->Copy(1, copy));
  REQUIRE_OK(coroutine->Signal(1, session.fence, ++session.last_value));
  REQUIRE(Session::Reached(*session.fence, session.last_value));
  CHECK(session.host_as<uint32_t>()[31] == 300 + 31);
  neighbour.Finish();
  graph.reset();
  executor.reset();
  session.queue.reset();
  description = {};
  library.reset();
  session.space.reset();  // destroyed before the coroutine
}

}  // namespace
}  // namespace detshare
