#include "server/session/graph_payload.h"

#include <catch2/catch.hpp>
#include <random>
#include <string>

#include "coroutine_runtime/status_cuda.h"
#include "tests/server/session/graph_payload_builder.h"

namespace detshare {
namespace {

absl::StatusOr<std::vector<ParsedGraph>> Parse(const std::string& payload, uint32_t count = 1,
                                               const GraphLimits& limits = {}) {
  return ParseGraphs({reinterpret_cast<const uint8_t*>(payload.data()), payload.size()}, count,
                     limits);
}

int ResultOf(const std::string& payload, uint32_t count = 1, const GraphLimits& limits = {}) {
  return CudaResultOf(Parse(payload, count, limits).status());
}

wire::GraphConditional Conditional(uint32_t first_body, uint32_t bodies = 1) {
  return {1, 0, first_body, bodies, 0};
}

TEST_CASE("A payload is split into its nodes and sorted edges") {
  GraphBuilder builder;
  builder.NodeOf(wire::kNodeKernel, wire::cuLaunchKernelEx{}, "parameters");
  builder.Node(wire::kNodeFill, std::string(sizeof(wire::cuMemsetD2D32Async), '\1'), 0);
  builder.NodeOf(wire::kNodeSignal, wire::GraphFence{3, 0});
  builder.Edge(1, 2);
  builder.Edge(0, 1);
  const auto graphs = Parse(builder.Build());
  REQUIRE(graphs.ok());
  REQUIRE(graphs->size() == 1);
  const ParsedGraph& graph = graphs->front();
  REQUIRE(graph.nodes.size() == 3);
  CHECK(graph.nodes[0].kind == wire::kNodeKernel);
  CHECK(graph.nodes[0].contents.size() == sizeof(wire::cuLaunchKernelEx) + 10);
  CHECK_FALSE(graph.nodes[1].enabled);
  REQUIRE(graph.edges.size() == 2);
  CHECK(graph.edges[0].from == 0);
  CHECK(graph.edges[1].from == 1);
}

TEST_CASE("An empty graph is a graph") { CHECK(ResultOf(GraphBuilder().Build()) == 0); }

TEST_CASE("Counts and lengths that exceed the payload are refused before memory is allocated") {
  CHECK(ResultOf("") == kCudaErrorInvalidValue);
  CHECK(ResultOf("1234567") == kCudaErrorInvalidValue);
  CHECK(ResultOf(GraphBuilder().Build(), 0) == kCudaErrorInvalidValue);
  CHECK(ResultOf(GraphBuilder().Build(), 2) == kCudaErrorInvalidValue);
  CHECK(ResultOf(GraphBuilder().Build(), UINT32_MAX) == kCudaErrorOutOfMemory);
  CHECK(ResultOf(GraphBuilder().Build() + "12345678") == kCudaErrorInvalidValue);
  GraphBuilder builder;
  builder.node_count = UINT32_MAX;
  CHECK(ResultOf(builder.Build()) == kCudaErrorOutOfMemory);
  builder.node_count = 1 << 20;
  CHECK(ResultOf(builder.Build()) == kCudaErrorInvalidValue);
  builder.node_count = 0;
  builder.edge_count = 1 << 20;
  CHECK(ResultOf(builder.Build()) == kCudaErrorInvalidValue);
  const wire::GraphNode long_node{wire::kNodeKernel, UINT32_MAX, 1, 0};
  CHECK(ResultOf(GraphBuilder::Bytes(wire::GraphHeader{1, 0}) + GraphBuilder::Bytes(long_node)) ==
        kCudaErrorInvalidValue);
}

TEST_CASE("Nodes with wrong lengths, kinds or fields are refused") {
  const auto one = [](uint32_t kind, const std::string& contents, uint32_t enabled = 1) {
    GraphBuilder builder;
    builder.Node(kind, contents, enabled);
    return ResultOf(builder.Build());
  };
  CHECK(one(wire::kNodeEmpty, "") == 0);
  CHECK(one(wire::kNodeEmpty, "x") == kCudaErrorInvalidValue);
  CHECK(one(10, "") == kCudaErrorInvalidValue);
  CHECK(one(UINT32_MAX, "") == kCudaErrorInvalidValue);
  CHECK(one(wire::kNodeEmpty, "", 0) == kCudaErrorInvalidValue);
  CHECK(one(wire::kNodeSignal, std::string(8, 0), 0) == kCudaErrorInvalidValue);
  CHECK(one(wire::kNodeCopy, std::string(sizeof(wire::cuMemcpy3DAsync_v2), 0), 2) ==
        kCudaErrorInvalidValue);
  for (uint32_t kind = wire::kNodeKernel; kind <= wire::kNodeConditional; ++kind) {
    INFO("kind " << kind);
    CHECK(one(kind, "") == kCudaErrorInvalidValue);
    CHECK(one(kind, "1234567") == kCudaErrorInvalidValue);
  }
  std::string payload =
      GraphBuilder::Bytes(wire::GraphHeader{1, 0}) +
      GraphBuilder::OneNode(wire::kNodeKernel, std::string(sizeof(wire::cuLaunchKernelEx) + 1, 0));
  CHECK(ResultOf(payload) == 0);
  payload.back() = 1;  // padding
  CHECK(ResultOf(payload) == kCudaErrorInvalidValue);
}

TEST_CASE("Edges lead forward, once, and are of types that the nodes have") {
  const auto with = [](auto edges) {
    GraphBuilder builder;
    for (int i = 0; i < 2; ++i) builder.NodeOf(wire::kNodeKernel, wire::cuLaunchKernelEx{});
    builder.Node(wire::kNodeEmpty);
    edges(builder);
    return ResultOf(builder.Build());
  };
  CHECK(with([](GraphBuilder& b) { b.Edge(0, 1, 1, 1); }) == 0);
  CHECK(with([](GraphBuilder& b) { b.Edge(0, 0); }) == kCudaErrorInvalidValue);
  CHECK(with([](GraphBuilder& b) { b.Edge(1, 0); }) == kCudaErrorInvalidValue);
  CHECK(with([](GraphBuilder& b) { b.Edge(0, 3); }) == kCudaErrorInvalidValue);
  CHECK(with([](GraphBuilder& b) { b.Edge(UINT32_MAX - 1, UINT32_MAX); }) ==
        kCudaErrorInvalidValue);
  CHECK(with([](GraphBuilder& b) { b.Edge(0, 1), b.Edge(0, 2), b.Edge(0, 1); }) ==
        kCudaErrorInvalidValue);
  CHECK(with([](GraphBuilder& b) { b.Edge(1, 2, 0, 1); }) == kCudaErrorInvalidValue);
  CHECK(with([](GraphBuilder& b) { b.Edge(0, 1, 3, 0); }) == kCudaErrorInvalidValue);
  CHECK(with([](GraphBuilder& b) { b.Edge(0, 1, 0, 2); }) == kCudaErrorInvalidValue);
}

TEST_CASE("Every graph but the first is the body of one conditional node before it") {
  GraphBuilder root, body, inner, empty;
  root.NodeOf(wire::kNodeConditional, Conditional(1));
  body.NodeOf(wire::kNodeConditional, Conditional(2));
  CHECK(ResultOf(root.Build() + body.Build() + empty.Build(), 3) == 0);
  CHECK(ResultOf(root.Build(), 1) == kCudaErrorInvalidValue);
  CHECK(ResultOf(empty.Build() + empty.Build(), 2) == kCudaErrorInvalidValue);

  GraphBuilder itself;
  itself.NodeOf(wire::kNodeConditional, Conditional(0));
  CHECK(ResultOf(itself.Build()) == kCudaErrorInvalidValue);
  GraphBuilder backward;  // a cycle
  backward.NodeOf(wire::kNodeConditional, Conditional(1));
  CHECK(ResultOf(root.Build() + backward.Build(), 2) == kCudaErrorInvalidValue);
  GraphBuilder twice;
  twice.NodeOf(wire::kNodeConditional, Conditional(1));
  twice.NodeOf(wire::kNodeConditional, Conditional(1));
  CHECK(ResultOf(twice.Build() + empty.Build(), 2) == kCudaErrorInvalidValue);
  for (const uint32_t bodies : {2U, UINT32_MAX}) {
    GraphBuilder many;
    many.NodeOf(wire::kNodeConditional, Conditional(1, bodies));
    CHECK(ResultOf(many.Build() + empty.Build(), 2) == kCudaErrorInvalidValue);
  }
  GraphBuilder none;
  none.NodeOf(wire::kNodeConditional, Conditional(1, 0));
  CHECK(ResultOf(none.Build() + empty.Build(), 2) == kCudaErrorInvalidValue);
}

TEST_CASE("Nesting is bounded") {
  std::string payload;
  constexpr uint32_t kGraphs = 40;
  for (uint32_t i = 0; i < kGraphs; ++i) {
    GraphBuilder graph;
    if (i + 1 < kGraphs) graph.NodeOf(wire::kNodeConditional, Conditional(i + 1));
    payload += graph.Build();
  }
  CHECK(ResultOf(payload, kGraphs) == kCudaErrorOutOfMemory);
  GraphLimits deep;
  deep.nesting = kGraphs - 1;  // the first graph is no body
  CHECK(ResultOf(payload, kGraphs, deep) == 0);
  deep.nesting = kGraphs - 2;
  CHECK(ResultOf(payload, kGraphs, deep) == kCudaErrorOutOfMemory);
}

TEST_CASE("The limits of nodes and edges hold for all graphs of a payload together") {
  GraphBuilder root, body;
  root.NodeOf(wire::kNodeConditional, Conditional(1));
  body.Node(wire::kNodeEmpty, "");
  for (GraphBuilder* graph : {&root, &body}) {
    graph->Node(wire::kNodeEmpty, "");
    graph->Edge(0, 1);
  }
  const std::string payload = root.Build() + body.Build();
  GraphLimits limits;
  limits.nodes = 4;
  limits.edges = 2;
  CHECK(ResultOf(payload, 2, limits) == 0);
  limits.edges = 1;
  CHECK(ResultOf(payload, 2, limits) == kCudaErrorOutOfMemory);
  limits.edges = 2;
  limits.nodes = 3;
  CHECK(ResultOf(payload, 2, limits) == kCudaErrorOutOfMemory);
}

TEST_CASE("Bodies may have the nodes that CUDA allows") {
  GraphBuilder root;
  root.NodeOf(wire::kNodeConditional, Conditional(1));
  for (const uint32_t kind : {wire::kNodeSignal, wire::kNodeWait, wire::kNodeEventRecord,
                              wire::kNodeEventWait, wire::kNodeMemoryOps}) {
    GraphBuilder body;
    body.Node(kind, std::string(8, 0));
    INFO("kind " << kind);
    CHECK(ResultOf(root.Build() + body.Build(), 2) == kCudaErrorInvalidValue);
  }
}

TEST_CASE("A graph has no more signals and waits than a launch can give values for") {
  GraphBuilder builder;
  for (uint32_t i = 0; i < wire::kMaxGraphValues; ++i) {
    builder.NodeOf(i % 2 ? wire::kNodeWait : wire::kNodeSignal, wire::GraphFence{0, 0});
  }
  CHECK(ResultOf(builder.Build()) == 0);
  builder.NodeOf(wire::kNodeWait, wire::GraphFence{0, 0});
  CHECK(ResultOf(builder.Build()) == kCudaErrorOutOfMemory);
}

TEST_CASE("A payload of one node is one node") {
  const auto parse = [](const std::string& payload) {
    return CudaResultOf(
        ParseGraphNode({reinterpret_cast<const uint8_t*>(payload.data()), payload.size()})
            .status());
  };
  const std::string node = GraphBuilder::OneNode(wire::kNodeSignal, std::string(8, 0));
  CHECK(parse(node) == 0);
  CHECK(parse(node + node) == kCudaErrorInvalidValue);
  CHECK(parse(node.substr(0, node.size() - 1)) == kCudaErrorInvalidValue);
  CHECK(parse("") == kCudaErrorInvalidValue);
}

// ---- random payloads

class Generator {
 public:
  explicit Generator(uint32_t seed) : random_(seed) {}
  uint32_t Below(uint32_t limit) { return static_cast<uint32_t>(random_() % limit); }

