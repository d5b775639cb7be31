// Graphs on the software GPU.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cstring>
#include <functional>
#include <random>
#include <thread>

#include "coroutine_runtime/device_graph.h"
#include "tests/server/backends/soft/soft_device_harness.h"

namespace detshare::soft {
namespace {

constexpr char kConditionalPtx[] = R"(
.version 8.0
.target sm_75
.address_size 64
.extern .func cudaGraphSetConditional(.param .b64 handle, .param .b32 value);

// *count += 1; sets the condition to *count < limit
.visible .entry count(.param .u64 count, .param .u32 limit, .param .u64 handle) {
  .reg .pred %p;
  .reg .u32 %r<4>;
  .reg .u64 %a<3>;
  ld.param.u64 %a0, [count];
  ld.param.u32 %r0, [limit];
  ld.param.u64 %a1, [handle];
  cvta.to.global.u64 %a0, %a0;
  ld.global.u32 %r1, [%a0];
  add.u32 %r1, %r1, 1;
  st.global.u32 [%a0], %r1;
  setp.lt.u32 %p, %r1, %r0;
  selp.u32 %r2, 1, 0, %p;
  {
    .param .b64 h;
    .param .b32 v;
    st.param.b64 [h], %a1;
    st.param.b32 [v], %r2;
    call.uni cudaGraphSetConditional, (h, v);
  }
  ret;
}

// sets the condition to *value
.visible .entry choose(.param .u64 value, .param .u64 handle) {
  .reg .u32 %r<2>;
  .reg .u64 %a<3>;
  ld.param.u64 %a0, [value];
  ld.param.u64 %a1, [handle];
  cvta.to.global.u64 %a0, %a0;
  ld.global.u32 %r0, [%a0];
  {
    .param .b64 h;
    .param .b32 v;
    st.param.b64 [h], %a1;
    st.param.b32 [v], %r0;
    call.uni cudaGraphSetConditional, (h, v);
  }
  ret;
}
)";

struct SoftGraphFixture {
  TestDevice device;
  TestSession session{device, 0};
  std::unique_ptr<Library> conditional = session.Load(kConditionalPtx);
  GraphDescription description;

  SoftGraphFixture() { description.graphs.resize(1); }

