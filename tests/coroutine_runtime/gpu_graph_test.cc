#include "coroutine_runtime/gpu_graph.h"

#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <deque>
#include <random>

#include "tests/coroutine_runtime/fake_device.h"

namespace detshare {
namespace {

struct GpuGraphFixture {
  std::deque<std::atomic<uint64_t>> fences;
  FakeDevice device;
  std::unique_ptr<Partition> low = *device.CreatePartition(2, 6);
  std::unique_ptr<Partition> high = *device.CreatePartition(8, 8);
  QueuePool pool{device};
  Executor executor;
  Parking parking{executor};
  std::unique_ptr<GpuCoroutine> coroutine;  // destroyed after the space
  std::unique_ptr<AddressSpace> space = *device.CreateAddressSpace(1ull << 40, 1ull << 40);
  std::shared_ptr<FakeKernel> kernel = std::make_shared<FakeKernel>();
  std::unique_ptr<GpuGraph> graph;

  GpuGraphFixture() {
    coroutine = *GpuCoroutine::Create(device, *space, pool, parking);
    fences.resize(4);
    for (StreamId id = 1; id <= 3; ++id) {
      REQUIRE(coroutine->CreateStream(id, 7, {.non_blocking = true}).ok());
    }
  }
  GraphNode Kernel(uint32_t blocks = 1) {
    KernelStep step;
    step.kernel = kernel;
    step.shape.grid.x = blocks;
    return {step, true};
  }
  // kernel -> signal -> wait -> kernel
  GraphDescription Chain() {
    GraphDescription description;
    GraphBody& root = description.graphs.emplace_back();
    root.nodes = {Kernel(), {SignalStep{&fences[0]}}, {WaitStep{&fences[1]}}, Kernel()};
    root.edges = {{0, 1}, {1, 2}, {2, 3}};
    return description;
  }
  GraphDescription Single() {
    GraphDescription description;
    description.graphs.emplace_back().nodes = {Kernel()};
    return description;
  }
  void Make(GraphDescription description) {
    GraphPlace refused;
    graph = *GpuGraph::Create(*coroutine, std::move(description), &refused);
  }
  // Returns the number of the operation that a launch makes.
  int64_t Launch(StreamId stream) {
    const auto number = static_cast<int64_t>(device.operations.size());
    REQUIRE(graph->Launch(stream, {}).ok());
    return number;
  }
  History Before(int64_t number) { return device.operations[number].before; }
  int Where(int64_t number) { return device.operations[number].first_sm; }
};

TEST_CASE_METHOD(GpuGraphFixture, "A launch is one operation of its stream and no more") {
  Make(Single());
  const int64_t first = Launch(1);
  const int64_t second = Launch(1);
  CHECK(Before(second) == History{first});
  CHECK(device.calls == 0);
  CHECK(coroutine->counters().kernels == 2);
  CHECK(coroutine->counters().operations == 2);
}

TEST_CASE_METHOD(GpuGraphFixture, "A launch gives each signal and wait its value, or is refused") {
  Make(Chain());
  CHECK(graph->value_count() == 2);
  CHECK(CudaResultOf(graph->Launch(1, {})) == kCudaErrorInvalidValue);
  CHECK(device.operations.empty());
  REQUIRE(graph->Launch(1, {5, 6}).ok());
  CHECK(device.graph_values == std::vector<uint64_t>{5, 6});
  CHECK(coroutine->counters().kernels == 2);
  CHECK(CudaResultOf(graph->Launch(99, {5, 6})) == kCudaErrorInvalidHandle);
}

TEST_CASE_METHOD(GpuGraphFixture,
                 "A graph is instantiated for each partition once, when it is needed") {
  Make(Single());
  CHECK(device.graphs.size() == 1);
  coroutine->Bind(*high);
  CHECK(device.graphs.size() == 1);
  CHECK(Where(Launch(1)) == 8);
  CHECK(device.graphs.size() == 2);
  coroutine->Bind(device.whole());
  CHECK(Where(Launch(1)) == 0);
  coroutine->Bind(*high);
  CHECK(Where(Launch(1)) == 8);
  CHECK(device.graphs.size() == 2);
  coroutine->Bind(*low);
  REQUIRE(graph->Upload(1).ok());
  CHECK(coroutine->counters().operations == coroutine->counters().graphs + 1);
  CHECK(device.graphs.size() == 3);
  CHECK(device.uploads == 1);
}

TEST_CASE_METHOD(GpuGraphFixture,
                 "A graph that does not fit a partition runs on the whole device") {
  device.instantiation_error = kCudaErrorCooperativeLaunchTooLarge;
  coroutine->Bind(*low);
  Make(Single());
  CHECK(Where(Launch(1)) == 0);
  coroutine->Bind(*high);
  CHECK(Where(Launch(1)) == 0);
  CHECK(device.graphs.size() == 1);
}

TEST_CASE_METHOD(GpuGraphFixture, "A graph with conditional nodes runs on the whole device") {
  GraphDescription description = Single();
  description.graphs[0].nodes.push_back({ConditionalStep{1, ConditionalStep::Type::kIf, 1, 1}});
  description.graphs.emplace_back().nodes = {Kernel()};
  coroutine->Bind(*low);
  Make(std::move(description));
  CHECK(Where(Launch(1)) == 0);
  coroutine->Bind(*high);
  CHECK(Where(Launch(2)) == 0);
  CHECK(device.graphs.size() == 1);
}

TEST_CASE_METHOD(GpuGraphFixture,
                 "Errors that have nothing to do with the partition are the client's") {
  device.instantiation_error = kCudaErrorInvalidValue;
  coroutine->Bind(*low);
  GraphPlace refused;
  const auto result = GpuGraph::Create(*coroutine, Single(), &refused);
  CHECK(CudaResultOf(result.status()) == kCudaErrorInvalidValue);
  CHECK(refused.graph == 0);
  CHECK(refused.node == 0);
}

TEST_CASE_METHOD(GpuGraphFixture,
                 "Launches of one graph follow each other wherever they are made") {
  for (unsigned seed = 0; seed < 15; ++seed) {
    INFO("seed " << seed);
    std::mt19937 random(seed);
    Make(Single());
    const std::array<Partition*, 3> partitions = {&device.whole(), low.get(), high.get()};
    History launches;
    int moved = 0;
    for (int step = 0; step < 40; ++step) {
      if (random() % 2 == 0) coroutine->Bind(*partitions[random() % 3]);
      const int64_t number = Launch(1 + random() % 3);
      const History before = Before(number);
      REQUIRE(std::includes(before.begin(), before.end(), launches.begin(), launches.end()));
      launches.insert(number);
      moved += Where(number) == coroutine->partition().first_sm();
    }
    // Only the stream's first change may keep a launch on the place of the last one.
    CHECK(moved >= 39);
  }
  device.RunAll();
}

TEST_CASE_METHOD(GpuGraphFixture,
                 "A graph on two streams does not wait for what follows it on the other") {
  Make(Single());
  Launch(1);
  Launch(2);  // later launches mark their end
  const int64_t launched = Launch(1);
  REQUIRE(coroutine->WaitFence(1, &fences[0], 1).ok());  // a value of the host, later than the
                                                         // launch
  coroutine->Bind(*high);
  const int64_t moved = Launch(2);
  CHECK(Before(moved).contains(launched));
  CHECK_FALSE(Before(moved).contains(-1));
  CHECK(Where(moved) == 8);
  fences[0] = 1;
  device.RunAll();
}

struct KeptLaunches : GpuGraphFixture {
  // Stream 1 waits for the client, and a launch of the graph on it is kept.
  void Keep(GraphDescription description) {
    Make(std::move(description));
    REQUIRE(coroutine->WaitFence(1, &fences[2], 1).ok());
    REQUIRE(graph->Launch(1, std::vector<uint64_t>(graph->value_count(), 5)).ok());
    device.RunAll();
    executor.Poll();
  }
  size_t Launched() const { return device.operations.size(); }
  void Open() {
    fences[2] = 1;
    executor.Poll();
    device.RunAll();
  }
};

TEST_CASE_METHOD(KeptLaunches, "Launches behind a wait for the client are kept until it is over") {
  Keep(Chain());
  CHECK(Launched() == 0);
  CHECK(graph->Launch(1, {6, 6}).ok());
  CHECK(Launched() == 0);
  Open();
  CHECK(Launched() == 2);
  CHECK(device.graph_values == std::vector<uint64_t>{6, 6});
  fences[1] = 6;
  device.RunAll();
}

TEST_CASE_METHOD(KeptLaunches,
                 "Kept launches go to the device before their graph changes or ends") {
  Keep(Single());
  SECTION("a node changes") { REQUIRE(graph->Replace({0, 0}, Kernel(7)).ok()); }
  SECTION("it becomes another") {
    GraphDescription next = Single();
    next.graphs[0].nodes[0] = Kernel(9);
    REQUIRE(graph->Become(next).result == GpuGraph::UpdateResult::kSuccess);
  }
  SECTION("it ends") { graph.reset(); }
  CHECK(Launched() == 1);
  Open();
  CHECK(Launched() == 1);
}

TEST_CASE_METHOD(KeptLaunches,
                 "A launch on another stream comes after kept launches of the graph") {
  Keep(Single());
  REQUIRE(graph->Launch(2, {}).ok());
  Open();
  REQUIRE(Launched() == 2);
  CHECK(Before(1).contains(0));
}

TEST_CASE_METHOD(KeptLaunches,
                 "A launch that may be refused, or that records an event, is not kept") {
  GraphDescription description = Single();
  SECTION("it needs several SMs at once") {
    GraphNode node = Kernel(8);
    std::get<KernelStep>(node.step).shape.cooperative = true;
    device.cooperative_limit = 1;
    description.graphs[0].nodes[0] = node;
  }
  SECTION("it records an event") {
    REQUIRE(coroutine->CreateEvent(1, 7, /*timed=*/false).ok());
    bool* recorded = nullptr;
    std::shared_ptr<Marker> marker = *coroutine->ShareEvent(1, &recorded);
    description.graphs[0].nodes.push_back({RecordStep{marker, recorded}});
  }
  Keep(std::move(description));
  CHECK(Launched() == 1);
  Open();
}

TEST_CASE_METHOD(KeptLaunches, "A graph waits for the recording of an event that is kept") {
  REQUIRE(coroutine->CreateEvent(1, 7, /*timed=*/false).ok());
  REQUIRE(coroutine->WaitFence(2, &fences[2], 1).ok());
  REQUIRE(graph == nullptr);
  Make(Single());
  REQUIRE(graph->Launch(2, {}).ok());
  REQUIRE(coroutine->RecordEvent(1, 2, nullptr, 0).ok());
  CHECK(Launched() == 0);
  bool* recorded = nullptr;
  const GraphNode wait = {WaitMarkerStep{*coroutine->ShareEvent(1, &recorded)}};
  GraphDescription waiting = Single();
  waiting.graphs[0].nodes.push_back(wait);
  const bool changes = GENERATE(false, true);
  if (changes) {
    REQUIRE(coroutine->CreateEvent(2, 7, /*timed=*/false).ok());
    waiting.graphs[0].nodes[1] = {WaitMarkerStep{*coroutine->ShareEvent(2, &recorded)}};
  }
  GraphPlace refused;
  const std::unique_ptr<GpuGraph> second = *GpuGraph::Create(*coroutine, waiting, &refused);
  if (changes) REQUIRE(second->Replace({0, 1}, wait).ok());
  REQUIRE(second->Launch(3, {}).ok());
  REQUIRE(Launched() == 2);  // the device has the recording before the launch that waits for it
  Open();
}

TEST_CASE_METHOD(GpuGraphFixture, "A new stream with a used id is a different stream") {
  Make(Single());
  Launch(1);
  REQUIRE(coroutine->DestroyStream(1).ok());
  REQUIRE(coroutine->CreateStream(1, 7, {.non_blocking = true}).ok());
  coroutine->Bind(*high);
  CHECK(Before(Launch(1)).contains(0));
}

TEST_CASE_METHOD(GpuGraphFixture,
                 "A change of a node reaches every instantiation, also later ones") {
  Make(Single());
  coroutine->Bind(*high);
  Launch(1);
  REQUIRE(graph->Replace({0, 0}, Kernel(77)).ok());
  coroutine->Bind(*low);
  Launch(1);
  REQUIRE(device.graphs.size() == 3);
  for (FakeGraph* instance : device.graphs) {
    CHECK(std::get<KernelStep>(instance->description.root().nodes[0].step).shape.grid.x == 77);
  }
}

TEST_CASE_METHOD(GpuGraphFixture,
                 "A change that the latest instantiation refuses changes nothing") {
  Make(Single());
  coroutine->Bind(*high);
  Launch(1);
  device.graphs[1]->refuses = true;
  CHECK(CudaResultOf(graph->Replace({0, 0}, Kernel(77))) == 910);
  for (FakeGraph* instance : device.graphs) {
    CHECK(std::get<KernelStep>(instance->description.root().nodes[0].step).shape.grid.x == 1);
  }
}

TEST_CASE_METHOD(GpuGraphFixture,
                 "An instantiation of another partition that refuses a change is made again") {
  Make(Single());
  coroutine->Bind(*high);
  Launch(1);
  device.graphs[0]->refuses = true;
  REQUIRE(graph->Replace({0, 0}, Kernel(77)).ok());
  CHECK(device.graphs.size() == 1);
  coroutine->Bind(device.whole());
  Launch(1);
  CHECK(std::get<KernelStep>(device.graphs[1]->description.root().nodes[0].step).shape.grid.x ==
        77);
}

TEST_CASE_METHOD(GpuGraphFixture,
                 "Nodes that do not exist or are of another kind cannot be changed") {
  Make(Chain());
  CHECK(CudaResultOf(graph->Replace({1, 0}, Kernel())) == kCudaErrorInvalidValue);
  CHECK(CudaResultOf(graph->Replace({0, 4}, Kernel())) == kCudaErrorInvalidValue);
  CHECK(CudaResultOf(graph->Replace({0, 1}, Kernel())) == kCudaErrorInvalidValue);
  CHECK(CudaResultOf(graph->SetEnabled({0, 9}, false)) == kCudaErrorInvalidValue);
  REQUIRE(graph->SetEnabled({0, 3}, false).ok());
  REQUIRE(graph->Launch(1, {1, 1}).ok());
  CHECK(coroutine->counters().kernels == 1);
}

TEST_CASE_METHOD(GpuGraphFixture,
                 "A graph becomes another of the same topology, or stays as it was") {
  Make(Chain());
  GraphDescription next = Chain();
  next.graphs[0].nodes[3] = Kernel(9);
  REQUIRE(graph->Become(next).result == GpuGraph::UpdateResult::kSuccess);
  const auto blocks = [&] {
    return std::get<KernelStep>(device.graphs[0]->description.root().nodes[3].step).shape.grid.x;
  };
  CHECK(blocks() == 9);

  GraphDescription other = Chain();
  other.graphs[0].edges.pop_back();
  CHECK(graph->Become(other).result == GpuGraph::UpdateResult::kTopologyChanged);
  other = Chain();
  other.graphs[0].nodes[1] = Kernel();
  GpuGraph::Update update = graph->Become(other);
  CHECK(update.result == GpuGraph::UpdateResult::kNodeTypeChanged);
  CHECK(update.place.node == 1);
  CHECK(blocks() == 9);
}

TEST_CASE_METHOD(GpuGraphFixture, "An update that fails in the middle is undone") {
  Make(Chain());
  GraphDescription next = Chain();
  next.graphs[0].nodes[0] = Kernel(2);
  next.graphs[0].nodes[3] = Kernel(3);
  FakeGraph& instance = *device.graphs[0];
  instance.refused_node = 3;
  const GpuGraph::Update update = graph->Become(next);
  CHECK(update.result == GpuGraph::UpdateResult::kParametersChanged);
  CHECK(update.place.node == 3);
  CHECK(std::get<KernelStep>(instance.description.root().nodes[0].step).shape.grid.x == 1);
  CHECK(std::get<KernelStep>(graph->description().root().nodes[0].step).shape.grid.x == 1);
}

TEST_CASE_METHOD(GpuGraphFixture,
                 "An event that a graph records is recorded, also when it is destroyed") {
  REQUIRE(coroutine->CreateEvent(1, 7, false).ok());
  bool* recorded = nullptr;
  RecordStep step;
  step.marker = *coroutine->ShareEvent(1, &recorded);
  step.recorded = recorded;
  GraphDescription description;
  description.graphs.emplace_back().nodes = {{step}};
  Make(std::move(description));
  CHECK_FALSE(*recorded);
  Launch(1);
  CHECK(*recorded);
  REQUIRE(coroutine->DestroyEvent(1).ok());
  // No other object gets its marker while the graph lives.
  REQUIRE(coroutine->CreateEvent(2, 7, false).ok());
  bool* other = nullptr;
  CHECK(coroutine->ShareEvent(2, &other)->get() != step.marker.get());
  Launch(1);
  CHECK_FALSE(*other);
  CHECK(CudaResultOf(coroutine->ShareEvent(1, &other).status()) == kCudaErrorInvalidHandle);
}

}  // namespace
}  // namespace detshare
