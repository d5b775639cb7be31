#include "client_shim/work/graph/update.h"

#include <catch2/catch.hpp>
#include <memory>
#include <utility>

#include "client_shim/work/graph/graph_memory.h"
#include "proto/wire/launch.h"
#include "tests/client_shim/work/graph/graph_maker.h"

namespace detshare::shim {
namespace {

struct Checked {
  CUresult reply;
  CUgraphExecUpdateResultInfo info;
};

Checked Check(const Graph& before, const Graph& after, bool priorities = false) {
  Checked checked{};
  checked.reply = CheckUpdate(before, after, priorities, &checked.info);
  return checked;
}

TEST_CASE("Parameters of nodes may change") {
  auto before = MakeGraph(false), after = MakeGraph(false);
  Put(*before, KernelOf(1, 10), {Put(*before, EmptyNode{})});
  Put(*after, KernelOf(2, 20), {Put(*after, EmptyNode{})});
  CHECK(Check(*before, *after).reply == CUDA_SUCCESS);
}

TEST_CASE("Another number of nodes or edges is another topology") {
  const std::lock_guard lock(GraphMutex());
  auto before = MakeGraph(true), more = MakeGraph(true), edges = MakeGraph(true);
  GraphNode* a = Put(*before, EmptyNode{});
  Put(*before, EmptyNode{}, {a});
  Put(*more, EmptyNode{});
  GraphNode* loose = Put(*edges, EmptyNode{});
  Put(*edges, EmptyNode{});
  Checked checked = Check(*before, *more);
  CHECK(checked.reply == CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
  CHECK(checked.info.result == CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED);
  CHECK(checked.info.errorNode == nullptr);
  checked = Check(*before, *edges);
  CHECK(checked.info.result == CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED);
  CHECK(checked.info.errorNode == HandleOf(*loose));
}

TEST_CASE("Graphs are compared from their last end, the number of edges before the type") {
  const std::lock_guard lock(GraphMutex());
  auto before = MakeGraph(true), types = MakeGraph(true), edges = MakeGraph(true);
  auto fewer = MakeGraph(true);
  GraphNode* a = Put(*before, EmptyNode{});
  Put(*before, EmptyNode{});
  Put(*before, EmptyNode{}, {a});
  GraphNode* b = Put(*types, KernelOf(1));
  Put(*types, KernelOf(2));
  GraphNode* last = Put(*types, KernelOf(3), {b});
  Checked checked = Check(*before, *types);
  CHECK(checked.info.result == CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED);
  CHECK(checked.info.errorNode == HandleOf(*last));
  GraphNode* c = Put(*edges, EmptyNode{});
  Put(*edges, EmptyNode{}, {c});
  GraphNode* loose = Put(*edges, KernelOf(3));
  checked = Check(*before, *edges);
  CHECK(checked.info.result == CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED);
  CHECK(checked.info.errorNode == HandleOf(*loose));
  GraphNode* d = Put(*fewer, EmptyNode{});
  Put(*fewer, EmptyNode{}, {Put(*fewer, EmptyNode{}, {d})});
  checked = Check(*before, *fewer);
  CHECK(checked.info.result == CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED);
  CHECK(checked.info.errorNode == nullptr);
}

TEST_CASE("An edge from another node names both ends") {
  const std::lock_guard lock(GraphMutex());
  auto before = MakeGraph(true), after = MakeGraph(true);
  GraphNode* a = Put(*before, EmptyNode{});
  Put(*before, EmptyNode{});
  Put(*before, EmptyNode{}, {a});
  Put(*after, EmptyNode{});
  GraphNode* b = Put(*after, EmptyNode{});
  GraphNode* end = Put(*after, EmptyNode{}, {b});
  const Checked checked = Check(*before, *after);
  CHECK(checked.info.result == CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED);
  CHECK(checked.info.errorNode == HandleOf(*end));
  CHECK(checked.info.errorFromNode == HandleOf(*b));
}

TEST_CASE("A node of another type is named, also in a child") {
  const std::lock_guard lock(GraphMutex());
  auto before_child = MakeGraph(true), after_child = MakeGraph(true);
  Put(*before_child, EmptyNode{});
  GraphNode* changed = Put(*after_child, KernelOf(1));
  auto before = MakeGraph(true), after = MakeGraph(true);
  Put(*before, Child(std::move(before_child)));
  Put(*after, Child(std::move(after_child)));
  const Checked checked = Check(*before, *after);
  CHECK(checked.info.result == CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED);
  CHECK(checked.info.errorNode == HandleOf(*changed));
}

TEST_CASE("Kernels keep their context, their kind of launch, and their priority if it matters") {
  KernelNode kernel = KernelOf(1);
  KernelNode elsewhere = kernel, cooperative = kernel, urgent = kernel;
  elsewhere.context.id = 2;
  cooperative.launch.flags |= wire::kLaunchCooperative;
  urgent.launch.priority = -1;
  CHECK(CheckNodeUpdate(kernel, elsewhere, false) ==
        CU_GRAPH_EXEC_UPDATE_ERROR_UNSUPPORTED_FUNCTION_CHANGE);
  CHECK(CheckNodeUpdate(kernel, cooperative, false) ==
        CU_GRAPH_EXEC_UPDATE_ERROR_ATTRIBUTES_CHANGED);
  CHECK(CheckNodeUpdate(kernel, urgent, false) == CU_GRAPH_EXEC_UPDATE_SUCCESS);
  CHECK(CheckNodeUpdate(kernel, urgent, true) == CU_GRAPH_EXEC_UPDATE_ERROR_ATTRIBUTES_CHANGED);
}

TEST_CASE("Copies keep their kind of memory, and their shape unless they are linear") {
  char host[16];
  const CopyNode linear = CopyOf(OnDevice(1), OnDevice(2), 16);
  CHECK(CheckNodeUpdate(linear, CopyOf(OnDevice(3), OnDevice(4), 8), false) ==
        CU_GRAPH_EXEC_UPDATE_SUCCESS);
  CHECK(CheckNodeUpdate(linear, CopyOf(Pageable(host), OnDevice(4), 16), false) ==
        CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED);
  const CopyNode pinned = CopyOf(OnDevice(1), Place{2, 2}, 16);
  CHECK(CheckNodeUpdate(pinned, pinned, false) == CU_GRAPH_EXEC_UPDATE_SUCCESS);
  CHECK(CheckNodeUpdate(pinned, linear, false) == CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED);
  CopyNode rows = linear;
  rows.height = 2;
  CopyNode wider = rows;
  wider.width = 8;
  CHECK(CheckNodeUpdate(rows, rows, false) == CU_GRAPH_EXEC_UPDATE_SUCCESS);
  CHECK(CheckNodeUpdate(rows, wider, false) == CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED);
}

TEST_CASE("Only address and value of a memset of several rows may change") {
  FillNode rows;
  rows.description = {0x1000, 64, 1, 4, 8, 2};
  FillNode moved = rows;
  moved.description.dst = 0x2000;
  moved.description.value = 2;
  FillNode narrower = rows, apart = rows, bytes = rows, lower = rows;
  narrower.description.width = 4;
  apart.description.pitch = 128;
  bytes.description.elementSize = 1;
  lower.description.height = 1;
  CHECK(CheckNodeUpdate(rows, moved, false) == CU_GRAPH_EXEC_UPDATE_SUCCESS);
  for (const FillNode& other : {narrower, apart, bytes, lower}) {
    CHECK(CheckNodeUpdate(rows, other, false) == CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED);
  }
}

TEST_CASE("Operations on memory keep their number, their kinds and their flags") {
  MemoryOpsNode waits;
  waits.operations.resize(1);
  waits.operations[0].operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
  MemoryOpsNode moved = waits, writes = waits, two = waits, flagged = waits;
  moved.operations[0].waitValue.address = 0x1000;
  writes.operations[0].operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
  two.operations.push_back(waits.operations[0]);
  flagged.flags = 1;
  CHECK(CheckNodeUpdate(waits, moved, false) == CU_GRAPH_EXEC_UPDATE_SUCCESS);
  for (const MemoryOpsNode& other : {writes, two, flagged}) {
    CHECK(CheckNodeUpdate(waits, other, false) == CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED);
  }
}

TEST_CASE("Allocations keep their memory, and conditional nodes their type and number of bodies") {
  const auto one = std::make_shared<GraphMemory>(), other = std::make_shared<GraphMemory>();
  CHECK(CheckNodeUpdate(AllocNode{one}, AllocNode{one}, false) == CU_GRAPH_EXEC_UPDATE_SUCCESS);
  CHECK(CheckNodeUpdate(AllocNode{one}, AllocNode{other}, false) ==
        CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED);
  CHECK(CheckNodeUpdate(FreeNode{one}, FreeNode{one}, false) == CU_GRAPH_EXEC_UPDATE_SUCCESS);
  CHECK(CheckNodeUpdate(FreeNode{one}, FreeNode{other}, false) ==
        CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED);
  const auto conditional = [](CUgraphConditionalNodeType type, size_t bodies) {
    ConditionalNode node;
    node.type = type;
    node.bodies.resize(bodies);
    return NodeBody(std::move(node));
  };
  const NodeBody branches = conditional(CU_GRAPH_COND_TYPE_IF, 1);
  CHECK(CheckNodeUpdate(branches, conditional(CU_GRAPH_COND_TYPE_IF, 1), false) ==
        CU_GRAPH_EXEC_UPDATE_SUCCESS);
  CHECK(CheckNodeUpdate(branches, conditional(CU_GRAPH_COND_TYPE_IF, 2), false) ==
        CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED);
  CHECK(CheckNodeUpdate(branches, conditional(CU_GRAPH_COND_TYPE_WHILE, 1), false) ==
        CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED);
}

TEST_CASE("Copies, memsets and operations on memory keep their context") {
  const auto check = [](auto node) {
    auto elsewhere = node;
    elsewhere.context.id = 2;
    CHECK(CheckNodeUpdate(node, node, false) == CU_GRAPH_EXEC_UPDATE_SUCCESS);
    CHECK(CheckNodeUpdate(node, elsewhere, false) == CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED);
  };
  check(CopyOf(OnDevice(1), OnDevice(2), 16));
  check(FillNode{});
  check(MemoryOpsNode{});
}

TEST_CASE("An edge of another type is another topology") {
  const std::lock_guard lock(GraphMutex());
  auto before = MakeGraph(true), after = MakeGraph(true);
  GraphNode* ends[2] = {};
  CUgraphEdgeData programmatic{};
  programmatic.from_port = CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC;
  programmatic.type = CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC;
  for (Graph* graph : {before.get(), after.get()}) {
    for (GraphNode*& end : ends) end = Put(*graph, KernelOf(1));
    REQUIRE(AddEdge(*graph, ends[0], ends[1],
                    graph == after.get() ? programmatic : CUgraphEdgeData{}) == CUDA_SUCCESS);
  }
  const Checked checked = Check(*before, *after);
  CHECK(checked.info.result == CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED);
  CHECK(checked.info.errorNode == HandleOf(*ends[1]));
  CHECK(checked.info.errorFromNode == HandleOf(*ends[0]));
  CHECK(Check(*after, *after).reply == CUDA_SUCCESS);
}

}  // namespace
}  // namespace detshare::shim
