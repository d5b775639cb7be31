#include "client_shim/work/graph/update.h"

#include <cstring>
#include <utility>
#include <vector>

#include "client_shim/work/graph/graph_memory.h"
#include "proto/wire/launch.h"

namespace detshare::shim {
namespace {

CUgraphExecUpdateResult Parameters(bool same) {
  return same ? CU_GRAPH_EXEC_UPDATE_SUCCESS : CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
}

CUgraphExecUpdateResult Compare(const KernelNode& before, const KernelNode& after,
                                bool node_priorities) {
  if (before.context.id != after.context.id)
    return CU_GRAPH_EXEC_UPDATE_ERROR_UNSUPPORTED_FUNCTION_CHANGE;
  const uint32_t changed = before.launch.flags ^ after.launch.flags;
  if ((changed & wire::kLaunchCooperative) != 0 ||
      (node_priorities && before.launch.priority != after.launch.priority)) {
    return CU_GRAPH_EXEC_UPDATE_ERROR_ATTRIBUTES_CHANGED;
  }
  return CU_GRAPH_EXEC_UPDATE_SUCCESS;
}

// Memory of the host stays memory of the host, pinned or not.
bool SameSide(const PitchedPlace& before, const PitchedPlace& after) {
  return before.pageable() == after.pageable() && before.on_host() == after.on_host() &&
         before.in_array() == after.in_array();
}

CUgraphExecUpdateResult Compare(const CopyNode& before, const CopyNode& after) {
  const bool linear =
      before.height == 1 && before.depth == 1 && after.height == 1 && after.depth == 1;
  const bool same =
      before.width == after.width && before.height == after.height && before.depth == after.depth;
  return Parameters(before.context.id == after.context.id && SameSide(before.to, after.to) &&
                    SameSide(before.from, after.from) && (linear || same));
}

CUgraphExecUpdateResult Compare(const FillNode& before, const FillNode& after) {
  const CUDA_MEMSET_NODE_PARAMS& was = before.description;
  const CUDA_MEMSET_NODE_PARAMS& is = after.description;
  const bool fits = was.height == 1
                        ? is.height == 1
                        : was.height == is.height && was.width == is.width &&
                              was.pitch == is.pitch && was.elementSize == is.elementSize;
  return Parameters(before.context.id == after.context.id && fits);
}

CUgraphExecUpdateResult Compare(const MemoryOpsNode& before, const MemoryOpsNode& after) {
  bool same = before.context.id == after.context.id && before.flags == after.flags &&
              before.operations.size() == after.operations.size();
  for (size_t i = 0; same && i < before.operations.size(); ++i)
    same = before.operations[i].operation == after.operations[i].operation;
  return Parameters(same);
}

CUresult Fail(CUgraphExecUpdateResult result, const GraphNode* node, const GraphNode* from,
              CUgraphExecUpdateResultInfo* info) {
  info->result = result;
  info->errorNode = node == nullptr ? nullptr : HandleOf(*node);
  info->errorFromNode = from == nullptr ? nullptr : HandleOf(*from);
  return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
}

std::vector<const GraphNode*> NodesWithoutDependents(const Graph& graph) {
  std::vector<const GraphNode*> ends;
  for (auto node = graph.nodes.rbegin(); node != graph.nodes.rend(); ++node) {
    if ((*node)->dependents.empty()) ends.push_back(node->get());
  }
  return ends;
}

// Pairs the nodes of both graphs from their ends, the last one first, as driver 580 does. It finds
// other topologies and other types before it looks at parameters. The node that an error names
// depends on this order.
CUresult CheckShapes(const Graph& before, const Graph& after, CUgraphExecUpdateResultInfo* info) {
  const std::vector<const GraphNode*> old_ends = NodesWithoutDependents(before);
  const std::vector<const GraphNode*> ends = NodesWithoutDependents(after);
  if (old_ends.size() != ends.size()) {
    const GraphNode* extra = ends.size() > old_ends.size() ? ends[old_ends.size()] : nullptr;
    return Fail(CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, extra, nullptr, info);
  }
  std::vector<bool> paired(after.nodes.size());
  std::vector<std::pair<const GraphNode*, const GraphNode*>> pairs;
  for (size_t i = 0; i < ends.size(); ++i) {
    pairs.emplace_back(old_ends[i], ends[i]);
    paired[ends[i]->position] = true;
  }
  for (size_t i = 0; i < pairs.size(); ++i) {
    const GraphNode& was = *pairs[i].first;
    const GraphNode& is = *pairs[i].second;
    if (was.dependencies.size() != is.dependencies.size())
      return Fail(CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, &is, nullptr, info);
    if (was.body.index() != is.body.index())
      return Fail(CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED, &is, nullptr, info);
    for (size_t j = 0; j < is.dependencies.size(); ++j) {
      const GraphNode* node = is.dependencies[j].node;
      if (paired[node->position]) continue;
      paired[node->position] = true;
      pairs.emplace_back(was.dependencies[j].node, node);
    }
  }
  return CUDA_SUCCESS;
}

}  // namespace

CUgraphExecUpdateResult CheckNodeUpdate(const NodeBody& before, const NodeBody& after,
                                        bool node_priorities) {
  if (before.index() != after.index()) return CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED;
  return std::visit(
      [&](const auto& was) -> CUgraphExecUpdateResult {
        using Node = std::decay_t<decltype(was)>;
        const Node& is = std::get<Node>(after);
        if constexpr (std::is_same_v<Node, KernelNode>) {
          return Compare(was, is, node_priorities);
        } else if constexpr (std::is_same_v<Node, CopyNode> || std::is_same_v<Node, FillNode> ||
                             std::is_same_v<Node, MemoryOpsNode>) {
          return Compare(was, is);
        } else if constexpr (std::is_same_v<Node, AllocNode> || std::is_same_v<Node, FreeNode>) {
          return Parameters(was.memory == is.memory);
        } else if constexpr (std::is_same_v<Node, ConditionalNode>) {
          return Parameters(was.type == is.type && was.bodies.size() == is.bodies.size());
        } else {
          return CU_GRAPH_EXEC_UPDATE_SUCCESS;
        }
      },
      before);
}

CUresult CheckUpdate(const Graph& before, const Graph& after, bool node_priorities,
                     CUgraphExecUpdateResultInfo* info) {
  *info = {};
  if (before.nodes.size() != after.nodes.size())
    return Fail(CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, nullptr, nullptr, info);
  if (const CUresult result = CheckShapes(before, after, info); result != CUDA_SUCCESS)
    return result;
  for (size_t i = 0; i < after.nodes.size(); ++i) {
    const GraphNode& was = *before.nodes[i];
    const GraphNode& is = *after.nodes[i];
    const CUgraphExecUpdateResult result = CheckNodeUpdate(was.body, is.body, node_priorities);
    if (result != CU_GRAPH_EXEC_UPDATE_SUCCESS) return Fail(result, &is, nullptr, info);
    if (was.dependencies.size() != is.dependencies.size())
      return Fail(CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, &is, nullptr, info);
    for (size_t j = 0; j < is.dependencies.size(); ++j) {
      const GraphEdge& old_edge = was.dependencies[j];
      const GraphEdge& edge = is.dependencies[j];
      if (old_edge.node->position != edge.node->position ||
          std::memcmp(&old_edge.data, &edge.data, sizeof(edge.data)) != 0) {
        return Fail(CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, &is, edge.node, info);
      }
    }
    if (const auto* child = std::get_if<ChildNode>(&is.body)) {
      const Graph& old_child = *std::get<ChildNode>(was.body).graph;
      const CUresult inner = CheckUpdate(old_child, *child->graph, node_priorities, info);
      if (inner != CUDA_SUCCESS) return inner;
    }
    if (const auto* conditional = std::get_if<ConditionalNode>(&is.body)) {
      const auto& old_bodies = std::get<ConditionalNode>(was.body).bodies;
      for (size_t j = 0; j < conditional->bodies.size(); ++j) {
        const CUresult inner =
            CheckUpdate(*old_bodies[j], *conditional->bodies[j], node_priorities, info);
        if (inner != CUDA_SUCCESS) return inner;
      }
    }
  }
  return CUDA_SUCCESS;
}

}  // namespace detshare::shim
