// Executable graphs that clients ask for, both valid and invalid ones.
#include "proto/wire/graph.h"

#include <catch2/catch.hpp>
#include <cstring>
#include <random>
#include <utility>

#include "coroutine_runtime/status_cuda.h"
#include "proto/wire/array.h"
#include "proto/wire/context.h"
#include "proto/wire/event.h"
#include "proto/wire/stream_memory_op.h"
#include "tests/server/daemon_fixture.h"
#include "tests/server/instant_device.h"
#include "tests/server/instant_images.h"
#include "tests/server/session/graph_payload_builder.h"

namespace detshare {
namespace {

constexpr uint32_t kUnsignedBytes = 1;  // CU_AD_FORMAT_UNSIGNED_INT8

constexpr int kUpdateFailure = 910;  // CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE

struct Fixture {
  explicit Fixture(const std::function<void(Daemon::Options&)>& change = {})
      : daemon(change, 1), neighbour(daemon.socket()), client(daemon.socket()) {
    daemon.devices[0]->image_device = &images;
    REQUIRE(neighbour.Open());
    neighbour.CreateStream(1);
    secret = neighbour.Allocate(4096);
    REQUIRE(client.Open());
    client.CreateStream(1);
    memory = client.Allocate(4096);
    library = client.Load();
    add = client.GetKernel(library, "add");
    REQUIRE(add != 0);
  }
  RingTestClient& ring() { return *client.ring; }
  uint64_t word(int index) { return SumAt(memory + 8 * static_cast<uint64_t>(index)); }

  // *address += value
  std::string Add(uint64_t address, uint64_t value, KernelId kernel = 0) {
    return GraphBuilder::Bytes(client.LaunchOf(kernel == 0 ? add : kernel, 0)) +
           GraphBuilder::Bytes(address) + GraphBuilder::Bytes(value);
  }
  wire::cuMemcpy3DAsync_v2 Copy(uint64_t to, uint64_t from, uint64_t bytes) {
    wire::cuMemcpy3DAsync_v2 copy{};
    copy.destination.location.address = to;
    copy.source.location.address = from;
    copy.width = bytes;
    copy.height = copy.depth = 1;
    copy.signal.index = kNoFence;
    return copy;
  }
  int Instantiate(GraphId id, const std::string& payload, uint32_t graphs = 1,
                  wire::cuGraphInstantiateWithParams_Reply* body = nullptr) {
    auto [status, reply] =
        client.Call(Op::cuGraphInstantiateWithParams,
                    wire::cuGraphInstantiateWithParams{id, 1, 0, graphs}, payload);
    REQUIRE(status.ok());
    wire::cuGraphInstantiateWithParams_Reply got{};
    REQUIRE(reply.body().size() == sizeof(got));
    std::memcpy(&got, reply.body().data(), sizeof(got));
    if (body != nullptr) *body = got;
    return reply.result();
  }
  int Update(GraphId id, const std::string& payload, wire::cuGraphExecUpdate_v2_Reply* body) {
    auto [status, reply] =
        client.Call(Op::cuGraphExecUpdate_v2, wire::cuGraphExecUpdate_v2{id, 1}, payload);
    REQUIRE(reply.body().size() == sizeof(*body));
    std::memcpy(body, reply.body().data(), sizeof(*body));
    return reply.result();
  }
  int Launch(GraphId id, const std::vector<uint64_t>& values = {}, StreamId stream = 1) {
    return ring().Call(
        Op::cuGraphLaunch, wire::cuGraphLaunch{id, stream, static_cast<uint32_t>(values.size()), 0},
        {reinterpret_cast<const uint8_t*>(values.data()), values.size() * sizeof(uint64_t)});
  }
  int Replace(GraphId id, uint32_t index, uint32_t node, const std::string& payload) {
    return ring().Call(Op::cuGraphExecNodeSetParams,
                       wire::cuGraphExecNodeSetParams{id, index, node, 0},
                       {reinterpret_cast<const uint8_t*>(payload.data()), payload.size()});
  }
  void CheckUnharmed() {
    CHECK(client.Synchronize(1) == 0);
    CHECK(ring().header().sticky_error.load() == 0);
    neighbour.ring->Send(Op::cuMemsetD2D32Async,
                         wire::cuMemsetD2D32Async{secret, 0, 4096, 1, 9, 1, 1, 0});
    CHECK(neighbour.Synchronize(1) == 0);
    CHECK(*reinterpret_cast<uint8_t*>(secret + 4095) == 9);
  }

