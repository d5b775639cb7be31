// On a device that can preempt, urgent work runs in a time-slice group of its own. A session moves
// between the groups, or is bound to one of them.
#include <algorithm>
#include <catch2/catch.hpp>
#include <deque>
#include <memory>
#include <vector>

#include "coroutine_runtime/gpu_coroutine.h"
#include "coroutine_runtime/gpu_graph.h"
#include "tests/coroutine_runtime/scripted_policy.h"

namespace detshare {
namespace {

constexpr int64_t kLatency = 190'000;

struct PreemptingDevice : FakeDevice {
  PreemptingDevice() { EnablePreemption(kLatency); }
};

// A session whose grant the test gives.
struct GroupFixture {
  std::deque<std::atomic<uint64_t>> fences;
  PreemptingDevice device;
  std::unique_ptr<Partition> low = *device.CreatePartition(2, 6);
  QueuePool pool{device};
  Executor executor;
  Parking parking{executor, 0};  // the device sees all work at once
  SchedBoard board;
  DurationTable durations{16};
  ManualClock clock;
  SchedEntity entity{board, durations, clock, [](SchedEntity::News) {}};
  std::unique_ptr<GpuCoroutine> coroutine;  // destroyed after the space
  std::unique_ptr<AddressSpace> space = *device.CreateAddressSpace(1ull << 40, 1ull << 40);
  FakeKernel kernel, bound_kernel;
  std::shared_ptr<FakeKernel> graph_kernel = std::make_shared<FakeKernel>();
  std::shared_ptr<FakeKernel> bound_graph_kernel = std::make_shared<FakeKernel>();
  std::unique_ptr<GpuGraph> graph;

  GroupFixture() {
    fences.resize(8);
    bound_kernel.bound = bound_graph_kernel->bound = true;
    coroutine = *GpuCoroutine::Create(device, *space, pool, parking);
    for (StreamId id = 1; id <= 3; ++id)
      REQUIRE(coroutine->CreateStream(id, 1, {.non_blocking = true}).ok());
    REQUIRE(coroutine->CreateEvent(1, 1, false).ok());
  }

  // The grant in force from the next record on.
  void Give(bool urgent, Partition* partition = nullptr, uint32_t migrate_every = 0) {
    if (partition == nullptr) partition = &device.whole();
    SchedEntity::Assignment assignment;
    assignment.urgent = assignment.preempts = urgent;
    assignment.idle.partition = assignment.idle.long_partition =
        assignment.idle.yielding_partition = partition;
    assignment.contended = assignment.tail = assignment.idle;
    assignment.partitions = {low.get(), &device.whole(), device.urgent()};
    assignment.migrate_every = migrate_every;
    assignment.prepare = prepare;
    entity.Publish(assignment);
    if (coroutine->entity() == nullptr) coroutine->Attach(entity);
    REQUIRE(coroutine->MayRun());
  }

  FakeDevice::Operation& Last() { return device.operations.back(); }
  // Each returns the number of its operation.
  int64_t Number() const { return static_cast<int64_t>(device.operations.size()) - 1; }
  int64_t Launch(StreamId stream = 1) { return LaunchOf(kernel, stream); }
  int64_t LaunchOf(FakeKernel& code, StreamId stream = 1, const LaunchShape& shape = {}) {
    REQUIRE(coroutine->Launch(stream, code, shape, {}).ok());
    return Number();
  }
  int64_t Copy(StreamId stream = 1) {
    REQUIRE(coroutine->Copy(stream, {.width = 8}).ok());
    return Number();
  }
  int64_t LaunchGraph(StreamId stream = 1) {
    REQUIRE(graph->Launch(stream, {}).ok());
    return Number();
  }
  bool Comes(int64_t operation, int64_t after) {
    return device.operations[operation].before.contains(after);
  }

