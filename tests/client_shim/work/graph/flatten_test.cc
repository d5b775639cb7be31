#include "client_shim/work/graph/flatten.h"

#include <catch2/catch.hpp>
#include <cstring>
#include <map>
#include <random>
#include <set>

#include "proto/wire/copy.h"
#include "proto/wire/launch.h"
#include "tests/client_shim/work/graph/graph_maker.h"

namespace detshare::shim {
namespace {

// Fences count from 100, and staging memory is one block.
class FakeResources : public FlattenResources {
 public:
  FenceIndex Fence() override { return fences_left-- > 0 ? next_fence_++ : kNoFence; }
  std::byte* Staging(uint64_t bytes) override {
    std::byte* piece = memory_ + used_;
    used_ += bytes;
    return used_ <= sizeof(memory_) ? piece : nullptr;
  }
  std::byte* memory() { return memory_; }

  int fences_left = 1000;

 private:
  FenceIndex next_fence_ = 100;
  std::byte memory_[4096];
  uint64_t used_ = 0;
};

Flattened Flat(const Graph& graph) {
  FakeResources resources;
  Flattened flat;
  const GraphNode* culprit;
  REQUIRE(Flatten(graph, resources, &flat, &culprit) == CUDA_SUCCESS);
  return flat;
}

std::vector<wire::GraphNodeKind> Kinds(const FlatGraph& graph) {
  std::vector<wire::GraphNodeKind> kinds;
  for (const FlatNode& node : graph.nodes) kinds.push_back(node.kind);
  return kinds;
}

std::set<std::pair<uint32_t, uint32_t>> Edges(const FlatGraph& graph) {
  std::set<std::pair<uint32_t, uint32_t>> edges;
  for (const wire::GraphEdge& edge : graph.edges) {
    CHECK(edge.from < edge.to);
    CHECK(edges.emplace(edge.from, edge.to).second);
  }
  return edges;
}

using EdgeSet = std::set<std::pair<uint32_t, uint32_t>>;

template <typename T>
T BodyOf(const FlatNode& node) {
  T body;
  REQUIRE(node.body.size() >= sizeof(body));
  std::memcpy(&body, node.body.data(), sizeof(body));
  return body;
}

void Nothing(void*) {}

TEST_CASE("A host function is a signal and a wait that follow each other") {
  auto graph = MakeGraph(false);
  GraphNode* before = Put(*graph, KernelOf(1));
  GraphNode* host = Put(*graph, HostNode{Nothing, nullptr}, {before});
  Put(*graph, KernelOf(2), {host});
  const Flattened flat = Flat(*graph);
  REQUIRE(flat.graphs.size() == 1);
  CHECK(Kinds(flat.graphs[0]) ==
        std::vector{wire::kNodeKernel, wire::kNodeSignal, wire::kNodeWait, wire::kNodeKernel});
  CHECK(Edges(flat.graphs[0]) == EdgeSet{{0, 1}, {1, 2}, {2, 3}});
  REQUIRE(flat.steps.size() == 1);
  CHECK(flat.steps[0].source == host);
  CHECK(BodyOf<wire::GraphFence>(flat.graphs[0].nodes[1]).fence == flat.steps[0].reached);
  CHECK(BodyOf<wire::GraphFence>(flat.graphs[0].nodes[2]).fence == flat.steps[0].resume);
  REQUIRE(flat.values.size() == 2);
  CHECK(flat.values[0].kind == LaunchValueUse::kReached);
  CHECK(flat.values[1].kind == LaunchValueUse::kResume);
}

TEST_CASE("Ordinary memory is staged before the copy and fetched after it") {
  char host[64];
  auto graph = MakeGraph(false);
  GraphNode* in = Put(*graph, CopyOf(OnDevice(0x1000), Pageable(host), 64));
  Put(*graph, CopyOf(Pageable(host), OnDevice(0x1000), 64), {in});
  FakeResources resources;
  Flattened flat;
  const GraphNode* culprit;
  REQUIRE(Flatten(*graph, resources, &flat, &culprit) == CUDA_SUCCESS);
  CHECK(Kinds(flat.graphs[0]) == std::vector{wire::kNodeSignal, wire::kNodeWait, wire::kNodeCopy,
                                             wire::kNodeCopy, wire::kNodeSignal, wire::kNodeWait});
  CHECK(Edges(flat.graphs[0]) == EdgeSet{{0, 1}, {1, 2}, {2, 3}, {3, 4}, {4, 5}});
  const auto to_device = BodyOf<wire::cuMemcpy3DAsync_v2>(flat.graphs[0].nodes[2]);
  CHECK(to_device.destination.location.address == 0x1000);
  CHECK(to_device.source.location.address == reinterpret_cast<uint64_t>(resources.memory()));
  CHECK(to_device.signal.index == kNoFence);
  const auto to_host = BodyOf<wire::cuMemcpy3DAsync_v2>(flat.graphs[0].nodes[3]);
  CHECK(to_host.destination.location.address ==
        reinterpret_cast<uint64_t>(resources.memory() + 64));
  CHECK(to_host.width == 64);
}

TEST_CASE("This process alone copies between two places of ordinary memory") {
  char from[8], to[8];
  auto graph = MakeGraph(false);
  Put(*graph, CopyOf(Pageable(to), Pageable(from), 8));
  const Flattened flat = Flat(*graph);
  CHECK(Kinds(flat.graphs[0]) == std::vector{wire::kNodeSignal, wire::kNodeWait});
  CHECK(flat.steps[0].staging == nullptr);
}

TEST_CASE("An event record signals the fence that the program polls") {
  auto graph = MakeGraph(false);
  Put(*graph, EventRecordNode{{nullptr, nullptr, 5}});
  Put(*graph, EventWaitNode{{nullptr, nullptr, 6}});
  const Flattened flat = Flat(*graph);
  CHECK(Kinds(flat.graphs[0]) ==
        std::vector{wire::kNodeEventRecord, wire::kNodeSignal, wire::kNodeEventWait});
  CHECK(BodyOf<wire::GraphEvent>(flat.graphs[0].nodes[0]).event == 5);
  REQUIRE(flat.records.size() == 1);
  REQUIRE(flat.values.size() == 1);
  CHECK(flat.values[0].kind == LaunchValueUse::kEvent);
}

TEST_CASE("A child graph takes the place of its node") {
  auto inner = MakeGraph(false);
  GraphNode* a = Put(*inner, KernelOf(10));
  Put(*inner, KernelOf(11), {a});
  auto graph = MakeGraph(false);
  GraphNode* first = Put(*graph, KernelOf(1));
  GraphNode* child = Put(*graph, Child(std::move(inner)), {first});
  Put(*graph, KernelOf(2), {child});
  const Flattened flat = Flat(*graph);
  CHECK(flat.graphs[0].nodes.size() == 4);
  CHECK(Edges(flat.graphs[0]) == EdgeSet{{0, 1}, {1, 2}, {2, 3}});
  CHECK(BodyOf<wire::cuLaunchKernelEx>(flat.graphs[0].nodes[1]).kernel == 10);
}

TEST_CASE("Empty nodes enclose a child graph with several ends or none") {
  auto inner = MakeGraph(false);
  Put(*inner, KernelOf(10));
  Put(*inner, KernelOf(11));
  auto graph = MakeGraph(false);
  GraphNode* first = Put(*graph, KernelOf(1));
  GraphNode* wide = Put(*graph, Child(std::move(inner)), {first});
  GraphNode* hollow = Put(*graph, Child(MakeGraph(false)), {wide});
  Put(*graph, KernelOf(2), {hollow});
  const Flattened flat = Flat(*graph);
  CHECK(Kinds(flat.graphs[0]) == std::vector{wire::kNodeKernel, wire::kNodeEmpty, wire::kNodeKernel,
                                             wire::kNodeKernel, wire::kNodeEmpty, wire::kNodeEmpty,
                                             wire::kNodeKernel});
  CHECK(Edges(flat.graphs[0]) == EdgeSet{{0, 1}, {1, 2}, {1, 3}, {2, 4}, {3, 4}, {4, 5}, {5, 6}});
}

TEST_CASE("Bodies of conditional nodes follow the graph that they belong to") {
  ConditionalNode inner_branch;
  inner_branch.condition = 8;
  inner_branch.bodies.push_back(MakeGraph(false));
  ConditionalNode branch;
  branch.condition = 7;
  branch.bodies.push_back(MakeGraph(false));
  branch.bodies.push_back(MakeGraph(false));
  Put(*branch.bodies[0], std::move(inner_branch));
  Put(*branch.bodies[1], KernelOf(3));
  auto graph = MakeGraph(false);
  Put(*graph, std::move(branch));
  const Flattened flat = Flat(*graph);
  REQUIRE(flat.graphs.size() == 4);
  const auto outer = BodyOf<wire::GraphConditional>(flat.graphs[0].nodes[0]);
  CHECK(outer.handle == 7);
  CHECK(outer.first_body == 1);
  CHECK(outer.body_count == 2);
  const auto nested = BodyOf<wire::GraphConditional>(flat.graphs[1].nodes[0]);
  CHECK(nested.handle == 8);
  CHECK(nested.first_body == 3);
  CHECK(Kinds(flat.graphs[2]) == std::vector{wire::kNodeKernel});
}

TEST_CASE("Nodes that need this process are refused in the body of a conditional node") {
  ConditionalNode branch;
  branch.bodies.push_back(MakeGraph(false));
  GraphNode* host = Put(*branch.bodies[0], HostNode{Nothing, nullptr});
  auto graph = MakeGraph(false);
  Put(*graph, std::move(branch));
  FakeResources resources;
  Flattened flat;
  const GraphNode* culprit;
  CHECK(Flatten(*graph, resources, &flat, &culprit) == CUDA_ERROR_NOT_SUPPORTED);
  CHECK(culprit == host);
}

TEST_CASE("A cycle is refused, and the error names one of its nodes") {
  auto graph = MakeGraph(false);
  GraphNode* a = Put(*graph, EmptyNode{});
  GraphNode* b = Put(*graph, EmptyNode{}, {a});
  REQUIRE(AddEdge(*graph, b, a, {}) == CUDA_SUCCESS);
  FakeResources resources;
  Flattened flat;
  const GraphNode* culprit;
  CHECK(Flatten(*graph, resources, &flat, &culprit) == CUDA_ERROR_INVALID_VALUE);
  CHECK((culprit == a || culprit == b));
}

TEST_CASE("Without fences a graph cannot be flattened") {
  auto graph = MakeGraph(false);
  Put(*graph, HostNode{Nothing, nullptr});
  FakeResources resources;
  resources.fences_left = 1;
  Flattened flat;
  const GraphNode* culprit;
  CHECK(Flatten(*graph, resources, &flat, &culprit) == CUDA_ERROR_OUT_OF_MEMORY);
}

TEST_CASE("Annotated edges keep their data, and the flag that made them is gone") {
  auto graph = MakeGraph(false);
  KernelNode kernel = KernelOf(1);
  kernel.launch.flags = wire::kLaunchProgrammaticSerialization | wire::kLaunchCooperative;
  GraphNode* a = Put(*graph, KernelOf(1));
  GraphNode* b = Put(*graph, kernel);
  CUgraphEdgeData data{};
  data.from_port = CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC;
  data.type = CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC;
  REQUIRE(AddEdge(*graph, a, b, data) == CUDA_SUCCESS);
  const Flattened flat = Flat(*graph);
  REQUIRE(flat.graphs[0].edges.size() == 1);
  CHECK(flat.graphs[0].edges[0].from_port == CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC);
  CHECK(flat.graphs[0].edges[0].type == CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC);
  CHECK(BodyOf<wire::cuLaunchKernelEx>(flat.graphs[0].nodes[1]).flags == wire::kLaunchCooperative);
}

TEST_CASE("Hints of a kernel follow its parameters at a multiple of 8") {
  for (const size_t parameters : {0u, 4u, 8u, 13u}) {
    auto graph = MakeGraph(false);
    KernelNode kernel = KernelOf(1);
    kernel.parameters.assign(parameters, std::byte{0x5a});
    Put(*graph, kernel);
    kernel.hints.given = wire::kHintCarveout;
    kernel.hints.carveout = 40;
    Put(*graph, kernel);
    const Flattened flat = Flat(*graph);
    const FlatNode& plain = flat.graphs[0].nodes[0];
    const FlatNode& hinted = flat.graphs[0].nodes[1];
    CHECK(plain.body.size() == sizeof(wire::cuLaunchKernelEx) + parameters);
    CHECK(BodyOf<wire::cuLaunchKernelEx>(plain).flags == 0);
    CHECK(BodyOf<wire::cuLaunchKernelEx>(hinted).flags == wire::kLaunchHasHints);
    const size_t place = sizeof(wire::cuLaunchKernelEx) + (parameters + 7) / 8 * 8;
    REQUIRE(hinted.body.size() == place + sizeof(wire::LaunchHints));
    CHECK(std::memcmp(hinted.body.data() + place, &kernel.hints, sizeof(kernel.hints)) == 0);
  }
}

TEST_CASE("An array takes the place of an address and is not ordinary memory") {
  auto graph = MakeGraph(false);
  CopyNode copy;
  copy.to.array = {9, 2, 16, 3, 1};
  copy.from.place.host = 4096;
  copy.from.row_pitch = copy.from.slice_pitch = copy.width = 32;
  Put(*graph, copy);
  const Flattened flat = Flat(*graph);
  // The data is brought to staging memory and then copied from there.
  REQUIRE(Kinds(flat.graphs[0]) ==
          std::vector<wire::GraphNodeKind>{wire::kNodeSignal, wire::kNodeWait, wire::kNodeCopy});
  const auto args = BodyOf<wire::cuMemcpy3DAsync_v2>(flat.graphs[0].nodes[2]);
  CHECK(args.source.location.space == wire::kAddress);
  CHECK(args.destination.location.space == wire::kArray);
  const wire::ArrayPosition at = wire::PositionOf(args.destination);
  CHECK((at.array == 9 && at.level == 2 && at.x == 16 && at.y == 3 && at.z == 1));
}

TEST_CASE("The payload of a small graph is these bytes") {
  auto graph = MakeGraph(false);
  GraphNode* kernel = Put(*graph, [] {
    KernelNode node = KernelOf(0x11223344, 2);
    node.launch.block[0] = 32;
    node.launch.shared_bytes = 16;
    node.parameters = {std::byte{1}, std::byte{2}, std::byte{3}, std::byte{4}};
    return node;
  }());
  Put(*graph, EventWaitNode{{nullptr, nullptr, 9}}, {kernel});
  const std::string payload = Payload(Flat(*graph));
  const std::vector<uint32_t> words = {
      2,          1,                                 // header: two nodes, one edge
      1,          60,         1, 0,                  // a kernel, bytes, enabled
      0,          0x11223344,                        // stream, kernel
      2,          1,          1, 32, 1, 1, 0, 0, 0,  // grid, block, cluster
      16,         0,          0,                     // shared memory, flags, priority
      0x04030201, 0,                                 // parameters, padding
      7,          8,          1, 0,                  // an event to wait for
      9,          0,                                 //
      0,          1,          0, 0,                  // the edge
  };
  REQUIRE(payload.size() == words.size() * 4);
  std::vector<uint32_t> got(words.size());
  std::memcpy(got.data(), payload.data(), payload.size());
  CHECK(got == words);
}

TEST_CASE("A node that is flattened again keeps its resources and changes nothing else") {
  char host[64], other[64];
  auto graph = MakeGraph(false);
  Put(*graph, KernelOf(1));
  GraphNode* copy = Put(*graph, CopyOf(OnDevice(0x1000), Pageable(host), 64));
  Flattened flat = Flat(*graph);
  const Flattened before = flat;
  copy->body = CopyOf(OnDevice(0x2000), Pageable(other), 32);
  REQUIRE(FlattenAgain(*copy, flat) == CUDA_SUCCESS);
  CHECK(flat.graphs[0].nodes[0].body == before.graphs[0].nodes[0].body);
  CHECK(flat.graphs[0].nodes[1].body == before.graphs[0].nodes[1].body);
  const auto args = BodyOf<wire::cuMemcpy3DAsync_v2>(flat.graphs[0].nodes[3]);
  CHECK(args.destination.location.address == 0x2000);
  CHECK(args.source.location.address ==
        BodyOf<wire::cuMemcpy3DAsync_v2>(before.graphs[0].nodes[3]).source.location.address);
  // An error of the daemon is about the program's node.
  for (size_t i = 1; i < 4; ++i) CHECK(flat.graphs[0].nodes[i].source == copy);
  copy->body = CopyOf(OnDevice(0x2000), OnDevice(0x1000), 32);
  CHECK(FlattenAgain(*copy, flat) == CUDA_ERROR_INVALID_VALUE);
  CHECK(SameShape(flat, before));
}

TEST_CASE("A disabled copy of ordinary memory still signals and waits") {
  char host[64];
  auto graph = MakeGraph(false);
  GraphNode* copy = Put(*graph, CopyOf(OnDevice(0x1000), Pageable(host), 64));
  copy->enabled = false;
  const Flattened flat = Flat(*graph);
  CHECK(flat.graphs[0].nodes[0].enabled);
  CHECK(flat.graphs[0].nodes[1].enabled);
  CHECK_FALSE(flat.graphs[0].nodes[2].enabled);
}

TEST_CASE("Only the lower bits of a memset's value reach narrow elements") {
  for (const uint32_t bytes : {1u, 2u, 4u}) {
    auto graph = MakeGraph(false);
    FillNode fill;
    fill.description = {0x1000, 0, 0x12345678, bytes, 8, 1};
    fill.address = 0x1000;
    Put(*graph, fill);
    const auto args = BodyOf<wire::cuMemsetD2D32Async>(Flat(*graph).graphs[0].nodes[0]);
    CHECK(args.value == (bytes == 1 ? 0x78 : bytes == 2 ? 0x5678 : 0x12345678));
    CHECK(args.element_bytes == bytes);
  }
}

// A random graph whose leaves are kernels with different ids. `depth` is the maximum depth of
// children.
std::unique_ptr<Graph> RandomGraph(std::mt19937& random, int depth, KernelId* next) {
  auto graph = MakeGraph(false);
  const uint32_t count = random() % 8;
  for (uint32_t i = 0; i < count; ++i) {
    GraphNode* node;
    if (depth > 0 && random() % 4 == 0) {
      node = Put(*graph, Child(RandomGraph(random, depth - 1, next)));
    } else if (random() % 8 == 0) {
      node = Put(*graph, EmptyNode{});
    } else {
      node = Put(*graph, KernelOf((*next)++));
    }
    // Later nodes may come first, because the order of a graph need not be topological.
    for (const auto& other : graph->nodes) {
      if (other.get() == node || random() % 3 != 0) continue;
      const bool forward = (other->position * 5 + 1) % 8 < (node->position * 5 + 1) % 8;
      REQUIRE(AddEdge(*graph, forward ? other.get() : node, forward ? node : other.get(), {}) ==
              CUDA_SUCCESS);
    }
  }
  return graph;
}

using Order = std::set<std::pair<KernelId, KernelId>>;

void AllKernels(const Graph& graph, std::vector<KernelId>* ids) {
  for (const auto& node : graph.nodes) {
    if (const auto* kernel = std::get_if<KernelNode>(&node->body)) ids->push_back(kernel->id);
    if (const auto* child = std::get_if<ChildNode>(&node->body)) AllKernels(*child->graph, ids);
  }
}

// Which kernel must end before which other kernel begins, by definition.
void OrderOf(const Graph& graph, Order* order) {
  std::vector<std::vector<KernelId>> inside(graph.nodes.size());
  std::vector<std::set<uint32_t>> after(graph.nodes.size());
  std::vector<GraphNode*> sorted;
  REQUIRE(TopologicalOrder(graph, &sorted));
  for (auto node = sorted.rbegin(); node != sorted.rend(); ++node) {
    const uint32_t position = (*node)->position;
    for (const GraphEdge& edge : (*node)->dependents) {
      after[position].insert(edge.node->position);
      after[position].insert(after[edge.node->position].begin(), after[edge.node->position].end());
    }
    if (const auto* kernel = std::get_if<KernelNode>(&(*node)->body))
      inside[position].push_back(kernel->id);
    if (const auto* child = std::get_if<ChildNode>(&(*node)->body)) {
      AllKernels(*child->graph, &inside[position]);
      OrderOf(*child->graph, order);
    }
  }
  for (uint32_t i = 0; i < after.size(); ++i) {
    for (const uint32_t j : after[i]) {
      for (const KernelId first : inside[i]) {
        for (const KernelId second : inside[j]) order->emplace(first, second);
      }
    }
  }
}

Order OrderOf(const FlatGraph& graph) {
  std::vector<std::set<uint32_t>> after(graph.nodes.size());
  for (uint32_t i = static_cast<uint32_t>(graph.nodes.size()); i-- > 0;) {
    for (const wire::GraphEdge& edge : graph.edges) {
      if (edge.from != i) continue;
      after[i].insert(edge.to);
      after[i].insert(after[edge.to].begin(), after[edge.to].end());
    }
  }
  Order order;
  for (uint32_t i = 0; i < after.size(); ++i) {
    if (graph.nodes[i].kind != wire::kNodeKernel) continue;
    for (const uint32_t j : after[i]) {
      if (graph.nodes[j].kind != wire::kNodeKernel) continue;
      order.emplace(BodyOf<wire::cuLaunchKernelEx>(graph.nodes[i]).kernel,
                    BodyOf<wire::cuLaunchKernelEx>(graph.nodes[j]).kernel);
    }
  }
  return order;
}

TEST_CASE("Flattening random graphs keeps exactly the order of their kernels") {
  std::mt19937 random(20240229);
  for (int round = 0; round < 300; ++round) {
    KernelId next = 1;
    const auto graph = RandomGraph(random, 3, &next);
    const Flattened flat = Flat(*graph);
    Edges(flat.graphs[0]);  // checks that edges lead to later nodes, none twice
    Order wanted;
    OrderOf(*graph, &wanted);
    REQUIRE(OrderOf(flat.graphs[0]) == wanted);
    REQUIRE(SameShape(flat, Flat(*graph)));
  }
}

}  // namespace
}  // namespace detshare::shim