  InstantImages images;  // outlives the daemon
  TestDaemon daemon;
  TestClient neighbour, client;
  uint64_t secret = 0, memory = 0;
  LibraryId library = 0;
  KernelId add = 0;
};

// fill word 0 with 0x07..., add 3 to word 1, copy word 0 to word 2, signal
std::string AllKinds(Fixture& f) {
  GraphBuilder builder;
  builder.NodeOf(wire::kNodeFill, wire::cuMemsetD2D32Async{f.memory, 0, 8, 1, 7, 1, 0, 0});
  builder.Node(wire::kNodeKernel, f.Add(f.memory + 8, 3));
  builder.NodeOf(wire::kNodeCopy, f.Copy(f.memory + 16, f.memory, 8));
  builder.NodeOf(wire::kNodeEventRecord, wire::GraphEvent{5, 0});
  builder.NodeOf(wire::kNodeEventWait, wire::GraphEvent{5, 0});
  builder.Node(wire::kNodeEmpty);
  builder.NodeOf(wire::kNodeSignal, wire::GraphFence{0, 0});
  for (uint32_t i = 1; i < builder.node_count; ++i) builder.Edge(i - 1, i);
  return builder.Build();
}

TEST_CASE("A graph does what its nodes say at each launch") {
  Fixture f;
  f.ring().Send(Op::cuEventCreate, wire::cuEventCreate{5, 1, 2, 0});
  wire::cuGraphInstantiateWithParams_Reply body{};
  REQUIRE(f.Instantiate(9, AllKinds(f), 1, &body) == 0);
  CHECK(body.error_graph == UINT32_MAX);
  CHECK(f.ring().Call(Op::cuGraphUpload, wire::cuGraphUpload{9, 1}) == 0);
  for (uint64_t round = 1; round <= 3; ++round) REQUIRE(f.Launch(9, {round}) == 0);
  CHECK(f.word(0) == 0x0707070707070707);
  CHECK(f.word(1) == 9);
  CHECK(f.word(2) == 0x0707070707070707);
  CHECK(f.ring().fence(0).load() == 3);
  CHECK(f.Instantiate(9, AllKinds(f)) == kCudaErrorInvalidValue);  // the id is taken
  CHECK(f.ring().Call(Op::cuGraphExecDestroy, wire::cuGraphExecDestroy{9, 0}) == 0);
  CHECK(f.Launch(9, {4}) == kCudaErrorInvalidHandle);
  CHECK(f.Instantiate(9, AllKinds(f)) == 0);
  f.CheckUnharmed();
}

TEST_CASE("Nodes can be changed, disabled, and updated all together") {
  Fixture f;
  GraphBuilder builder;
  builder.Node(wire::kNodeKernel, f.Add(f.memory, 1));
  builder.Node(wire::kNodeKernel, f.Add(f.memory + 8, 1));
  REQUIRE(f.Instantiate(1, builder.Build()) == 0);
  REQUIRE(f.Replace(1, 0, 1, GraphBuilder::OneNode(wire::kNodeKernel, f.Add(f.memory + 8, 10))) ==
          0);
  const auto enable = [&](uint32_t node, uint32_t enabled) {
    return f.ring().Call(Op::cuGraphNodeSetEnabled,
                         wire::cuGraphNodeSetEnabled{1, 0, node, enabled});
  };
  REQUIRE(enable(0, 0) == 0);
  REQUIRE(f.Launch(1) == 0);
  CHECK(f.word(0) == 0);
  CHECK(f.word(1) == 10);
  REQUIRE(enable(0, 1) == 0);
  CHECK(enable(0, 2) == kCudaErrorInvalidValue);
  CHECK(enable(2, 0) == kCudaErrorInvalidValue);

  GraphBuilder next;
  next.Node(wire::kNodeKernel, f.Add(f.memory, 100));
  next.Node(wire::kNodeKernel, f.Add(f.memory + 8, 100));
  wire::cuGraphExecUpdate_v2_Reply body{};
  CHECK(f.Update(1, next.Build(), &body) == 0);
  CHECK(body.result == 0);
  REQUIRE(f.Launch(1) == 0);
  CHECK(f.word(0) == 100);
  CHECK(f.word(1) == 110);

  next.Edge(0, 1);
  CHECK(f.Update(1, next.Build(), &body) == kUpdateFailure);
  CHECK(body.result == 2);  // CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED
  GraphBuilder kinds;
  kinds.Node(wire::kNodeKernel, f.Add(f.memory, 100));
  kinds.Node(wire::kNodeEmpty);
  CHECK(f.Update(1, kinds.Build(), &body) == kUpdateFailure);
  CHECK(body.result == 3);  // CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED
  CHECK(body.error_node == 1);
  CHECK(f.Replace(1, 0, 0, GraphBuilder::OneNode(wire::kNodeEmpty, "")) == kCudaErrorInvalidValue);
  CHECK(f.Replace(1, 1, 0, GraphBuilder::OneNode(wire::kNodeKernel, f.Add(f.memory, 1))) ==
        kCudaErrorInvalidValue);
  CHECK(f.Replace(1, 0, UINT32_MAX, GraphBuilder::OneNode(wire::kNodeKernel, f.Add(f.memory, 1))) ==
        kCudaErrorInvalidValue);
  CHECK(f.Replace(1, 0, 0, "short") == kCudaErrorInvalidValue);
  f.CheckUnharmed();
}

TEST_CASE("Objects that nodes name must belong to the session") {
  Fixture f;
  const KernelId theirs = f.neighbour.GetKernel(f.neighbour.Load(), "fault");
  wire::cuGraphInstantiateWithParams_Reply body{};
  const auto one = [&](uint32_t kind, const std::string& contents) {
    GraphBuilder builder;
    builder.Node(wire::kNodeEmpty);
    builder.Node(kind, contents);
    const int result = f.Instantiate(1, builder.Build(), 1, &body);
    if (result != 0) CHECK(body.error_node == 1);
    if (result == 0) f.ring().Send(Op::cuGraphExecDestroy, wire::cuGraphExecDestroy{1, 0});
    return result;
  };
  const auto bytes = [](const auto& value) { return GraphBuilder::Bytes(value); };
  CHECK(one(wire::kNodeKernel, f.Add(f.memory, 1)) == 0);
  CHECK(one(wire::kNodeKernel, f.Add(f.memory, 1, theirs + 100)) == kCudaErrorInvalidHandle);
  CHECK(one(wire::kNodeKernel, bytes(f.client.LaunchOf(f.add, 0))) == kCudaErrorInvalidValue);
  wire::cuLaunchKernelEx strange = f.client.LaunchOf(f.add, 0);
  strange.flags = UINT32_MAX;
  CHECK(one(wire::kNodeKernel, bytes(strange) + std::string(16, 0)) == kCudaErrorInvalidValue);
  CHECK(one(wire::kNodeCopy, bytes(f.Copy(f.memory, f.memory + 64, 64))) == 0);
  CHECK(one(wire::kNodeCopy, bytes(f.Copy(f.memory, f.secret, 64))) == kCudaErrorInvalidValue);
  CHECK(one(wire::kNodeCopy, bytes(f.Copy(f.secret, f.memory, 64))) == kCudaErrorInvalidValue);
  CHECK(one(wire::kNodeCopy, bytes(f.Copy(f.memory, f.memory, UINT64_MAX))) ==
        kCudaErrorInvalidValue);
  for (const uint32_t space : {wire::kStaging, wire::kInline, wire::Space(77)}) {
    wire::cuMemcpy3DAsync_v2 copy = f.Copy(0, f.memory, 8);
    copy.destination.location.space = space;
    CHECK(one(wire::kNodeCopy, bytes(copy)) == kCudaErrorInvalidValue);
    copy = f.Copy(f.memory, 0, 8);
    copy.source.location.space = space;
    CHECK(one(wire::kNodeCopy, bytes(copy)) == kCudaErrorInvalidValue);
  }
  wire::cuMemcpy3DAsync_v2 array = f.Copy(f.memory, 0, 8);
  wire::cuArray3DCreate_v2_Reply made{}, foreign{};
  const wire::cuArray3DCreate_v2 square{16, 4, 0, kUnsignedBytes, 1, 0, 0};
  REQUIRE(f.ring().Call(Op::cuArray3DCreate_v2, square, &made) == 0);
  for (int i = 0; i < 3; ++i)
    REQUIRE(f.neighbour.ring->Call(Op::cuArray3DCreate_v2, square, &foreign) == 0);
  const auto in_array = [&](ArrayId id, uint32_t level, uint64_t x, uint32_t y) {
    array.source = wire::InArray({id, level, x, y, 0});
    return one(wire::kNodeCopy, bytes(array));
  };
  CHECK(in_array(made.array, 0, 8, 3) == 0);
  CHECK(in_array(made.array, 0, 9, 3) == kCudaErrorInvalidValue);
  CHECK(in_array(made.array, 0, 0, 4) == kCudaErrorInvalidValue);
  CHECK(in_array(made.array, 1, 0, 0) == kCudaErrorInvalidValue);
  CHECK(in_array(foreign.array, 0, 0, 0) == kCudaErrorInvalidHandle);
  CHECK(in_array(0, 0, 0, 0) == kCudaErrorInvalidHandle);
  // The graph keeps its array.
  array.source = wire::InArray({made.array, 0, 0, 0, 0});
  GraphBuilder keeper;
  keeper.Node(wire::kNodeCopy, bytes(array));
  REQUIRE(f.Instantiate(2, keeper.Build()) == 0);
  CHECK(f.ring().Call(Op::cuArrayDestroy, wire::cuArrayDestroy{made.array, 0}) == 0);
  CHECK(f.Launch(2) == 0);
  CHECK(in_array(made.array, 0, 8, 3) == kCudaErrorInvalidHandle);
  const auto fill = [&](wire::cuMemsetD2D32Async args) {
    return one(wire::kNodeFill, bytes(args));
  };
  CHECK(fill({f.memory, 0, 8, 1, 0, 4, 0, 0}) == 0);
  CHECK(fill({f.secret, 0, 8, 1, 0, 4, 0, 0}) == kCudaErrorInvalidValue);
  CHECK(fill({f.memory, 0, UINT64_MAX / 2, 1, 0, 4, 0, 0}) == kCudaErrorInvalidValue);
  CHECK(fill({f.memory, 0, 8, 1, 0, 3, 0, 0}) == kCudaErrorInvalidValue);
  const uint32_t fences = f.ring().header().fence_count;
  for (const uint32_t kind : {wire::kNodeSignal, wire::kNodeWait}) {
    CHECK(one(kind, bytes(wire::GraphFence{0, 0})) == 0);
    CHECK(one(kind, bytes(wire::GraphFence{fences, 0})) == kCudaErrorInvalidValue);
    CHECK(one(kind, bytes(wire::GraphFence{kNoFence, 0})) == kCudaErrorInvalidValue);
  }
  const auto memory_ops = [&](uint32_t count, uint64_t address, uint32_t operation) {
    return one(wire::kNodeMemoryOps, bytes(wire::GraphMemoryOps{count, 0}) +
                                         bytes(wire::StreamMemoryOp{operation, 0, address, 1, 0}));
  };
  CHECK(memory_ops(1, f.memory, 5) == 0);  // CU_STREAM_MEM_OP_WRITE_VALUE_64
  CHECK(memory_ops(1, f.memory + 4, 5) == kCudaErrorInvalidValue);
  CHECK(memory_ops(1, f.secret, 5) == kCudaErrorInvalidValue);
  CHECK(memory_ops(1, f.memory, 77) == kCudaErrorInvalidValue);
  CHECK(memory_ops(0, f.memory, 5) == kCudaErrorInvalidValue);
  CHECK(memory_ops(2, f.memory, 5) == kCudaErrorInvalidValue);
  CHECK(memory_ops(UINT32_MAX, f.memory, 5) == kCudaErrorInvalidValue);
  CHECK(one(wire::kNodeEventRecord, bytes(wire::GraphEvent{4, 0})) == kCudaErrorInvalidHandle);
  CHECK(one(wire::kNodeEventWait, bytes(wire::GraphEvent{4, 0})) == kCudaErrorInvalidHandle);
  f.CheckUnharmed();
}

TEST_CASE("Malformed graphs and launches are refused and do no harm") {
  Fixture f;
  CHECK(f.Instantiate(0, GraphBuilder().Build()) == kCudaErrorInvalidValue);
  CHECK(f.Instantiate(1, "") == kCudaErrorInvalidValue);
  CHECK(f.Instantiate(1, std::string(100, '\xFF')) == kCudaErrorOutOfMemory);
  CHECK(f.Instantiate(1, GraphBuilder().Build(), UINT32_MAX) == kCudaErrorOutOfMemory);
  auto [status, reply] =
      f.client.Call(Op::cuGraphInstantiateWithParams,
                    wire::cuGraphInstantiateWithParams{1, 1, 4, 1}, GraphBuilder().Build());
  CHECK(reply.result() == kCudaErrorNotSupported);  // kernels launch it

  GraphBuilder builder;
  builder.NodeOf(wire::kNodeSignal, wire::GraphFence{0, 0});
  REQUIRE(f.Instantiate(1, builder.Build()) == 0);
  CHECK(f.Launch(1) == kCudaErrorInvalidValue);
  CHECK(f.Launch(1, {1, 2}) == kCudaErrorInvalidValue);
  CHECK(f.Launch(1, {1}, 99) == kCudaErrorInvalidHandle);
  CHECK(f.Launch(2, {1}) == kCudaErrorInvalidHandle);
  CHECK(f.ring().Call(Op::cuGraphLaunch, wire::cuGraphLaunch{1, 1, UINT32_MAX, 0}) ==
        kCudaErrorInvalidValue);
  CHECK(f.ring().Call(Op::cuGraphUpload, wire::cuGraphUpload{2, 1}) == kCudaErrorInvalidHandle);
  CHECK(f.ring().Call(Op::cuGraphUpload, wire::cuGraphUpload{1, 99}) == kCudaErrorInvalidHandle);
  CHECK(f.ring().Call(Op::cuGraphExecDestroy, wire::cuGraphExecDestroy{2, 0}) ==
        kCudaErrorInvalidHandle);
  wire::cuGraphExecUpdate_v2_Reply body{};
  CHECK(f.Update(2, builder.Build(), &body) == kCudaErrorInvalidHandle);
  CHECK(f.Update(1, "", &body) == kCudaErrorInvalidValue);
  f.CheckUnharmed();
}

TEST_CASE("Conditional handles are counted, and a conditional node has the bodies of its type") {
  Fixture f([](Daemon::Options& options) { options.server.limits.graph_conditions = 2; });
  const auto create = [&](uint32_t flags) {
    auto [status, reply] = f.client.Call(Op::cuGraphConditionalHandleCreate,
                                         wire::cuGraphConditionalHandleCreate{1, 0, flags, 0, 0});
    return reply.result();
  };
  CHECK(create(2) == kCudaErrorInvalidValue);
  CHECK(create(0) == 0);
  CHECK(create(1) == 0);
  CHECK(create(0) == kCudaErrorOutOfMemory);
  const auto bodies = [&](uint32_t type, uint32_t count) {
    GraphBuilder builder;
    builder.NodeOf(wire::kNodeConditional, wire::GraphConditional{1, type, 1, count, 0});
    std::string payload = builder.Build();
    for (uint32_t i = 0; i < count; ++i) payload += GraphBuilder().Build();
    const int result = f.Instantiate(1, payload, 1 + count);
    if (result == 0) f.ring().Send(Op::cuGraphExecDestroy, wire::cuGraphExecDestroy{1, 0});
    return result;
  };
  CHECK(bodies(0, 1) == 0);
  CHECK(bodies(0, 2) == 0);
  CHECK(bodies(0, 3) == kCudaErrorInvalidValue);
  CHECK(bodies(1, 1) == 0);
  CHECK(bodies(1, 2) == kCudaErrorInvalidValue);
  CHECK(bodies(2, 7) == 0);
  CHECK(bodies(3, 1) == kCudaErrorInvalidValue);
}

TEST_CASE("Conditional handles that have ended make room, and those of a context end with it") {
  Fixture f([](Daemon::Options& options) { options.server.limits.graph_conditions = 2; });
  const auto call = [&](ContextId context, uint32_t flags, uint64_t id) {
    auto [status, reply] =
        f.client.Call(Op::cuGraphConditionalHandleCreate,
                      wire::cuGraphConditionalHandleCreate{context, 0, flags, 0, id});
    wire::cuGraphConditionalHandleCreate_Reply body{};
    if (reply.body().size() == sizeof(body)) std::memcpy(&body, reply.body().data(), sizeof(body));
    return std::pair<int, uint64_t>(reply.result(), body.id);
  };
  for (int i = 0; i < 5; ++i) {
    const uint64_t first = call(1, 0, 0).second, second = call(1, 0, 0).second;
    REQUIRE(first != 0);
    REQUIRE(second != 0);
    CHECK(call(1, 0, 0).first == kCudaErrorOutOfMemory);
    for (const uint64_t id : {first, second, first, uint64_t{0}})
      CHECK(call(1, wire::kEndConditional, id).first == 0);
  }
  REQUIRE(call(2, 0, 0).first == 0);
  REQUIRE(call(1, 0, 0).first == 0);
  CHECK(call(2, 0, 0).first == kCudaErrorOutOfMemory);
  CHECK(f.ring().Call(Op::cuCtxDestroy_v2, wire::cuCtxDestroy_v2{2, 0}) == 0);
  CHECK(call(1, 0, 0).first == 0);
  CHECK(call(1, 0, 0).first == kCudaErrorOutOfMemory);
}

TEST_CASE("A graph keeps the code and the events that it uses") {
  Fixture f;
  f.ring().Send(Op::cuEventCreate, wire::cuEventCreate{5, 1, 2, 0});
  REQUIRE(f.Instantiate(1, AllKinds(f)) == 0);
  const int loaded = f.daemon.devices[0]->libraries.load();
  CHECK(f.client.Call(Op::cuLibraryUnload, wire::cuLibraryUnload{f.library, 0}).second.result() ==
        0);
  f.ring().Send(Op::cuEventDestroy_v2, wire::cuEventDestroy_v2{5, 0});
  CHECK(f.daemon.devices[0]->libraries.load() == loaded);
  CHECK(f.Launch(1, {1}) == 0);
  CHECK(f.word(1) == 3);
  GraphBuilder builder;
  builder.Node(wire::kNodeKernel, f.Add(f.memory, 1));
  CHECK(f.Instantiate(2, builder.Build()) == kCudaErrorInvalidHandle);
  CHECK(f.ring().Call(Op::cuGraphExecDestroy, wire::cuGraphExecDestroy{1, 0}) == 0);
  CHECK(f.daemon.devices[0]->libraries.load() == loaded - 1);
  f.CheckUnharmed();
}

TEST_CASE("A graph keeps the arrays that its copies use") {
  Fixture f;
  wire::cuArray3DCreate_v2_Reply array{};
  REQUIRE(f.ring().Call(Op::cuArray3DCreate_v2,
                        wire::cuArray3DCreate_v2{8, 0, 0, kUnsignedBytes, 1, 0, 0}, &array) == 0);
  wire::cuMemcpy3DAsync_v2 copy = f.Copy(f.memory, 0, 8);
  copy.source = wire::InArray({array.array, 0, 0, 0, 0});
  GraphBuilder builder;
  builder.NodeOf(wire::kNodeCopy, copy);
  REQUIRE(f.Instantiate(1, builder.Build()) == 0);
  CHECK(f.ring().Call(Op::cuArrayDestroy, wire::cuArrayDestroy{array.array, 0}) == 0);
  CHECK(f.images.ended().empty());
  CHECK(f.Launch(1) == 0);
  CHECK(f.ring().Call(Op::cuGraphExecDestroy, wire::cuGraphExecDestroy{1, 0}) == 0);
  CHECK(f.images.ended() == std::vector<std::string>{"array"});
}

TEST_CASE("Graphs end with their context, and with their session") {
  Fixture f;
  GraphBuilder builder;
  builder.Node(wire::kNodeKernel, f.Add(f.memory, 1));
  REQUIRE(f.Instantiate(1, builder.Build()) == 0);
  CHECK(f.ring().Call(Op::cuCtxDestroy_v2, wire::cuCtxDestroy_v2{1, 0}) == 0);
  CHECK(f.Launch(1) == kCudaErrorInvalidHandle);
  CHECK(f.daemon.devices[0]->libraries.load() == 0);
  f.client.CreateStream(1);
  const KernelId kernel = f.client.GetKernel(f.client.Load(), "add");
  GraphBuilder again;
  again.Node(wire::kNodeKernel, f.Add(f.memory, 1, kernel));
  REQUIRE(f.Instantiate(1, again.Build()) == 0);
  f.client.Close();
  CHECK(Eventually([&] { return f.daemon.devices[0]->libraries.load() == 0; }));
}

TEST_CASE("Too many graphs are CUDA_ERROR_OUT_OF_MEMORY") {
  Fixture f([](Daemon::Options& options) {
    options.server.limits.graphs = 2;
    options.server.limits.graph_bytes = 8000;
    options.server.limits.graph.nodes = 20;
  });
  GraphBuilder large;
  for (int i = 0; i < 21; ++i) large.Node(wire::kNodeEmpty);
  CHECK(f.Instantiate(1, large.Build()) == kCudaErrorOutOfMemory);
  GraphBuilder heavy;
  for (int i = 0; i < 10; ++i) heavy.Node(wire::kNodeKernel, f.Add(f.memory, 1));
  CHECK(f.Instantiate(1, heavy.Build()) == 0);
  CHECK(f.Instantiate(2, heavy.Build() + std::string(8000, 0)) == kCudaErrorOutOfMemory);
  CHECK(f.Replace(1, 0, 0, std::string(8000, 0)) == kCudaErrorOutOfMemory);
  const std::string same = GraphBuilder::OneNode(wire::kNodeKernel, f.Add(f.memory, 1));
  // not counted twice
  for (int i = 0; i < 200; ++i) REQUIRE(f.Replace(1, 0, 0, same) == 0);
  CHECK(f.Instantiate(2, GraphBuilder().Build()) == 0);
  CHECK(f.Instantiate(3, GraphBuilder().Build()) == kCudaErrorOutOfMemory);
  f.ring().Send(Op::cuGraphExecDestroy, wire::cuGraphExecDestroy{1, 0});
  CHECK(f.Instantiate(3, heavy.Build()) == 0);
  f.CheckUnharmed();
}

TEST_CASE("Random graphs are executed or refused and do no harm") {
  Fixture f;
  std::mt19937 random(11);
  const auto below = [&](uint32_t limit) { return static_cast<uint32_t>(random() % limit); };
  int accepted = 0;
  for (int round = 0; round < 300; ++round) {
    GraphBuilder builder;
    for (uint32_t n = below(6); n > 0; --n) {
      switch (below(5)) {
        case 0:
          builder.Node(wire::kNodeKernel, f.Add(f.memory + 8 * below(64), below(9)));
          break;
        case 1:
          builder.NodeOf(wire::kNodeCopy,
                         f.Copy(f.memory + below(64), f.memory + 512 + below(64), 1 + below(64)));
          break;
        case 2:
          builder.NodeOf(wire::kNodeFill,
                         wire::cuMemsetD2D32Async{f.memory + below(4096), 0, below(64), 1, below(9),
                                                  1u << below(3), 0, 0});
          break;
        case 3:
          builder.NodeOf(wire::kNodeSignal, wire::GraphFence{below(8), 0});
          break;
        case 4:
          builder.Node(wire::kNodeEmpty);
          break;
      }
    }
    for (uint32_t to = 1; to < builder.node_count; ++to) builder.Edge(below(to), to);
    std::string payload = builder.Build();
    if (below(2) == 0) payload[below(static_cast<uint32_t>(payload.size()))] ^= 1 << below(8);
    // A kernel's own parameters are not checked, so they must stay valid.
    if (f.Instantiate(1, payload) != 0) continue;
    ++accepted;
    if (payload == builder.Build()) {
      std::vector<uint64_t> values;
      for (uint32_t i = 0; i < 6; ++i) {
        const int result = f.Launch(1, values);
        if (result == 0) break;
        REQUIRE(result == kCudaErrorInvalidValue);
        values.push_back(i);
      }
    }
    REQUIRE(f.ring().Call(Op::cuGraphExecDestroy, wire::cuGraphExecDestroy{1, 0}) == 0);
  }
  CHECK(accepted > 100);
  f.CheckUnharmed();
}

}  // namespace
}  // namespace detshare