  static LaunchShape Cooperative(uint32_t blocks) {
    LaunchShape shape;
    shape.cooperative = true;
    shape.grid.x = blocks;
    return shape;
  }
  static GraphNode Node(std::shared_ptr<Kernel> code, const LaunchShape& shape = {}) {
    KernelStep step;
    step.kernel = std::move(code);
    step.shape = shape;
    return {step, true};
  }
  void MakeGraph(GraphNode node) {
    GraphDescription description;
    description.graphs.emplace_back().nodes = {std::move(node)};
    GraphPlace refused;
    graph = *GpuGraph::Create(*coroutine, std::move(description), &refused);
  }
  int InstancesIn(bool urgent) const {
    return static_cast<int>(std::count_if(device.graphs.begin(), device.graphs.end(),
                                          [&](FakeGraph* each) { return each->urgent == urgent; }));
  }
  int QueuesIn(bool urgent) const {
    return static_cast<int>(std::count_if(device.queues.begin(), device.queues.end(),
                                          [&](FakeQueue* each) { return each->urgent == urgent; }));
  }

  absl::InlinedVector<Partition*, 4> prepare;
};

// ---- a session moves

TEST_CASE_METHOD(GroupFixture, "All work of an urgent session runs in the urgent group") {
  Give(/*urgent=*/true, low.get());
  MakeGraph(Node(graph_kernel));
  Launch();
  Copy();
  REQUIRE(coroutine->Fill(1, {}).ok());
  const MemoryOp write{MemoryOp::kWrite32};
  REQUIRE(coroutine->MemoryOps(1, {&write, 1}).ok());
  LaunchGraph();
  REQUIRE(coroutine->RecordEvent(1, 1, &fences[0], 1).ok());
  REQUIRE(coroutine->WaitEvent(2, 1).ok());
  REQUIRE(coroutine->Signal(2, &fences[1], 1).ok());
  REQUIRE(coroutine->HostFunction(3, &fences[2], 1, &fences[3], 1).ok());
  REQUIRE(coroutine->SignalContext(1, &fences[4], 1).ok());
  CHECK(device.operations.size() == 5);
  for (const FakeDevice::Operation& operation : device.operations) {
    CHECK(operation.urgent);
    CHECK(operation.first_sm == 0);  // on all SMs, whatever the grant names
  }
  CHECK(QueuesIn(/*urgent=*/false) == 0);
  CHECK(QueuesIn(/*urgent=*/true) == 4);  // of three streams and of their context
  fences[3] = 1;
  device.RunAll();
  CHECK(fences[4] == 1);
}

TEST_CASE_METHOD(GroupFixture,
                 "A session moves between the groups at its next operation, in order") {
  Give(/*urgent=*/false);
  const int64_t ordinary = Launch();
  Launch(2);
  CHECK_FALSE(Last().urgent);
  Give(/*urgent=*/true);
  CHECK(QueuesIn(/*urgent=*/true) == 0);  // nothing moves before its next operation
  const int64_t urgent = Copy();
  CHECK(Last().urgent);
  CHECK(device.operations[urgent].before == History{ordinary});
  CHECK(device.calls == 2);
  Give(/*urgent=*/false, low.get());
  const int64_t back = Copy();
  CHECK_FALSE(Last().urgent);
  CHECK(Last().first_sm == 2);
  CHECK(device.operations[back].before == History{ordinary, urgent});
  CHECK(coroutine->counters().migrations == 2);
  Launch(2);
  CHECK_FALSE(Last().urgent);
  CHECK_FALSE(Comes(Number(), urgent));
  device.RunAll();
}

TEST_CASE_METHOD(
    GroupFixture,
    "Ordinary work for which an urgent session waits keeps the device if it stands still") {
  int keepers = 0;
  board.keep_ordinary = [&](bool keep) { keepers += keep ? 1 : -1; };
  board.busy += SchedBoard::One(5);
  SchedEntity::Assignment assignment;
  assignment.followed = true;
  for (SchedEntity::BoundLimits* limits :
       {&assignment.idle, &assignment.contended, &assignment.tail})
    limits->partition = limits->long_partition = limits->yielding_partition = &device.whole();
  entity.Publish(assignment);
  coroutine->Attach(entity);
  Launch();
  assignment.urgent = assignment.preempts = true;
  entity.Publish(assignment);
  coroutine->WatchWork(/*pause=*/true);
  Launch();
  REQUIRE(Last().urgent);
  for (int i = 0; i < 200; ++i) {
    coroutine->WatchWork(/*pause=*/true);
    clock.Advance(policy::kMillisecond);
  }
  CHECK(keepers == 1);
  device.RunAll();
  for (int i = 0; i < 200; ++i) {
    coroutine->WatchWork(/*pause=*/true);
    clock.Advance(policy::kMillisecond);
  }
  CHECK(keepers == 0);
  device.RunAll();
  coroutine->Detach();
}

TEST_CASE_METHOD(GroupFixture,
                 "Ordinary work keeps the device beside urgent work that its session left behind") {
  int keepers = 0;
  board.keep_ordinary = [&](bool keep) { keepers += keep ? 1 : -1; };
  SchedEntity::Assignment assignment;
  assignment.followed = assignment.preempts = assignment.urgent = true;
  for (SchedEntity::BoundLimits* limits :
       {&assignment.idle, &assignment.contended, &assignment.tail})
    limits->partition = limits->long_partition = limits->yielding_partition = &device.whole();
  entity.Publish(assignment);
  coroutine->Attach(entity);
  Launch(1);
  REQUIRE(Last().urgent);
  coroutine->WatchWork(/*pause=*/true);
  CHECK(board.urgent == 1);
  assignment.urgent = assignment.preempts = false;
  entity.Publish(assignment);
  REQUIRE(coroutine->MayRun());
  Launch(2);
  REQUIRE_FALSE(Last().urgent);
  const auto watch = [&] {
    for (int i = 0; i < 200; ++i) {
      coroutine->WatchWork(/*pause=*/true);
      clock.Advance(policy::kMillisecond);
    }
  };
  watch();
  CHECK(board.urgent == 1);
  CHECK(keepers == 1);
  device.RunAll();
  watch();
  CHECK(board.urgent == 0);
  CHECK(keepers == 0);
  coroutine->Detach();
}

TEST_CASE_METHOD(GroupFixture, "A queue of the other group that is idle is not waited for") {
  Give(/*urgent=*/false);
  Launch();
  device.RunAll();
  Give(/*urgent=*/true);
  Launch();
  CHECK(Last().urgent);
  CHECK(device.calls == 0);
  // This launch did not run yet.
  Give(/*urgent=*/false);
  Launch();
  CHECK_FALSE(Last().urgent);
  CHECK(device.calls == 2);
  CHECK(Comes(2, 1));
  device.RunAll();
}

TEST_CASE_METHOD(GroupFixture, "A stream that waits for its client is not taken for idle") {
  Give(/*urgent=*/false);
  REQUIRE(coroutine->WaitFence(1, &fences[0], 5).ok());
  device.RunAll();
  Give(/*urgent=*/true);
  Launch();
  CHECK(Comes(0, -5));
  device.RunAll();
  CHECK_FALSE(Last().done);
  fences[0] = 5;
  device.RunAll();
  CHECK(Last().done);
}

TEST_CASE_METHOD(GroupFixture, "A kernel that cannot start in the wanted group runs in the other") {
  Give(/*urgent=*/false);
  Launch();
  kernel.only_in = 0;
  Give(/*urgent=*/true);
  const int64_t copy = Copy();
  CHECK(Last().urgent);
  const int64_t launch = Launch();
  CHECK_FALSE(Last().urgent);
  CHECK(Comes(launch, copy));
  kernel.only_in = -1;
  Launch();
  CHECK(Last().urgent);
  CHECK(Comes(Number(), launch));
  device.RunAll();
}

TEST_CASE_METHOD(GroupFixture, "A session is bound where the kernel that binds it can start") {
  Give(/*urgent=*/false);
  Launch();
  bound_kernel.only_in = 0;
  Give(/*urgent=*/true);
  LaunchOf(bound_kernel);
  CHECK_FALSE(Last().urgent);
  CHECK(space->bound());
  CHECK_FALSE(space->urgent());
  device.RunAll();
}

TEST_CASE_METHOD(GroupFixture, "A graph has no instance in a group where a kernel cannot start") {
  Give(/*urgent=*/false);
  Launch();
  graph_kernel->only_in = 0;
  Give(/*urgent=*/true);
  MakeGraph(Node(graph_kernel));
  CHECK(InstancesIn(/*urgent=*/false) == 1);
  for (int i = 0; i < 600; ++i) {
    LaunchGraph();
    CHECK_FALSE(Last().urgent);
    coroutine->MakeReady();
  }
  CHECK(InstancesIn(/*urgent=*/true) == 0);
  graph_kernel->only_in = -1;
  LaunchGraph();
  coroutine->MakeReady();
  LaunchGraph();
  CHECK(Last().urgent);
  device.RunAll();
}

TEST_CASE_METHOD(GroupFixture, "Observing a stream leaves it in its group") {
  Give(/*urgent=*/false);
  Launch();
  Give(/*urgent=*/true);
  REQUIRE(coroutine->Signal(1, &fences[0], 1).ok());
  CHECK(QueuesIn(/*urgent=*/true) == 0);
  Launch();
  CHECK(Last().urgent);
  CHECK(Comes(1, 0));
  device.RunAll();
  CHECK(fences[0] == 1);
}

TEST_CASE_METHOD(GroupFixture, "A detached session stays where it is") {
  Give(/*urgent=*/true);
  Launch();
  coroutine->Detach();
  Launch();
  CHECK(Last().urgent);
  CHECK(Comes(1, 0));
  Copy(2);
  REQUIRE(coroutine->SignalContext(1, &fences[0], 1).ok());
  MakeGraph(Node(graph_kernel));
  LaunchGraph();
  CHECK(std::all_of(device.operations.begin(), device.operations.end(),
                    [](const auto& operation) { return operation.urgent; }));
  CHECK(QueuesIn(/*urgent=*/false) == 0);
  Give(/*urgent=*/false);
  Launch();
  CHECK_FALSE(Last().urgent);
  device.RunAll();
}

TEST_CASE("A device that cannot preempt has one group, to which nothing is bound") {
  FakeDevice device;
  ManualClock clock;
  DeviceScheduler::Options options;
  options.own_thread = false;
  auto owned = std::make_unique<ScriptedPolicy>();
  ScriptedPolicy* const policy = owned.get();
  policy->decide = [](const policy::Snapshot&, policy::Decision* decision) {
    for (policy::Grant& grant : decision->grants) grant.urgent = true;
  };
  const auto scheduler = *DeviceScheduler::Create(device, std::move(owned), {}, clock, options);
  QueuePool pool(device);
  ScheduledSession session(device, pool, *scheduler, 1);
  session.kernel.bound = true;
  session.Launch();
  CHECK_FALSE(device.operations.back().urgent);
  CHECK_FALSE(session.space->bound());
  CHECK_FALSE(policy->seen[0].preempts);
  CHECK_FALSE(policy->seen[0].always_preempts);
  CHECK(scheduler->Partitions().size() == 1);
}

// ---- a session is bound

TEST_CASE_METHOD(GroupFixture,
                 "A kernel that uses its group's memory binds the session to the group") {
  const bool first = GENERATE(false, true);
  INFO("urgent at first: " << first);
  Give(first, low.get());
  LaunchOf(bound_kernel);  // its first operation
  CHECK(Last().urgent == first);
  CHECK(space->bound());
  for (const bool urgent : {!first, first, !first}) {
    Give(urgent, low.get());
    Launch();
    CHECK(Last().urgent == first);
    CHECK(Last().first_sm == (first ? 0 : 2));
    Copy(2);
    CHECK(Last().urgent == first);
    LaunchOf(bound_kernel, 3);
    CHECK(Last().urgent == first);
    REQUIRE(coroutine->SignalContext(1, &fences[0], 1).ok());
  }
  CHECK(QueuesIn(!first) == 0);
  const SchedEntityReport report = entity.report();
  CHECK(report.bound_urgent == first);
  CHECK(report.bound_ordinary == !first);
  device.RunAll();
}

TEST_CASE_METHOD(GroupFixture, "A session that moves is bound to the group of its present grant") {
  Give(/*urgent=*/false);
  Launch();
  Give(/*urgent=*/true);
  LaunchOf(bound_kernel);
  CHECK(Last().urgent);
  CHECK(Comes(1, 0));
  Give(/*urgent=*/false);
  Launch();
  CHECK(Last().urgent);
  // A stream that is still in the other group leaves it.
  Launch(2);
  CHECK(Last().urgent);
  device.RunAll();
}

TEST_CASE_METHOD(GroupFixture,
                 "An object that is made before the first operation is in the group of the grant") {
  const bool urgent = GENERATE(false, true);
  Give(urgent);
  CHECK(space->urgent() == urgent);
  space->BindToGroup();  // as a backend does when it returns the address of a variable
  Give(!urgent);
  Copy();
  CHECK(Last().urgent == urgent);
  CHECK(entity.report().bound_urgent == urgent);
  CHECK(entity.report().bound_ordinary == !urgent);
}

TEST_CASE_METHOD(GroupFixture, "A session without an entity can be bound") {
  LaunchOf(bound_kernel);
  CHECK_FALSE(Last().urgent);
  CHECK(space->bound());
  Give(/*urgent=*/true);
  Launch();
  CHECK_FALSE(Last().urgent);
  device.RunAll();
}

// ---- waits for a whole context

TEST_CASE_METHOD(GroupFixture,
                 "Signals of a context are written in the session's group, in order") {
  Give(/*urgent=*/false);
  const int64_t one = Launch(1);
  const int64_t two = Launch(2);
  REQUIRE(coroutine->WaitFence(1, &fences[0], 1).ok());
  REQUIRE(coroutine->SignalContext(1, &fences[1], 1).ok());
  CHECK(device.fences[{&fences[1], 1}] == History{one, two, -1});
  CHECK(QueuesIn(/*urgent=*/false) == 3);
  Give(/*urgent=*/true);
  const int64_t three = Launch(3);
  REQUIRE(coroutine->SignalContext(1, &fences[1], 2).ok());
  CHECK(device.fences[{&fences[1], 2}] == History{one, two, three, -1});
  CHECK(QueuesIn(/*urgent=*/true) == 2);
  // Nothing is new since the last signal, but this one comes after it.
  Give(/*urgent=*/false);
  Copy(3);
  REQUIRE(coroutine->SignalContext(1, &fences[1], 3).ok());
  device.RunAll();
  CHECK(fences[1] == 0);
  fences[0] = 1;
  device.RunAll();
  CHECK(fences[1] == 3);
}

TEST_CASE_METHOD(GroupFixture, "A context keeps its queue of each group") {
  Give(/*urgent=*/false);
  Launch(1);
  Launch(2);
  for (int round = 0; round < 2; ++round) {
    for (const bool urgent : {false, true}) {
      Give(urgent);
      Launch(1);
      Launch(2);
      REQUIRE(coroutine->SignalContext(1, &fences[1], 1).ok());
    }
    if (round == 0) device.queues_made = 0;
  }
  CHECK(device.queues_made == 0);
  // An idle collector of the other group is not waited for.
  device.RunAll();
  Give(/*urgent=*/false);
  const int calls = device.calls;
  Launch(1);
  REQUIRE(coroutine->SignalContext(1, &fences[1], 2).ok());
  CHECK(device.calls == calls + 2);  // of the stream's marker
  device.RunAll();
  CHECK(fences[1] == 2);
}

// ---- launches that need many SMs

TEST_CASE_METHOD(GroupFixture, "A cooperative launch gets enough SMs in the session's group") {
  device.cooperative_limit = 1;
  const bool urgent = GENERATE(false, true);
  const bool bound = GENERATE(false, true);
  INFO("urgent " << urgent << ", bound " << bound);
  Give(urgent, low.get());
  if (bound) LaunchOf(bound_kernel);
  if (bound) Give(!urgent, low.get());
  LaunchOf(kernel, 1, Cooperative(16));
  CHECK(Last().urgent == urgent);
  CHECK(Last().first_sm == 0);
  CHECK_FALSE(coroutine->Launch(1, kernel, Cooperative(17), {}).ok());
  Launch();
  CHECK(Last().urgent == urgent);
  device.RunAll();
}

TEST_CASE_METHOD(GroupFixture,
                 "A launch that does not fit its partition is tried in the same group") {
  // The kernel says that a block for each SM fits, but the device accepts none outside of all SMs.
  device.cooperative_limit = 1;
  Give(/*urgent=*/false, low.get());
  LaunchOf(bound_kernel);
  Give(/*urgent=*/true, low.get());
  LaunchOf(kernel, 1, Cooperative(6));
  CHECK(Last().first_sm == 0);
  CHECK_FALSE(Last().urgent);
  device.RunAll();
}

// ---- graphs

TEST_CASE_METHOD(GroupFixture, "A graph has an instance in each group in which it is launched") {
  Give(/*urgent=*/false);
  MakeGraph(Node(graph_kernel));
  LaunchGraph();
  CHECK_FALSE(Last().urgent);
  Give(/*urgent=*/true);
  LaunchGraph();
  CHECK(Last().urgent);
  Give(/*urgent=*/false);
  LaunchGraph();
  CHECK_FALSE(Last().urgent);
  for (int64_t launch = 1; launch <= Number(); ++launch) {
    for (int64_t before = 0; before < launch; ++before) CHECK(Comes(launch, before));
  }
  CHECK(InstancesIn(/*urgent=*/false) == 1);
  CHECK(InstancesIn(/*urgent=*/true) == 1);
  // On another stream.
  Give(/*urgent=*/true);
  LaunchGraph(2);
  LaunchGraph(3);
  CHECK(Last().urgent);
  CHECK(Comes(Number(), Number() - 1));
  CHECK(Comes(Number(), 0));
  device.RunAll();
}

TEST_CASE_METHOD(GroupFixture, "A graph of an urgent session never runs in the other group") {
  Give(/*urgent=*/false);
  MakeGraph(Node(graph_kernel));
  LaunchGraph();
  CHECK_FALSE(Last().urgent);
  Give(/*urgent=*/true);
  LaunchGraph();
  CHECK(Last().urgent);
  device.RunAll();
}

TEST_CASE_METHOD(GroupFixture,
                 "A graph stays in the urgent group until it is ready in the other one") {
  Give(/*urgent=*/true);
  MakeGraph(Node(graph_kernel));
  LaunchGraph();
  Give(/*urgent=*/false);
  LaunchGraph();
  CHECK(Last().urgent);
  CHECK(coroutine->MakeReady());
  LaunchGraph();
  CHECK_FALSE(Last().urgent);
  device.RunAll();
}

TEST_CASE_METHOD(GroupFixture, "A graph that needs all SMs gets an instance in each group, too") {
  device.cooperative_limit = 1;
  GraphDescription description;
  description.graphs.emplace_back().nodes = {Node(graph_kernel)};
  SECTION("because of a cooperative kernel") {
    description.graphs[0].nodes = {Node(graph_kernel, Cooperative(16))};
  }
  SECTION("because of more blocks than fit, as far as the kernel knows") {
    description.graphs[0].nodes = {Node(graph_kernel, Cooperative(40))};
  }
  SECTION("because of conditional nodes") {
    description.graphs[0].nodes.push_back({ConditionalStep{1, ConditionalStep::Type::kIf, 1, 1}});
    description.graphs.emplace_back().nodes = {Node(graph_kernel)};
  }
  Give(/*urgent=*/false, low.get());
  GraphPlace refused;
  graph = *GpuGraph::Create(*coroutine, description, &refused);
  LaunchGraph();
  CHECK(Last().first_sm == 0);
  CHECK_FALSE(Last().urgent);
  Give(/*urgent=*/true, low.get());
  LaunchGraph();
  CHECK(Last().urgent);
  Give(/*urgent=*/false, low.get());
  LaunchGraph();
  CHECK(Last().first_sm == 0);
  CHECK_FALSE(Last().urgent);
  CHECK(device.graphs.size() == 2);
  device.RunAll();
}

TEST_CASE_METHOD(GroupFixture, "A graph with a kernel that is bound binds its session") {
  const bool urgent = GENERATE(false, true);
  Give(urgent);
  MakeGraph(Node(bound_graph_kernel));
  CHECK(space->bound());
  Give(!urgent);
  LaunchGraph();
  CHECK(Last().urgent == urgent);
  CHECK_FALSE(coroutine->MakeReady());
  Launch(2);
  CHECK(Last().urgent == urgent);
  CHECK(device.graphs.size() == 1);
  device.RunAll();
}

TEST_CASE_METHOD(GroupFixture, "A bound kernel in a graph ends the instances of the other group") {
  Give(/*urgent=*/false);
  MakeGraph(Node(graph_kernel));
  const int64_t ordinary = LaunchGraph(1);
  Give(/*urgent=*/true);
  SECTION("that has an instance in both groups") {
    LaunchGraph(1);
    CHECK(device.graphs.size() == 2);
  }
  SECTION("that has an instance in the other group only") {}
  REQUIRE(graph->Replace({0, 0}, Node(bound_graph_kernel)).ok());
  CHECK(space->bound());
  CHECK(space->urgent());
  CHECK(InstancesIn(/*urgent=*/false) == 0);
  REQUIRE(InstancesIn(/*urgent=*/true) == 1);
  CHECK(std::get<KernelStep>(device.graphs[0]->description.root().nodes[0].step).kernel ==
        bound_graph_kernel);
  // The first launch on another stream comes after those of the instance that has ended.
  const int64_t last = Number();
  LaunchGraph(2);
  CHECK(Last().urgent);
  CHECK(Comes(Number(), ordinary));
  CHECK(Comes(Number(), last));
  LaunchGraph(3);
  CHECK(Comes(Number(), Number() - 1));
  // A further change finds an instance.
  REQUIRE(graph->Replace({0, 0}, Node(graph_kernel, Cooperative(2))).ok());
  Give(/*urgent=*/false);
  LaunchGraph(1);
  CHECK(Last().urgent);
  device.RunAll();
}

TEST_CASE_METHOD(GroupFixture,
                 "Graphs of a session that was bound since then leave the other group") {
  Give(/*urgent=*/false);
  MakeGraph(Node(graph_kernel));
  const int64_t ordinary = LaunchGraph(1);
  Give(/*urgent=*/true);
  Launch(3);
  space->BindToGroup();  // a node may name the address of a variable now
  SECTION("launched on the same stream") {
    LaunchGraph(1);
    CHECK(Comes(Number(), ordinary));
  }
  SECTION("launched on another stream") {
    LaunchGraph(2);
    CHECK(Comes(Number(), ordinary));
  }
  SECTION("whose last stream is gone") {
    device.RunAll();
    REQUIRE(coroutine->DestroyStream(1).ok());
    device.RunAll();
    REQUIRE(coroutine->SignalContext(1, &fences[0], 1).ok());
    LaunchGraph(2);
  }
  SECTION("uploaded") {
    REQUIRE(graph->Upload(2).ok());
    LaunchGraph(2);
    CHECK(Comes(Number(), ordinary));
  }
  SECTION("changed") {
    REQUIRE(graph->Replace({0, 0}, Node(graph_kernel, Cooperative(2))).ok());
    LaunchGraph(2);
    CHECK(Comes(Number(), ordinary));
  }
  CHECK(Last().urgent);
  CHECK(InstancesIn(/*urgent=*/false) == 0);
  CHECK(InstancesIn(/*urgent=*/true) == 1);
  device.RunAll();
}

TEST_CASE_METHOD(GroupFixture, "No instance is made in a group that the session cannot reach") {
  prepare = {low.get()};
  Give(/*urgent=*/false);
  SECTION("when it is bound before the graph is made") {
    Give(/*urgent=*/true);
    LaunchOf(bound_kernel);
    Give(/*urgent=*/false, low.get());
    MakeGraph(Node(graph_kernel));
  }
  SECTION("when it is bound later") {
    Give(/*urgent=*/true);
    MakeGraph(Node(graph_kernel));
    LaunchOf(bound_kernel);
  }
  while (coroutine->MakeReady()) {
  }
  LaunchGraph();
  CHECK(Last().urgent);
  CHECK(InstancesIn(/*urgent=*/false) == 0);
}

// ---- under the scheduler

struct ScheduledGroups {
  PreemptingDevice device;
  ManualClock clock;
  ScriptedPolicy* policy = nullptr;
  std::unique_ptr<DeviceScheduler> scheduler;
  std::unique_ptr<QueuePool> pool;  // destroyed before the scheduler
  bool urgent = false;              // the first session

