// Graphs on a real GPU. Without a driver every case passes with a warning.
#include <catch2/catch.hpp>
#include <set>

#include "coroutine_runtime/device_graph.h"
#include "coroutine_runtime/gpu_coroutine.h"
#include "coroutine_runtime/gpu_graph.h"
#include "server/backends/cuda/driver_api.h"
#include "tests/gpu/backends/gpu_session.h"

namespace detshare {
namespace {

constexpr int kUpdateFailure = 910;  // CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE
constexpr uint32_t kCount = 1024;    // words that a kernel writes

std::vector<std::byte> Bytes(const Parameters& parameters) {
  const absl::Span<const std::byte> bytes = parameters;
  return {bytes.begin(), bytes.end()};
}

// A session with a library and device memory, and a description that tests fill in.
struct Fixture {
  Session session;
  std::shared_ptr<Library> library;
  GraphDescription description;

  explicit Fixture(Device& gpu) : session(gpu) {
    REQUIRE_OK(session.space->Map(kBase, 64 * kMiB));
    library = session.Load(kPtx);
    description.graphs.resize(1);
  }
  ~Fixture() {
    description = {};
    library.reset();
  }

  std::shared_ptr<Kernel> kernel(std::string_view name) {
    return std::shared_ptr<Kernel>(library, *library->GetKernel(name));
  }
  // out[i] = value + i
  GraphNode Iota(DeviceAddress out, uint32_t value) {
    KernelStep step;
    step.kernel = kernel("iota");
    step.shape = Shape(kCount / 128, 128);
    step.parameters = Bytes(Parameters().Add(out).Add(value).Add(kCount));
    return {step};
  }
  GraphNode Copy(DeviceAddress to, DeviceAddress from, uint64_t bytes) {
    CopyRequest copy;
    copy.destination = to;
    copy.source = from;
    copy.width = bytes;
    return {copy};
  }
  uint32_t Add(GraphNode node) {
    description.graphs[0].nodes.push_back(std::move(node));
    return static_cast<uint32_t>(description.graphs[0].nodes.size() - 1);
  }
  void Edge(uint32_t from, uint32_t to) { description.graphs[0].edges.push_back({from, to}); }
  void Chain() {
    for (uint32_t i = 1; i < description.root().nodes.size(); ++i) Edge(i - 1, i);
  }
  absl::StatusOr<std::unique_ptr<Graph>> TryMake(Partition& partition) {
    GraphPlace refused;
    return session.device.InstantiateGraph(*session.space, partition, description, &refused);
  }
  std::unique_ptr<Graph> Make(Partition& partition) {
    auto graph = TryMake(partition);
    REQUIRE_OK(graph.status());
    return *std::move(graph);
  }
  std::unique_ptr<Graph> Make() { return Make(session.device.whole()); }
  void Launch(Graph& graph, std::vector<uint64_t> values = {}) {
    REQUIRE_OK(session.queue->LaunchGraph(*session.space, graph, values));
  }
  const uint32_t* host() { return session.host_as<uint32_t>(); }
};

// Two partitions: the SMs [0, 2), and the rest. Null if the driver has no partitions.
std::unique_ptr<Partition> SmallPartition(Device& gpu) {
  const int group = gpu.properties().sm_group;
  if (group >= gpu.properties().sm_count) {
    WARN("SKIPPED, the GPU has no partitions");
    return nullptr;
  }
  auto partition = gpu.CreatePartition(0, 2 * group);
  REQUIRE_OK(partition.status());
  return *std::move(partition);
}

TEST_CASE("A graph does the same on the whole device and on a partition") {
  Device* gpu = Gpu();
  if (gpu == nullptr) return;
  const std::unique_ptr<Partition> partition = SmallPartition(*gpu);
  std::vector<std::vector<uint32_t>> results;
  for (Partition* place : {&gpu->whole(), partition.get()}) {
    if (place == nullptr) continue;
    Fixture f(*gpu);
    // Two branches. A copy that crosses registered pieces of host memory joins them.
    const uint32_t left = f.Add(f.Iota(kBase, 100));
    const uint32_t right = f.Add({FillRequest{kBase + 4 * kCount, 0, 20 * kMiB / 4, 1, 7, 4}});
    const uint32_t join = f.Add({});
    f.Add(f.Copy(f.session.host_address(), kBase, 20 * kMiB));
    f.Edge(left, join);
    f.Edge(right, join);
    f.Edge(join, 3);
    const auto graph = f.Make(*place);
    const auto queue = *place->CreateQueue(0);
    for (int round = 0; round < 3; ++round) {
      std::memset(f.session.host, 0, 20 * kMiB);
      REQUIRE_OK(queue->LaunchGraph(*f.session.space, *graph, {}));
      f.session.Finish(*queue);
      CHECK(f.host()[0] == 100);
      CHECK(f.host()[kCount - 1] == 100 + kCount - 1);
      CHECK(f.host()[kCount] == 7);
      CHECK(f.host()[20 * kMiB / 4 - 1] == 7);
    }
    results.emplace_back(f.host(), f.host() + 20 * kMiB / 4);
  }
  for (const auto& result : results) CHECK(result == results.front());
}

TEST_CASE("Kernels of a graph stay on the SMs of its partition, whatever the queue") {
  Device* gpu = Gpu();
  if (gpu == nullptr) return;
  const std::unique_ptr<Partition> partition = SmallPartition(*gpu);
  if (partition == nullptr) return;
  Fixture f(*gpu);
  const int sms = gpu->properties().sm_count;
  const auto blocks = static_cast<uint32_t>(4 * sms);
  KernelStep step;
  step.kernel = f.kernel("where");
  step.shape = Shape(blocks, 1024);
  step.parameters = Bytes(Parameters().Add(kBase).Add(uint64_t{200'000}));
  f.Add({step});
  f.Add(f.Copy(f.session.host_address(), kBase, 4 * blocks));
  f.Chain();
  const auto used = [&](Graph& graph, Queue& queue) {
    REQUIRE_OK(queue.LaunchGraph(*f.session.space, graph, {}));
    f.session.Finish(queue);
    return static_cast<int>(std::set<uint32_t>(f.host(), f.host() + blocks).size());
  };
  const auto whole = f.Make(), small = f.Make(*partition);
  const auto queue = *partition->CreateQueue(0);
  CHECK(used(*whole, *f.session.queue) == sms);
  CHECK(used(*small, *queue) == partition->sm_count());
  CHECK(used(*small, *f.session.queue) == partition->sm_count());
}

TEST_CASE("Changes of nodes hold for later launches") {
  Device* gpu = Gpu();
  if (gpu == nullptr) return;
  const std::unique_ptr<Partition> partition = SmallPartition(*gpu);
  for (Partition* place : {&gpu->whole(), partition.get()}) {
    if (place == nullptr) continue;
    Fixture f(*gpu);
    f.Add(f.Iota(kBase, 1));
    f.Add(f.Copy(f.session.host_address(), kBase, 4 * kCount));
    f.Add({FillRequest{f.session.host_address() + 4 * kCount, 0, 8, 1, 5, 4}});
    f.Chain();
    const auto graph = f.Make(*place);
    const auto queue = *place->CreateQueue(0);
    const auto run = [&] {
      REQUIRE_OK(queue->LaunchGraph(*f.session.space, *graph, {}));
      f.session.Finish(*queue);
    };
    run();
    CHECK(f.host()[0] == 1);
    CHECK(f.host()[kCount] == 5);
    for (uint32_t value = 2; value < 50; ++value) {
      REQUIRE_OK(graph->Replace({0, 0}, f.Iota(kBase, value)));
      run();
      REQUIRE(f.host()[3] == value + 3);
    }
    REQUIRE_OK(
        graph->Replace({0, 1}, f.Copy(f.session.host_address() + 8 * kCount, kBase, 4 * kCount)));
    GraphNode off = {FillRequest{f.session.host_address() + 4 * kCount, 0, 8, 1, 6, 4}, false};
    REQUIRE_OK(graph->Replace({0, 2}, off));
    REQUIRE_OK(graph->Replace({0, 0}, f.Iota(kBase, 900)));
    run();
    CHECK(f.host()[0] == 49);
    CHECK(f.host()[2 * kCount] == 900);
    CHECK(f.host()[kCount] == 5);
    off.enabled = true;
    REQUIRE_OK(graph->Replace({0, 2}, off));
    run();
    CHECK(f.host()[kCount] == 6);
    // These copies would be other nodes for the driver.
    CHECK(CudaResultOf(graph->Replace(
              {0, 1}, f.Copy(f.session.host_address(), kBase, 20 * kMiB))) == kUpdateFailure);
    run();
    CHECK(f.host()[2 * kCount] == 900);
  }
}

TEST_CASE("Signals and waits have the values of their launch, with several launches in flight") {
  Device* gpu = Gpu();
  if (gpu == nullptr) return;
  Fixture f(*gpu);
  std::atomic<uint64_t>* const fences = f.session.fence + 8;
  f.Add({SignalStep{&fences[0]}});
  f.Add({WaitStep{&fences[1]}});
  f.Add(f.Copy(f.session.host_address(), kBase, 4));
  f.Add({SignalStep{&fences[2]}});
  f.Chain();
  const auto graph = f.Make();
  for (uint64_t round = 1; round <= 5; ++round) f.Launch(*graph, {round, round, round});
  for (uint64_t round = 1; round <= 5; ++round) {
    REQUIRE(Session::Reached(fences[0], round));
    CHECK(fences[2].load() == round - 1);
    fences[1].store(round, std::memory_order_release);
    REQUIRE(Session::Reached(fences[2], round));
  }
  f.session.Finish();
}

TEST_CASE("An abandoned session's graphs do not wait for its client") {
  Device* gpu = Gpu();
  if (gpu == nullptr) return;
  Fixture f(*gpu);
  f.Add({WaitStep{f.session.fence + 8}});
  const auto graph = f.Make();
  f.Launch(*graph, {1});
  f.session.space->Abandon();
  f.Launch(*graph, {2});
  f.session.Finish();
}

TEST_CASE("Events are recorded by graphs and waited for by them") {
  Device* gpu = Gpu();
  if (gpu == nullptr) return;
  Fixture f(*gpu);
  const auto recorded = std::shared_ptr<Marker>(*gpu->CreateMarker(false));
  const auto awaited = std::shared_ptr<Marker>(*gpu->CreateMarker(false));
  bool note = false;
  f.Add({WaitMarkerStep{awaited}});
  f.Add(f.Iota(kBase, 11));
  f.Add({RecordStep{recorded, &note}});
  f.Chain();
  const auto graph = f.Make();
  const auto before = *gpu->whole().CreateQueue(0), after = *gpu->whole().CreateQueue(0);
  std::atomic<uint64_t>* const gate = f.session.fence + 8;
  REQUIRE_OK(before->WaitFence(*f.session.space, gate, 1));
  REQUIRE_OK(before->Record(*awaited));
  f.Launch(*graph);
  REQUIRE_OK(after->Wait(*recorded));
  REQUIRE_OK(after->WriteFence(*f.session.space, f.session.fence, ++f.session.last_value));
  CHECK(f.session.fence->load() < f.session.last_value);
  gate->store(1, std::memory_order_release);
  REQUIRE(Session::Reached(*f.session.fence, f.session.last_value));
}

TEST_CASE("A cooperative node that does not fit a partition is refused there") {
  Device* gpu = Gpu();
  if (gpu == nullptr) return;
  const std::unique_ptr<Partition> partition = SmallPartition(*gpu);
  if (partition == nullptr) return;
  Fixture f(*gpu);
  KernelStep step;
  step.kernel = f.kernel("meet");
  step.shape = Shape(static_cast<uint32_t>(gpu->properties().sm_count), 1024);
  step.shape.cooperative = true;
  step.parameters = Bytes(Parameters().Add(kBase));
  f.Add({FillRequest{kBase, 0, 1, 1, 0, 4}});
  f.Add({step});
  f.Chain();
  CHECK(CudaResultOf(f.TryMake(*partition).status()) == kCudaErrorCooperativeLaunchTooLarge);
  const auto graph = f.Make();
  f.Launch(*graph);
  f.Launch(*graph);
  f.session.Finish();
}

TEST_CASE("Handles of conditional nodes work in the graph for which they were made") {
  Device* gpu = Gpu();
  if (gpu == nullptr) return;
  Fixture f(*gpu);
  const auto handle = [&](uint32_t value, uint64_t sibling) {
    const auto made = gpu->CreateGraphCondition(*f.session.space, value, true, sibling);
    REQUIRE_OK(made.status());
    return *made;
  };
  CHECK(CudaResultOf(gpu->CreateGraphCondition(*f.session.space, 0, true, 12345).status()) ==
        kCudaErrorInvalidValue);
  const uint64_t outer = handle(1, 0), inner = handle(1, outer), other = handle(0, 0);
  // if (1) { fill; switch (1) { case 0: copy; case 1: iota } }, then a copy of all
  f.Add({FillRequest{kBase, 0, 2 * kCount, 1, 9, 4}});
  f.Add({ConditionalStep{outer, ConditionalStep::Type::kIf, 1, 1}});
  f.Add(f.Copy(f.session.host_address(), kBase, 8 * kCount));
  f.Chain();
  f.description.graphs.resize(4);
  f.description.graphs[1].nodes = {{FillRequest{kBase, 0, kCount, 1, 5, 4}},
                                   {ConditionalStep{inner, ConditionalStep::Type::kSwitch, 2, 2}}};
  f.description.graphs[1].edges = {{0, 1}};
  f.description.graphs[2].nodes = {f.Copy(kBase, kBase + 4 * kCount, 4 * kCount)};
  f.description.graphs[3].nodes = {f.Iota(kBase + 4 * kCount, 100)};
  const auto check = [&] {
    CHECK(f.host()[0] == 5);
    CHECK(f.host()[kCount - 1] == 5);
    CHECK(f.host()[kCount] == 100);
    CHECK(f.host()[2 * kCount - 1] == 100 + kCount - 1);
  };
  for (int round = 0; round < 2; ++round) {
    const auto graph = f.Make();
    for (int launch = 0; launch < 2; ++launch) {
      std::memset(f.session.host, 0, 8 * kCount);
      f.Launch(*graph);
      f.session.Finish();
      check();
    }
    // the graph has one
    CHECK(CudaResultOf(f.TryMake(gpu->whole()).status()) == kCudaErrorInvalidValue);
  }
  // The next graph has other nodes.
  f.description.graphs[3].nodes = {{}, f.Iota(kBase + 4 * kCount, 100)};
  f.description.graphs[3].edges = {{0, 1}};
  {
    const auto graph = f.Make();
    std::memset(f.session.host, 0, 8 * kCount);
    f.Launch(*graph);
    f.session.Finish();
    check();
  }
  // A handle of another graph, and a number that is no handle.
  for (const uint64_t wrong : {other, outer, uint64_t{12345}}) {
    std::get<ConditionalStep>(f.description.graphs[1].nodes[1].step).handle = wrong;
    CHECK(CudaResultOf(f.TryMake(gpu->whole()).status()) == kCudaErrorInvalidValue);
  }
}

TEST_CASE("Kernels that are joined by programmatic edges run in order") {
  Device* gpu = Gpu();
  if (gpu == nullptr) return;
  if (gpu->properties().attributes.at(75) < 9) {
    WARN("SKIPPED, programmatic edges need compute capability 9.0");
    return;
  }
  Fixture f(*gpu);
  f.Add(f.Iota(kBase, 1));
  f.Add(f.Iota(kBase + 4 * kCount, 2));
  f.Add(f.Copy(f.session.host_address(), kBase, 8 * kCount));
  f.description.graphs[0].edges = {{0, 1, 1, 0, 1}, {0, 2}, {1, 2}};
  const auto graph = f.Make();
  f.Launch(*graph);
  f.session.Finish();
  CHECK(f.host()[5] == 6);
  CHECK(f.host()[kCount + 5] == 7);
}

TEST_CASE("A copy to memory that was taken away is refused at the launch") {
  Device* gpu = Gpu();
  if (gpu == nullptr) return;
  Fixture f(*gpu);
  const DeviceAddress other = kBase + (1ull << 30);
  REQUIRE_OK(f.session.space->Map(other, 2 * kMiB));
  f.Add(f.Copy(other, kBase, 4096));
  const auto graph = f.Make();
  f.Launch(*graph);
  f.session.Finish();
  REQUIRE_OK(f.session.space->Unmap(other, 2 * kMiB));
  CHECK(CudaResultOf(f.session.queue->LaunchGraph(*f.session.space, *graph, {})) ==
        kCudaErrorInvalidValue);
  REQUIRE_OK(f.session.space->Map(other, 2 * kMiB));
  f.Launch(*graph);
  f.session.Finish();
}

TEST_CASE("A graph and its code may end before its launches") {
  Device* gpu = Gpu();
  if (gpu == nullptr) return;
  Fixture f(*gpu);
  std::atomic<uint64_t>* const gate = f.session.fence + 8;
  f.Add({WaitStep{gate}});
  f.Add(f.Iota(kBase, 77));
  f.Add(f.Copy(f.session.host_address(), kBase, 4 * kCount));
  f.Chain();
  auto graph = f.Make();
  f.Launch(*graph, {1});
  graph.reset();
  f.description = {};
  f.library.reset();
  gate->store(1, std::memory_order_release);
  f.session.Finish();
  CHECK(f.host()[1] == 78);
}

TEST_CASE("Text of a graph's kernels goes to the library's owner") {
  Device* gpu = Gpu();
  if (gpu == nullptr) return;
  Fixture f(*gpu);
  f.library = f.session.Load(kPrintingPtx);
  for (uint32_t value = 1; value <= 2; ++value) {
    KernelStep step;
    step.kernel = f.kernel("say");
    step.shape = Shape(1, 1);
    step.parameters = Bytes(Parameters().Add(value));
    f.Add({step});
  }
  f.Chain();
  const auto graph = f.Make();
  f.Launch(*graph);
  f.Launch(*graph);
  f.session.Finish();
  gpu->FlushOutput(*f.session.space);
  CHECK(f.session.output->printed() == "value 1\nvalue 2\nvalue 1\nvalue 2\n");
}

TEST_CASE("A session's graph moves between partitions and streams, and its launches keep order") {
  Device* gpu = Gpu();
  if (gpu == nullptr) return;
  const std::unique_ptr<Partition> partition = SmallPartition(*gpu);
  if (partition == nullptr) return;
  Fixture f(*gpu);
  QueuePool pool(*gpu);
  std::optional<Executor> executor(std::in_place);
  Parking parking(*executor);
  auto coroutine = *GpuCoroutine::Create(*gpu, *f.session.space, pool, parking);
  for (StreamId stream = 1; stream <= 2; ++stream) {
    REQUIRE_OK(coroutine->CreateStream(stream, 1, {.non_blocking = true}));
  }
  f.Add(f.Iota(kBase, 0));
  GraphPlace refused;
  auto graph = *GpuGraph::Create(*coroutine, f.description, &refused);
  Partition* const places[] = {&gpu->whole(), partition.get()};
  for (uint32_t i = 1; i <= 300; ++i) {
    coroutine->Bind(*places[i / 3 % 2]);
    REQUIRE_OK(graph->Replace({0, 0}, f.Iota(kBase, i)));
    REQUIRE_OK(graph->Launch(1 + i % 2, {}));
  }
  REQUIRE_OK(
      coroutine->Copy(1, std::get<CopyRequest>(f.Copy(f.session.host_address(), kBase, 128).step)));
  REQUIRE_OK(coroutine->Signal(1, f.session.fence, ++f.session.last_value));
  REQUIRE(Session::Reached(*f.session.fence, f.session.last_value));
  CHECK(f.host()[31] == 300 + 31);
  graph.reset();
  executor.reset();
  f.session.queue.reset();
  f.description = {};
  f.library.reset();
  f.session.space.reset();  // destroyed before the coroutine
}

TEST_CASE("Durations of graphs, and those of the driver alone", "[.speed]") {
  Device* gpu = Gpu();
  if (gpu == nullptr) return;
  Fixture f(*gpu);
  constexpr uint32_t kNodes = 100;
  for (uint32_t i = 0; i < kNodes; ++i) f.Add(f.Iota(kBase, i));
  f.Chain();
  std::unique_ptr<Graph> graph;
  WARN("instantiate " << kNodes << " nodes: " << MicrosecondsEach(1, [&] { graph = f.Make(); })
                      << " us");
  bool ok = true;
  const auto report = [&](const char* what, int count, const std::function<void()>& function) {
    function();
    f.session.Finish();
    WARN(what << ": " << MicrosecondsEach(count, function) << " us");
    f.session.Finish();
  };
  report("launch", 200,
         [&] { ok &= f.session.queue->LaunchGraph(*f.session.space, *graph, {}).ok(); });
  report("launch + fence seen", 200, [&] {
    f.Launch(*graph);
    f.session.Finish();
  });
  uint32_t value = 0;
  report("change of a kernel's parameters", 1000, [&] {
    ok &= graph->Replace({0, 0}, f.Iota(kBase, ++value)).ok();
  });
  f.description.graphs.assign(1, {});
  for (uint32_t i = 0; i < 8; ++i) f.Add({SignalStep{f.session.fence + 8 + i}});
  f.Chain();
  const auto signals = f.Make();
  uint64_t round = 0;
  report("launch with 8 signals", 200, [&] {
    ++round;
    f.Launch(*signals, std::vector<uint64_t>(8, round));
  });
  CHECK(ok);

  // The same 100 nodes with the driver alone, on the same context.
  auto opened = cuda::OpenDriver("");
  REQUIRE_OK(opened.status());
  const cuda::DriverApi& api = **opened;
  CUlibrary library = nullptr;
  CUkernel kernel = nullptr;
  CUfunction function = nullptr;
  CUgraph native = nullptr;
  CUgraphExec executable = nullptr;
  CUstream stream = nullptr;
  REQUIRE(api.cuLibraryLoadData(&library, kPtx, nullptr, nullptr, 0, nullptr, nullptr, 0) == 0);
  REQUIRE(api.cuLibraryGetKernel(&kernel, library, "iota") == 0);
  REQUIRE(api.cuKernelGetFunction(&function, kernel) == 0);
  REQUIRE(api.cuGraphCreate(&native, 0) == 0);
  REQUIRE(api.cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, 0) == 0);
  DeviceAddress out = kBase;
  uint32_t first = 0, count = kCount;
  void* parameters[] = {&out, &first, &count};
  CUgraphNode last = nullptr;
  for (uint32_t i = 0; i < kNodes; ++i) {
    CUgraphNodeParams node{};
    node.type = CU_GRAPH_NODE_TYPE_KERNEL;
    node.kernel.func = function;
    node.kernel.gridDimX = kCount / 128;
    node.kernel.blockDimX = 128;
    node.kernel.gridDimY = node.kernel.gridDimZ = node.kernel.blockDimY = node.kernel.blockDimZ = 1;
    node.kernel.kernelParams = parameters;
    REQUIRE(api.cuGraphAddNode(&last, native, &last, nullptr, i == 0 ? 0 : 1, &node) == 0);
  }
  CUDA_GRAPH_INSTANTIATE_PARAMS params{};
  REQUIRE(api.cuGraphInstantiateWithParams(&executable, native, &params) == 0);
  const auto launch = [&] { ok &= api.cuGraphLaunch(executable, stream) == 0; };
  launch();
  api.cuStreamSynchronize(stream);
  WARN("native launch: " << MicrosecondsEach(200, launch) << " us");
  api.cuStreamSynchronize(stream);
  WARN("native launch + synchronize: " << MicrosecondsEach(200, [&] {
         launch();
         api.cuStreamSynchronize(stream);
       }) << " us");
  CHECK(ok);
  api.cuGraphExecDestroy(executable);
  api.cuGraphDestroy(native);
  api.cuStreamDestroy(stream);
  api.cuLibraryUnload(library);
}

}  // namespace
}  // namespace detshare
