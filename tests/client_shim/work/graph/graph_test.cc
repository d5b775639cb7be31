#include "client_shim/work/graph/graph.h"

#include <catch2/catch.hpp>

#include "client_shim/work/graph/graph_memory.h"
#include "tests/client_shim/work/graph/graph_maker.h"

namespace detshare::shim {
namespace {

TEST_CASE("Nodes and graphs are found by their handles until they end") {
  const std::lock_guard lock(GraphMutex());
  auto graph = MakeGraph(true);
  REQUIRE(graph != nullptr);
  GraphNode* node = Put(*graph, EmptyNode{});
  const CUgraph graph_handle = HandleOf(*graph);
  const CUgraphNode node_handle = HandleOf(*node);
  CHECK(FindGraph(graph_handle) == graph.get());
  CHECK(FindNode(node_handle) == node);
  CHECK(FindGraph(reinterpret_cast<CUgraph>(node_handle)) == nullptr);
  CHECK(FindNode(nullptr) == nullptr);
  graph.reset();
  CHECK(FindGraph(graph_handle) == nullptr);
  CHECK(FindNode(node_handle) == nullptr);
}

TEST_CASE("A node depends on nodes of its own graph, each once") {
  auto graph = MakeGraph(false), other = MakeGraph(false);
  GraphNode* first = Put(*graph, EmptyNode{});
  GraphNode* foreign = Put(*other, EmptyNode{});
  GraphNode* node = nullptr;
  const GraphEdge twice[] = {{first, {}}, {first, {}}};
  CHECK(AddNode(*graph, EmptyNode{}, twice, &node) == CUDA_ERROR_INVALID_VALUE);
  const GraphEdge across[] = {{foreign, {}}};
  CHECK(AddNode(*graph, EmptyNode{}, across, &node) == CUDA_ERROR_INVALID_VALUE);
  const GraphEdge missing[] = {{nullptr, {}}};
  CHECK(AddNode(*graph, EmptyNode{}, missing, &node) == CUDA_ERROR_INVALID_VALUE);
  CHECK(graph->nodes.size() == 1);
  CHECK(first->dependents.empty());
}

TEST_CASE("Edges are added once and removed with the data that they have") {
  auto graph = MakeGraph(false);
  GraphNode* a = Put(*graph, KernelOf(1));
  GraphNode* b = Put(*graph, KernelOf(2));
  CUgraphEdgeData programmatic{};
  programmatic.from_port = CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC;
  programmatic.type = CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC;
  CHECK(AddEdge(*graph, a, b, programmatic) == CUDA_SUCCESS);
  CHECK(AddEdge(*graph, a, b, {}) == CUDA_ERROR_INVALID_VALUE);
  CHECK(AddEdge(*graph, a, a, {}) == CUDA_ERROR_INVALID_VALUE);
  const CUgraphEdgeData plain{};
  CHECK(RemoveEdge(*graph, a, b, &plain) == CUDA_ERROR_INVALID_VALUE);
  CHECK(RemoveEdge(*graph, a, b, &programmatic) == CUDA_SUCCESS);
  CHECK(a->dependents.empty());
  CHECK(b->dependencies.empty());
}

TEST_CASE("Programmatic edges lead from kernels to kernels only") {
  auto graph = MakeGraph(false);
  GraphNode* kernel = Put(*graph, KernelOf(1));
  GraphNode* empty = Put(*graph, EmptyNode{});
  CUgraphEdgeData data{};
  CHECK(EdgeValid(*empty, EmptyNode{}, data));
  data.from_port = CU_GRAPH_KERNEL_NODE_PORT_LAUNCH_ORDER;
  CHECK(EdgeValid(*kernel, EmptyNode{}, data));
  CHECK_FALSE(EdgeValid(*empty, EmptyNode{}, data));
  data.type = CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC;
  CHECK(EdgeValid(*kernel, KernelOf(2), data));
  CHECK_FALSE(EdgeValid(*kernel, EmptyNode{}, data));
  data.from_port = CU_GRAPH_KERNEL_NODE_PORT_DEFAULT;
  CHECK_FALSE(EdgeValid(*kernel, KernelOf(2), data));
  data = {};
  data.to_port = 1;
  CHECK_FALSE(EdgeValid(*kernel, KernelOf(2), data));
  data = {};
  data.reserved[3] = 1;
  CHECK_FALSE(EdgeValid(*kernel, KernelOf(2), data));
}

TEST_CASE("A removed node's edges are removed, too") {
  auto graph = MakeGraph(false);
  GraphNode* a = Put(*graph, EmptyNode{});
  GraphNode* b = Put(*graph, EmptyNode{}, {a});
  GraphNode* c = Put(*graph, EmptyNode{}, {a, b});
  RemoveNode(*b);
  REQUIRE(graph->nodes.size() == 2);
  CHECK(c->position == 1);
  REQUIRE(c->dependencies.size() == 1);
  CHECK(c->dependencies[0].node == a);
  REQUIRE(a->dependents.size() == 1);
  CHECK(a->dependents[0].node == c);
}

TEST_CASE("A clone has the same nodes and edges and knows its originals, children included") {
  const std::lock_guard lock(GraphMutex());
  auto inner = MakeGraph(true);
  GraphNode* leaf = Put(*inner, KernelOf(7));
  auto graph = MakeGraph(true);
  GraphNode* first = Put(*graph, KernelOf(1));
  GraphNode* child = Put(*graph, Child(std::move(inner)), {first});
  auto copy = CloneGraph(*graph, true);
  REQUIRE(copy != nullptr);
  CHECK(copy->original == graph->handle);
  REQUIRE(copy->nodes.size() == 2);
  CHECK(copy->nodes[0]->original == first->handle);
  CHECK(copy->nodes[0]->handle != first->handle);
  REQUIRE(copy->nodes[1]->dependencies.size() == 1);
  CHECK(copy->nodes[1]->dependencies[0].node == copy->nodes[0].get());
  const Graph& inner_copy = *std::get<ChildNode>(copy->nodes[1]->body).graph;
  CHECK(inner_copy.parent == copy.get());
  CHECK(inner_copy.handle != std::get<ChildNode>(child->body).graph->handle);
  REQUIRE(inner_copy.nodes.size() == 1);
  CHECK(inner_copy.nodes[0]->original == leaf->handle);
  CHECK(std::get<KernelNode>(inner_copy.nodes[0]->body).id == 7);
}

TEST_CASE("A snapshot of a snapshot still knows the program's nodes") {
  const std::lock_guard lock(GraphMutex());
  auto graph = MakeGraph(true);
  GraphNode* node = Put(*graph, EmptyNode{});
  auto snapshot = CloneGraph(*graph, false);
  CHECK(snapshot->nodes[0]->handle == 0);
  auto again = CloneGraph(*snapshot, false);
  CHECK(again->nodes[0]->original == node->handle);
}

TEST_CASE("The order keeps the program's where edges allow it") {
  auto graph = MakeGraph(false);
  GraphNode* a = Put(*graph, EmptyNode{});
  GraphNode* b = Put(*graph, EmptyNode{});
  GraphNode* c = Put(*graph, EmptyNode{});
  REQUIRE(AddEdge(*graph, c, a, {}) == CUDA_SUCCESS);
  std::vector<GraphNode*> order;
  REQUIRE(TopologicalOrder(*graph, &order));
  CHECK(order == std::vector<GraphNode*>{b, c, a});
}

TEST_CASE("A cycle is found") {
  auto graph = MakeGraph(false);
  GraphNode* a = Put(*graph, EmptyNode{});
  GraphNode* b = Put(*graph, EmptyNode{}, {a});
  GraphNode* c = Put(*graph, EmptyNode{});
  REQUIRE(AddEdge(*graph, b, a, {}) == CUDA_SUCCESS);
  std::vector<GraphNode*> order;
  CHECK_FALSE(TopologicalOrder(*graph, &order));
  CHECK(order == std::vector<GraphNode*>{c});
}

TEST_CASE("Memory of a graph is freed once, by its own graph or by others") {
  const std::lock_guard lock(GraphMutex());
  GraphNode* added = nullptr;
  for (const bool own_first : {false, true}) {
    auto owner = MakeGraph(true), other = MakeGraph(true);
    const auto memory = std::make_shared<GraphMemory>();
    memory->block = std::make_shared<GraphMemoryBlock>();  // so that no daemon is asked for one
    Put(*owner, AllocNode{memory});
    CHECK(AddNode(own_first ? *owner : *other, FreeNode{memory}, {}, &added) == CUDA_SUCCESS);
    CHECK(AddNode(*owner, FreeNode{memory}, {}, &added) == CUDA_ERROR_INVALID_VALUE);
    CHECK(AddNode(*other, FreeNode{memory}, {}, &added) == CUDA_ERROR_INVALID_VALUE);
  }
}

}  // namespace
}  // namespace detshare::shim