  void Make(uint32_t migrate_every = 0) {
    clock.Advance(1);
    auto owned = std::make_unique<ScriptedPolicy>();
    policy = owned.get();
    policy->decide = [this](const policy::Snapshot&, policy::Decision* decision) {
      if (!decision->grants.empty()) decision->grants[0].urgent = urgent;
    };
    DeviceScheduler::Options options;
    options.own_thread = false;
    options.migrate_every = migrate_every;
    scheduler = *DeviceScheduler::Create(device, std::move(owned), {}, clock, options);
    pool = std::make_unique<QueuePool>(device);
  }
  void SetUrgent(bool now) {
    urgent = now;
    REQUIRE(scheduler->SetTenants({}).ok());  // asks the policy
  }
  std::string PlaceOf(policy::CoroutineId session) {
    CoroutineState state;
    REQUIRE(scheduler->StateOf(session, &state));
    return state.partition;
  }
  int InUrgentPlace() {
    const std::vector<PartitionView> views = scheduler->Partitions();
    REQUIRE(views.back().name == "urgent");
    CHECK(views.back().sm_count == 16);
    return views.back().sessions;
  }
};

TEST_CASE_METHOD(ScheduledGroups,
                 "The policy learns which sessions are bound, and to which group") {
  Make();
  ScheduledSession one(device, *pool, *scheduler, 1), two(device, *pool, *scheduler, 2);
  one.kernel.bound = GENERATE(false, true);
  const bool first = GENERATE(false, true);
  INFO("bound " << one.kernel.bound << ", urgent at first " << first);
  SetUrgent(first);
  CHECK(policy->seen[0].preempts);
  CHECK_FALSE(policy->seen[0].always_preempts);
  CHECK(PlaceOf(1) == (first ? "urgent" : "all"));
  one.Launch();
  one.Launch();
  one.Pause();
  CHECK(scheduler->AskIfDue());  // because of the news
  CHECK(policy->seen[0].preempts == (!one.kernel.bound || first));
  CHECK(policy->seen[0].always_preempts == (one.kernel.bound && first));
  CHECK(policy->seen[1].preempts);
  CHECK_FALSE(policy->seen[1].always_preempts);
  SetUrgent(!first);
  const bool in_urgent = one.kernel.bound ? first : !first;
  one.Launch();
  CHECK(device.operations.back().urgent == in_urgent);
  CHECK(PlaceOf(1) == (in_urgent ? "urgent" : "all"));
  CHECK(InUrgentPlace() == in_urgent);
  CHECK(PlaceOf(2) == "all");
  device.RunAll();
}

TEST_CASE_METHOD(ScheduledGroups, "Forced migration moves through both groups, in order") {
  Make(/*migrate_every=*/1);
  ScheduledSession one(device, *pool, *scheduler, 1);
  std::set<std::pair<int, bool>> places;
  History before;
  for (int i = 0; i < 24; ++i) {
    if (i % 3 == 2) {
      REQUIRE(one.coroutine->Copy(1, {.width = 8}).ok());
    } else {
      one.Launch();
    }
    places.emplace(device.operations.back().first_sm, device.operations.back().urgent);
    REQUIRE(device.operations.back().before == before);
    before.insert(static_cast<int64_t>(device.operations.size()) - 1);
  }
  CHECK(places == std::set<std::pair<int, bool>>{{0, false}, {8, false}, {0, true}});
  device.RunAll();
}

TEST_CASE_METHOD(ScheduledGroups, "Forced migration leaves a bound session in its group") {
  Make(/*migrate_every=*/1);
  ScheduledSession one(device, *pool, *scheduler, 1);
  const bool by_kernel = GENERATE(true, false);
  const int operations_before = GENERATE(0, 1, 2, 3, 4);
  for (int i = 0; i < operations_before; ++i) one.Launch();
  if (by_kernel) {
    one.kernel.bound = true;
    one.Launch();
  } else {
    one.space->BindToGroup();
  }
  const bool group = one.space->urgent();
  if (by_kernel) CHECK(device.operations.back().urgent == group);
  for (int i = 0; i < 12; ++i) {
    if (i % 3 == 2) {
      REQUIRE(one.coroutine->Copy(2, {.width = 8}).ok());
    } else {
      one.Launch(1 + i % 2);
    }
    CHECK(device.operations.back().urgent == group);
  }
  device.RunAll();
}

// ---- work at another device

TEST_CASE("Work at another device runs in the group of the session there") {
  GroupFixture host, home;  // home, which has a queue at host, ends first
  host.Give(/*urgent=*/false);
  home.Give(/*urgent=*/false);
  const auto fill = [&] {
    REQUIRE(home.coroutine->FillAt(*host.coroutine, 1, {}).ok());
    return host.Last().urgent;
  };
  CHECK_FALSE(fill());
  host.Give(/*urgent=*/true);
  host.Launch();
  host.space->BindToGroup();
  CHECK(fill());
  CHECK(host.QueuesIn(/*urgent=*/false) == 1);
  CHECK(fill());
  CHECK(host.QueuesIn(/*urgent=*/true) == 2);
  home.device.RunAll();
  host.device.RunAll();
  home.device.RunAll();
  host.device.RunAll();
}

}  // namespace
}  // namespace detshare