  std::string Payload(uint32_t* graphs) {
    *graphs = 1 + Below(4);
    std::string payload;
    for (uint32_t i = 0; i < *graphs; ++i) payload += Graph(i, *graphs);
    return payload;
  }

 private:
  std::string Graph(uint32_t index, uint32_t graphs) {
    static constexpr uint32_t kSizes[] = {0,
                                          sizeof(wire::cuLaunchKernelEx),
                                          sizeof(wire::cuMemcpy3DAsync_v2),
                                          sizeof(wire::cuMemsetD2D32Async),
                                          8,
                                          8,
                                          8,
                                          8,
                                          8};
    GraphBuilder builder;
    if (index + 1 < graphs) builder.NodeOf(wire::kNodeConditional, Conditional(index + 1));
    const uint32_t nodes = Below(12);
    for (uint32_t i = 0; i < nodes; ++i) {
      const uint32_t kind = Below(index == 0 ? 9 : 4);
      const uint32_t extra = kind == wire::kNodeKernel ? Below(20) : 0;
      builder.Node(kind, std::string(kSizes[kind] + extra, static_cast<char>(Below(256))));
    }
    for (uint32_t to = 1; to < builder.node_count; ++to) {
      if (Below(3) != 0) builder.Edge(Below(to), to);
    }
    return builder.Build();
  }

  std::mt19937 random_;
};

TEST_CASE("All valid payloads are accepted") {
  for (uint32_t seed = 1; seed <= 300; ++seed) {
    uint32_t count = 0;
    const std::string payload = Generator(seed).Payload(&count);
    INFO("seed " << seed);
    CHECK(ResultOf(payload, count) == 0);
  }
}

}  // namespace
}  // namespace detshare