  // For kernels of both libraries, which outlive the graphs.
  GraphNode Node(Kernel& kernel, const std::vector<std::byte>& parameters, Dim3 grid = {1},
                 Dim3 block = {1}) {
    KernelStep step;
    step.kernel = std::shared_ptr<Kernel>(std::shared_ptr<void>(), &kernel);
    step.shape.grid = grid;
    step.shape.block = block;
    step.parameters = parameters;
    return {step};
  }
  GraphNode Store(int* out, int value) {
    return Node(session.kernel("Store"), Parameters(out, value));
  }
  GraphNode Conditional(std::string_view name, const std::vector<std::byte>& parameters) {
    return Node(*Require(conditional->GetKernel(name)), parameters);
  }
  uint32_t Add(GraphNode node, uint32_t graph = 0) {
    description.graphs[graph].nodes.push_back(std::move(node));
    return static_cast<uint32_t>(description.graphs[graph].nodes.size() - 1);
  }
  void Edge(uint32_t from, uint32_t to, uint32_t graph = 0) {
    description.graphs[graph].edges.push_back({from, to});
  }
  CopyRequest Copy(const int* from, int* to, uint64_t bytes = 4) {
    CopyRequest copy;
    copy.source = reinterpret_cast<uint64_t>(from);
    copy.destination = reinterpret_cast<uint64_t>(to);
    copy.width = bytes;
    return copy;
  }
  FillRequest Fill(int* at, uint32_t value, uint64_t count = 1) {
    FillRequest fill;
    fill.address = reinterpret_cast<uint64_t>(at);
    fill.value = value;
    fill.width = count;
    fill.element_bytes = 4;
    return fill;
  }
  std::unique_ptr<Graph> Make(Partition* partition = nullptr) {
    GraphPlace refused;
    return Require(device->InstantiateGraph(session.space(),
                                            partition != nullptr ? *partition : device->whole(),
                                            description, &refused));
  }
  void Launch(Graph& graph, std::vector<uint64_t> values = {}) {
    Require(session.queue().LaunchGraph(session.space(), graph, values));
  }
};

TEST_CASE_METHOD(SoftGraphFixture,
                 "a graph respects its edges, and other nodes run at the same time") {
  // A diamond. One side waits for the other through a fence.
  int* data = session.Allocate<int>(8);
  std::atomic<uint64_t>* fences = nullptr;
  const uint64_t bytes = 4096;
  alignas(4096) static std::byte page[4096];
  Require(session.space().RegisterHost(page, bytes));
  fences = reinterpret_cast<std::atomic<uint64_t>*>(page);
  const uint32_t top = Add(Store(data, 1));
  const uint32_t waits = Add({WaitStep{&fences[0]}});  // for the other side's signal
  const uint32_t left = Add({Copy(data, data + 1)});
  const uint32_t fill = Add({Fill(data + 2, 5)});
  const uint32_t signals = Add({SignalStep{&fences[0]}});
  const uint32_t bottom = Add({Copy(data + 1, data + 3, 8)});
  Edge(top, waits);
  Edge(top, fill);
  Edge(waits, left);
  Edge(fill, signals);
  Edge(left, bottom);
  Edge(signals, bottom);
  std::sort(description.graphs[0].edges.begin(), description.graphs[0].edges.end());
  const auto graph = Make();
  for (uint64_t round = 1; round <= 5; ++round) {
    data[0] = data[1] = data[2] = data[3] = data[4] = 0;
    Launch(*graph, {round, round});
    Require(session.Finish());
    CHECK(data[1] == 1);
    CHECK(data[3] == 1);
    CHECK(data[4] == 5);
    CHECK(fences[0].load() == round);
  }
  session.space().UnregisterHost(page).IgnoreError();
}

TEST_CASE_METHOD(SoftGraphFixture,
                 "random graphs compute the same as their nodes one after the other") {
  constexpr int kCells = 12;
  for (unsigned seed = 0; seed < 25; ++seed) {
    INFO("seed " << seed);
    std::mt19937 random(seed);
    description.graphs.assign(1, {});
    int* cells = session.Allocate<int>(kCells);
    std::vector<int> model(kCells, 0);
    // An edge orders two nodes that access the same cell if at least one of them writes it.
    std::vector<std::vector<std::pair<uint32_t, bool>>> users(kCells);
    for (uint32_t node = 0; node < 30; ++node) {
      const int to = static_cast<int>(random() % kCells);
      const int from = static_cast<int>(random() % kCells);
      std::vector<std::pair<int, bool>> touched = {{to, true}};
      switch (random() % 3) {
        case 0:
          Add(Store(cells + to, static_cast<int>(node)));
          model[to] = static_cast<int>(node);
          break;
        case 1:
          Add({Fill(cells + to, 100 + node)});
          model[to] = static_cast<int>(100 + node);
          break;
        default:
          if (from == to) {
            Add({});
            touched.clear();
            break;
          }
          Add({Copy(cells + from, cells + to)});
          model[to] = model[from];
          touched.emplace_back(from, false);
      }
      std::vector<uint32_t> before;
      for (const auto& [cell, writes] : touched) {
        for (const auto& [other, wrote] : users[cell]) {
          if (writes || wrote) before.push_back(other);
        }
        users[cell].emplace_back(node, writes);
      }
      std::sort(before.begin(), before.end());
      before.erase(std::unique(before.begin(), before.end()), before.end());
      for (const uint32_t other : before) Edge(other, node);
    }
    std::sort(description.graphs[0].edges.begin(), description.graphs[0].edges.end());
    const auto graph = Make();
    Launch(*graph);
    Require(session.Finish());
    REQUIRE(std::equal(model.begin(), model.end(), cells));
  }
}

TEST_CASE_METHOD(SoftGraphFixture, "launches of a graph on two queues follow each other") {
  int* flag = session.Allocate<int>(2);
  Add(Node(session.kernel("WaitForFlag"), Parameters(flag)));
  Add(Store(flag, 0));
  Edge(0, 1);
  const auto graph = Make();
  const std::unique_ptr<Queue> other = Require(device->whole().CreateQueue(0));
  Launch(*graph);
  Require(other->LaunchGraph(session.space(), *graph, {}));
  std::atomic<uint64_t> fence{0};
  Require(other->WriteFence(session.space(), &fence, 1));
  // The first launch clears the flag. The second launch waits for the flag again.
  Set(flag, 1);
  Require(session.Finish());
  CHECK(fence.load() == 0);
  Set(flag, 1);
  while (fence.load(std::memory_order_acquire) == 0) std::this_thread::yield();
  CHECK(*flag == 0);
}

TEST_CASE_METHOD(SoftGraphFixture, "branches overlap in virtual time and chains do not") {
  float* out = session.Allocate<float>(64);
  const auto measure = [&](bool chain) {
    description.graphs.assign(1, {});
    for (uint32_t i = 0; i < 4; ++i) {
      Add(Node(session.kernel("Work"), Parameters(out + 8 * i, 2000), {1}, {8}));
      if (chain && i > 0) Edge(i - 1, i);
    }
    const auto graph = Make();
    const auto start = Require(device->CreateMarker(true));
    const auto end = Require(device->CreateMarker(true));
    Require(session.queue().Record(*start));
    Launch(*graph);
    Require(session.queue().Record(*end));
    Require(session.Finish());
    return Require(device->ElapsedMilliseconds(*start, *end));
  };
  const float parallel = measure(false), serial = measure(true);
  CHECK(serial > 3.5f * parallel);
  CHECK(serial < 4.5f * parallel);
}

TEST_CASE_METHOD(SoftGraphFixture,
                 "all nodes of a graph run in the time-slice group of its launch") {
  const auto urgent = Require(device->urgent()->CreateQueue(0));
  const uint64_t handle = Require(device->CreateGraphCondition(session.space(), 1, true, 0));
  float* out = session.Allocate<float>(1 << 20);
  unsigned* count = session.Allocate<unsigned>(1);
  for (uint32_t i = 0; i < 3; ++i)
    Add(Node(session.kernel("Work"), Parameters(out + 8 * i, 2000 + i), {1}, {8}));
  Add({ConditionalStep{handle, ConditionalStep::Type::kWhile, 1, 1}});
  Edge(0, 3);
  description.graphs.resize(2);
  Add(Conditional("count", Parameters(count, 100u, handle)), 1);
  const auto graph = Make(device->urgent());
  const auto time = [&](Queue& queue, const std::function<void()>& work) {
    const auto start = Require(device->CreateMarker(true));
    const auto end = Require(device->CreateMarker(true));
    Require(queue.Record(*start));
    work();
    Require(queue.Record(*end));
    while (!Require(device->Reached(*end))) std::this_thread::yield();
    return Require(device->ElapsedMilliseconds(*start, *end));
  };
  const auto kernel = [&] {
    Require(session.Launch("Work", {1000}, {256}, Parameters(out + 64, 20)));
  };
  const float alone = time(session.queue(), kernel);
  float turn = 0;
  const float stopped = time(session.queue(), [&] {
    kernel();
    turn = time(*urgent, [&] { Require(urgent->LaunchGraph(session.space(), *graph, {})); });
  });
  CHECK(turn > 0.390f);  // the switch and 100 launches
  CHECK(stopped == Approx(alone + turn - 0.0015 + 0.050).epsilon(1e-5));
}

TEST_CASE_METHOD(SoftGraphFixture, "nodes run on the SMs of the partition") {
  const std::unique_ptr<Partition> partition = Require(device->CreatePartition(16, 8));
  unsigned* sms = session.Allocate<unsigned>(64);
  Add(Node(session.kernel("SmIds"), Parameters(sms), {64}, {32}));
  const auto graph = Make(partition.get());
  Launch(*graph);
  Require(session.Finish());
  for (int i = 0; i < 64; ++i) {
    CHECK(sms[i] >= 16);
    CHECK(sms[i] < 24);
  }
}

TEST_CASE_METHOD(SoftGraphFixture, "instantiating a graph returns the errors of its nodes") {
  int* data = session.Allocate<int>(4);
  const auto error_of = [&](GraphNode node) {
    description.graphs.assign(1, {});
    Add({});
    Add(std::move(node));
    GraphPlace refused;
    const auto graph =
        device->InstantiateGraph(session.space(), device->whole(), description, &refused);
    if (!graph.ok()) CHECK(refused.node == 1);
    return CudaResultOf(graph.status());
  };
  CHECK(error_of(Store(data, 1)) == kCudaSuccess);
  GraphNode wide = Store(data, 1);
  std::get<KernelStep>(wide.step).shape.block.x = 2048;
  CHECK(error_of(wide) == kCudaErrorInvalidValue);
  GraphNode cooperative = Store(data, 1);
  std::get<KernelStep>(cooperative.step).shape.cooperative = true;
  std::get<KernelStep>(cooperative.step).shape.grid.x = 1 << 20;
  CHECK(error_of(cooperative) == kCudaErrorCooperativeLaunchTooLarge);
  CHECK(error_of({Copy(data, data + (1 << 20))}) == kCudaErrorInvalidValue);
  CHECK(error_of({Fill(data, 0, 1 << 30)}) == kCudaErrorInvalidValue);
  CHECK(error_of({ConditionalStep{12345, ConditionalStep::Type::kIf, 1, 1}}) ==
        kCudaErrorInvalidValue);
}

TEST_CASE_METHOD(SoftGraphFixture, "changes of a graph hold for later launches") {
  int* data = session.Allocate<int>(4);
  Add(Store(data, 1));
  Add({Fill(data + 1, 2)});
  const auto graph = Make();
  Launch(*graph);
  Require(graph->Replace({0, 0}, Store(data + 2, 7)));
  GraphNode disabled = {Fill(data + 1, 9), false};
  Require(graph->Replace({0, 1}, disabled));
  Launch(*graph);
  Require(session.Finish());
  CHECK(data[0] == 1);
  CHECK(data[1] == 2);
  CHECK(data[2] == 7);
  GraphNode wide = Store(data, 1);
  std::get<KernelStep>(wide.step).shape.block.x = 2048;
  CHECK_FALSE(graph->Replace({0, 0}, wide).ok());
  data[2] = 0;
  Launch(*graph);
  Require(session.Finish());
  CHECK(data[2] == 7);
}

TEST_CASE_METHOD(SoftGraphFixture, "a graph waits for the records that events have at the launch") {
  int* flag = session.Allocate<int>(1);
  int* data = session.Allocate<int>(1);
  const auto recorded = std::shared_ptr<Marker>(Require(device->CreateMarker(false)));
  const auto awaited = std::shared_ptr<Marker>(Require(device->CreateMarker(false)));
  bool note = false;
  Add({WaitMarkerStep{awaited}});
  Add(Store(data, 3));
  Add({RecordStep{recorded, &note}});
  Edge(0, 1);
  Edge(1, 2);
  const auto graph = Make();
  Launch(*graph);  // no record yet, so no wait
  Require(session.Finish());
  CHECK(*data == 3);
  *data = 0;
  const std::unique_ptr<Queue> other = Require(device->whole().CreateQueue(0));
  LaunchShape one;
  Require(other->Launch(session.space(), session.kernel("WaitForFlag"), one, Parameters(flag)));
  Require(other->Record(*awaited));
  Launch(*graph);
  const std::unique_ptr<Queue> third = Require(device->whole().CreateQueue(0));
  Require(third->Wait(*recorded));
  std::atomic<uint64_t> fence{0};
  Require(third->WriteFence(session.space(), &fence, 1));
  CHECK(fence.load() == 0);
  CHECK(Look(data) == 0);
  Set(flag, 1);
  while (fence.load(std::memory_order_acquire) == 0) std::this_thread::yield();
  CHECK(*data == 3);
}

TEST_CASE_METHOD(SoftGraphFixture,
                 "a fault in a graph is its session's alone, and its launches end") {
  Add(Node(session.kernel("Trap"), {}));
  Add({Fill(session.Allocate<int>(1), 1)});
  Edge(0, 1);
  const auto graph = Make();
  TestSession neighbour(device, 1);
  Launch(*graph);
  CHECK(CudaResultOf(session.Finish()) == kCudaErrorLaunchFailed);
  int* data = neighbour.Allocate<int>(1);
  Require(neighbour.Launch("Store", {1}, {1}, Parameters(data, 4)));
  Require(neighbour.Finish());
  CHECK(*data == 4);
}

TEST_CASE_METHOD(SoftGraphFixture, "a graph may be destroyed before its launches end") {
  int* flag = session.Allocate<int>(1);
  int* data = session.Allocate<int>(1);
  Add(Node(session.kernel("WaitForFlag"), Parameters(flag)));
  Add(Store(data, 8));
  Edge(0, 1);
  auto graph = Make();
  Launch(*graph);
  graph.reset();
  Set(flag, 1);
  Require(session.Finish());
  CHECK(*data == 8);
}

TEST_CASE_METHOD(SoftGraphFixture, "operations on memory write words and wait for them") {
  uint64_t* words = session.Allocate<uint64_t>(2);
  MemoryOpsStep step;
  step.operations = {{MemoryOp::kWait64, MemoryOp::kEqual, reinterpret_cast<uint64_t>(words), 3},
                     {MemoryOp::kWrite32, 0, reinterpret_cast<uint64_t>(words + 1), 9}};
  Add({step});
  const auto graph = Make();
  Launch(*graph);
  CHECK(Look(words + 1) == 0);
  Set(words, uint64_t{3});
  Require(session.Finish());
  CHECK(words[1] == 9);
}

// ---- conditional nodes

TEST_CASE_METHOD(SoftGraphFixture, "a while loop runs its body until a kernel ends it") {
  const uint64_t handle =
      Require(device->CreateGraphCondition(session.space(), 1, /*assign_default=*/true, 0));
  unsigned* count = session.Allocate<unsigned>(1);
  int* after = session.Allocate<int>(1);
  Add({ConditionalStep{handle, ConditionalStep::Type::kWhile, 1, 1}});
  Add({Copy(reinterpret_cast<int*>(count), after)});
  Edge(0, 1);
  description.graphs.resize(2);
  Add(Conditional("count", Parameters(count, 10u, handle)), 1);
  const auto graph = Make();
  Launch(*graph);
  Require(session.Finish());
  CHECK(*after == 10);
  // With the default value each launch runs the body at least once.
  Launch(*graph);
  Launch(*graph);
  Require(session.Finish());
  CHECK(*after == 12);
}

TEST_CASE_METHOD(SoftGraphFixture,
                 "a graph keeps the handle that has ended, and no other gets it") {
  const uint64_t handle =
      Require(device->CreateGraphCondition(session.space(), 1, /*assign_default=*/true, 0));
  unsigned* count = session.Allocate<unsigned>(1);
  Add({ConditionalStep{handle, ConditionalStep::Type::kWhile, 1, 1}});
  description.graphs.resize(2);
  Add(Conditional("count", Parameters(count, 10u, handle)), 1);
  auto graph = Make();
  device->EndGraphCondition(session.space(), handle);
  device->EndGraphCondition(session.space(), handle);
  Launch(*graph);
  graph.reset();
  Require(session.Finish());
  CHECK(*count == 10);
  CHECK(Require(device->CreateGraphCondition(session.space(), 1, true, 0)) != handle);
  CHECK(CudaResultOf(device->CreateGraphCondition(session.space(), 1, true, handle).status()) ==
        kCudaErrorInvalidValue);
  GraphPlace refused;
  CHECK(
      CudaResultOf(device->InstantiateGraph(session.space(), device->whole(), description, &refused)
                       .status()) == kCudaErrorInvalidValue);
}

TEST_CASE_METHOD(SoftGraphFixture, "if, else and switch select a body, also when they are nested") {
  const auto condition = [&] {
    return Require(device->CreateGraphCondition(session.space(), 0, false, 0));
  };
  const uint64_t outer = condition(), inner = condition();
  CHECK(CudaResultOf(device->CreateGraphCondition(session.space(), 0, false, 12345).status()) ==
        kCudaErrorInvalidValue);
  unsigned* value = session.Allocate<unsigned>(2);
  int* out = session.Allocate<int>(4);
  // if (value[0]) switch (value[1]) { case 0: out[0] = 1; case 1: out[1] = 1; } else out[2] = 1;
  Add(Conditional("choose", Parameters(value, outer)));
  Add({ConditionalStep{outer, ConditionalStep::Type::kIf, 1, 2}});
  Add(Store(out + 3, 1));
  Edge(0, 1);
  Edge(1, 2);
  description.graphs.resize(5);
  Add(Conditional("choose", Parameters(value + 1, inner)), 1);
  Add({ConditionalStep{inner, ConditionalStep::Type::kSwitch, 3, 2}}, 1);
  Edge(0, 1, 1);
  Add(Store(out + 2, 1), 2);
  Add(Store(out, 1), 3);
  Add(Store(out + 1, 1), 4);
  const auto graph = Make();
  const auto run = [&](unsigned first, unsigned second) {
    value[0] = first;
    value[1] = second;
    std::fill(out, out + 4, 0);
    Launch(*graph);
    Require(session.Finish());
    CHECK(out[3] == 1);
    return std::vector<int>(out, out + 3);
  };
  CHECK(run(1, 0) == std::vector<int>{1, 0, 0});
  CHECK(run(1, 1) == std::vector<int>{0, 1, 0});
  CHECK(run(1, 2) == std::vector<int>{0, 0, 0});
  CHECK(run(0, 0) == std::vector<int>{0, 0, 1});
}

TEST_CASE_METHOD(SoftGraphFixture, "a loop takes the virtual time of its turns") {
  const uint64_t handle = Require(device->CreateGraphCondition(session.space(), 1, true, 0));
  unsigned* count = session.Allocate<unsigned>(1);
  Add({ConditionalStep{handle, ConditionalStep::Type::kWhile, 1, 1}});
  description.graphs.resize(2);
  Add(Conditional("count", Parameters(count, 100u, handle)), 1);
  const auto graph = Make();
  const auto start = Require(device->CreateMarker(true));
  const auto end = Require(device->CreateMarker(true));
  Require(session.queue().Record(*start));
  Launch(*graph);
  Require(session.queue().Record(*end));
  Require(session.Finish());
  CHECK(Require(device->ElapsedMilliseconds(*start, *end)) > 0.2f);  // 100 launches of 2 us
}

TEST_CASE_METHOD(SoftGraphFixture,
                 "an endless loop does not starve other work and ends with its session") {
  const uint64_t handle = Require(device->CreateGraphCondition(session.space(), 1, true, 0));
  Add({ConditionalStep{handle, ConditionalStep::Type::kWhile, 1, 1}});
  description.graphs.resize(2);  // an empty body
  const auto graph = Make();
  Launch(*graph);
  {
    TestSession neighbour(device, 1);
    int* data = neighbour.Allocate<int>(1);
    Require(neighbour.Launch("Store", {1}, {1}, Parameters(data, 4)));
    Require(neighbour.Finish());
    CHECK(*data == 4);
  }
  const auto marker = Require(device->CreateMarker(false));
  Require(session.queue().Record(*marker));
  session.space().Abandon();
  TestSession next(device, 2);
  Require(next.queue().Wait(*marker));
  Require(next.Finish());
}

TEST_CASE_METHOD(SoftGraphFixture, "an unknown handle is a fault") {
  unsigned* value = session.Allocate<unsigned>(1);
  Kernel& kernel = *Require(conditional->GetKernel("choose"));
  Require(session.queue().Launch(session.space(), kernel, {}, Parameters(value, uint64_t{77})));
  CHECK(CudaResultOf(session.Finish()) == kCudaErrorIllegalAddress);
}

}  // namespace
}  // namespace detshare::soft
