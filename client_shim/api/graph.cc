// Graphs: their nodes, edges and copies.
#include "client_shim/work/graph/graph.h"

#include <algorithm>

#include "client_shim/work/graph/dot.h"
#include "client_shim/work/graph/user_objects.h"
#include "proto/driver_api/shim_api.h"

namespace detshare::shim::api {
namespace {

bool HasMemoryNodesHere(const Graph& graph) {
  return std::any_of(graph.nodes.begin(), graph.nodes.end(), [](const auto& node) {
    return std::holds_alternative<AllocNode>(node->body) ||
           std::holds_alternative<FreeNode>(node->body);
  });
}

bool Plain(const CUgraphEdgeData& data) {
  return data.from_port == 0 && data.to_port == 0 && data.type == 0;
}

// Returns a list as CUDA does. Without room, it returns the length. With room, it returns the first
// elements and their number, and sets the rest of the room to null.
template <typename Element, typename Write>
CUresult ReturnList(const std::vector<Element>& list, bool room, size_t* count, Write write) {
  if (!room) {
    *count = list.size();
    return CUDA_SUCCESS;
  }
  const size_t asked = *count;
  for (size_t i = 0; i < asked; ++i) write(i, i < list.size() ? &list[i] : nullptr);
  *count = std::min(asked, list.size());
  return CUDA_SUCCESS;
}

CUresult ReturnNodes(const std::vector<GraphNode*>& list, CUgraphNode* nodes, size_t* count) {
  return ReturnList(list, nodes != nullptr, count, [&](size_t i, GraphNode* const* node) {
    nodes[i] = node == nullptr ? nullptr : HandleOf(**node);
  });
}

CUresult ReturnEdges(const std::vector<GraphEdge>& list, CUgraphNode* nodes, CUgraphEdgeData* data,
                     size_t* count) {
  if (nodes == nullptr && data != nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (nodes != nullptr && *count == 0) return CUDA_ERROR_INVALID_VALUE;
  const bool lossy = nodes != nullptr && data == nullptr &&
                     std::any_of(list.begin(), list.end(),
                                 [](const GraphEdge& edge) { return !Plain(edge.data); });
  if (lossy) return CUDA_ERROR_LOSSY_QUERY;
  return ReturnList(list, nodes != nullptr, count, [&](size_t i, const GraphEdge* edge) {
    nodes[i] = edge == nullptr ? nullptr : HandleOf(*edge->node);
    if (data != nullptr) data[i] = edge == nullptr ? CUgraphEdgeData{} : edge->data;
  });
}

}  // namespace

CUresult cuGraphCreate(CUgraph* phGraph, unsigned int flags) {
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard lock(GraphMutex());
  std::unique_ptr<Graph> graph = MakeGraph(true);
  if (graph == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  *phGraph = HandleOf(*graph.release());
  return CUDA_SUCCESS;
}

CUresult cuGraphDestroy(CUgraph hGraph) {
  const std::lock_guard lock(GraphMutex());
  Graph* graph = FindGraph(hGraph);
  // Child graphs and bodies end with their nodes. A graph that a capture adds to ends with the
  // capture.
  if (graph == nullptr || graph->parent != nullptr || graph->captures != 0)
    return CUDA_ERROR_INVALID_VALUE;
  delete graph;
  return CUDA_SUCCESS;
}

CUresult cuGraphClone(CUgraph* phGraphClone, CUgraph originalGraph) {
  const std::lock_guard lock(GraphMutex());
  const Graph* graph = FindGraph(originalGraph);
  if (graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (HasMemoryNodes(*graph) || HasConditionalNodes(*graph)) return CUDA_ERROR_NOT_SUPPORTED;
  std::unique_ptr<Graph> copy = CloneGraph(*graph, true);
  if (copy == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  *phGraphClone = HandleOf(*copy.release());
  return CUDA_SUCCESS;
}

CUresult cuGraphNodeFindInClone(CUgraphNode* phNode, CUgraphNode hOriginalNode,
                                CUgraph hClonedGraph) {
  const std::lock_guard lock(GraphMutex());
  const GraphNode* original = FindNode(hOriginalNode);
  const Graph* clone = FindGraph(hClonedGraph);
  if (original == nullptr || clone == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *phNode = nullptr;
  for (const auto& node : clone->nodes) {
    if (node->original != original->handle) continue;
    *phNode = HandleOf(*node);
    return CUDA_SUCCESS;
  }
  return CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGraphNodeGetType(CUgraphNode hNode, CUgraphNodeType* type) {
  const std::lock_guard lock(GraphMutex());
  const GraphNode* node = FindNode(hNode);
  if (node == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *type = TypeOf(node->body);
  return CUDA_SUCCESS;
}

CUresult cuGraphGetNodes(CUgraph hGraph, CUgraphNode* nodes, size_t* numNodes) {
  const std::lock_guard lock(GraphMutex());
  const Graph* graph = FindGraph(hGraph);
  if (graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::vector<GraphNode*> list;
  for (const auto& node : graph->nodes) list.push_back(node.get());
  return ReturnNodes(list, nodes, numNodes);
}

CUresult cuGraphGetRootNodes(CUgraph hGraph, CUgraphNode* rootNodes, size_t* numRootNodes) {
  const std::lock_guard lock(GraphMutex());
  const Graph* graph = FindGraph(hGraph);
  if (graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::vector<GraphNode*> list;
  for (const auto& node : graph->nodes) {
    if (node->dependencies.empty()) list.push_back(node.get());
  }
  return ReturnNodes(list, rootNodes, numRootNodes);
}

CUresult cuGraphGetEdges(CUgraph hGraph, CUgraphNode* from, CUgraphNode* to, size_t* numEdges) {
  return api::cuGraphGetEdges_v2(hGraph, from, to, nullptr, numEdges);
}

CUresult cuGraphGetEdges_v2(CUgraph hGraph, CUgraphNode* from, CUgraphNode* to,
                            CUgraphEdgeData* edgeData, size_t* numEdges) {
  if ((from == nullptr) != (to == nullptr) || (from == nullptr && edgeData != nullptr))
    return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard lock(GraphMutex());
  const Graph* graph = FindGraph(hGraph);
  if (graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
  struct Edge {
    const GraphNode *from, *to;
    CUgraphEdgeData data;
  };
  std::vector<Edge> list;
  for (const auto& node : graph->nodes) {
    for (const GraphEdge& edge : node->dependents) {
      if (from != nullptr && edgeData == nullptr && !Plain(edge.data))
        return CUDA_ERROR_LOSSY_QUERY;
      list.push_back({node.get(), edge.node, edge.data});
    }
  }
  return ReturnList(list, from != nullptr, numEdges, [&](size_t i, const Edge* edge) {
    from[i] = edge == nullptr ? nullptr : HandleOf(*edge->from);
    to[i] = edge == nullptr ? nullptr : HandleOf(*edge->to);
    if (edgeData != nullptr) edgeData[i] = edge == nullptr ? CUgraphEdgeData{} : edge->data;
  });
}

CUresult cuGraphNodeGetDependencies(CUgraphNode hNode, CUgraphNode* dependencies,
                                    size_t* numDependencies) {
  return api::cuGraphNodeGetDependencies_v2(hNode, dependencies, nullptr, numDependencies);
}

CUresult cuGraphNodeGetDependencies_v2(CUgraphNode hNode, CUgraphNode* dependencies,
                                       CUgraphEdgeData* edgeData, size_t* numDependencies) {
  const std::lock_guard lock(GraphMutex());
  const GraphNode* node = FindNode(hNode);
  return node == nullptr ? CUDA_ERROR_INVALID_VALUE
                         : ReturnEdges(node->dependencies, dependencies, edgeData, numDependencies);
}

CUresult cuGraphNodeGetDependentNodes(CUgraphNode hNode, CUgraphNode* dependentNodes,
                                      size_t* numDependentNodes) {
  return api::cuGraphNodeGetDependentNodes_v2(hNode, dependentNodes, nullptr, numDependentNodes);
}

CUresult cuGraphNodeGetDependentNodes_v2(CUgraphNode hNode, CUgraphNode* dependentNodes,
                                         CUgraphEdgeData* edgeData, size_t* numDependentNodes) {
  const std::lock_guard lock(GraphMutex());
  const GraphNode* node = FindNode(hNode);
  return node == nullptr
             ? CUDA_ERROR_INVALID_VALUE
             : ReturnEdges(node->dependents, dependentNodes, edgeData, numDependentNodes);
}

CUresult cuGraphAddDependencies(CUgraph hGraph, const CUgraphNode* from, const CUgraphNode* to,
                                size_t numDependencies) {
  return api::cuGraphAddDependencies_v2(hGraph, from, to, nullptr, numDependencies);
}

CUresult cuGraphAddDependencies_v2(CUgraph hGraph, const CUgraphNode* from, const CUgraphNode* to,
                                   const CUgraphEdgeData* edgeData, size_t numDependencies) {
  if (numDependencies != 0 && (from == nullptr || to == nullptr)) return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard lock(GraphMutex());
  Graph* graph = FindGraph(hGraph);
  if (graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
  // As with driver 580: with an edge from a node to itself no edge is added.
  for (size_t i = 0; i < numDependencies; ++i) {
    if (from[i] == to[i]) return CUDA_ERROR_INVALID_VALUE;
  }
  for (size_t i = 0; i < numDependencies; ++i) {
    const CUresult result = AddEdge(*graph, FindNode(from[i]), FindNode(to[i]),
                                    edgeData == nullptr ? CUgraphEdgeData{} : edgeData[i]);
    // As with driver 580, the edges before another wrong one stay.
    if (result != CUDA_SUCCESS) return result;
  }
  return CUDA_SUCCESS;
}

CUresult cuGraphRemoveDependencies(CUgraph hGraph, const CUgraphNode* from, const CUgraphNode* to,
                                   size_t numDependencies) {
  return api::cuGraphRemoveDependencies_v2(hGraph, from, to, nullptr, numDependencies);
}

CUresult cuGraphRemoveDependencies_v2(CUgraph hGraph, const CUgraphNode* from,
                                      const CUgraphNode* to, const CUgraphEdgeData* edgeData,
                                      size_t numDependencies) {
  if (numDependencies != 0 && (from == nullptr || to == nullptr)) return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard lock(GraphMutex());
  Graph* graph = FindGraph(hGraph);
  if (graph == nullptr || HasMemoryNodesHere(*graph)) return CUDA_ERROR_INVALID_VALUE;
  // Without data an edge is plain.
  constexpr CUgraphEdgeData kPlain{};
  for (size_t i = 0; i < numDependencies; ++i) {
    const CUresult result = RemoveEdge(*graph, FindNode(from[i]), FindNode(to[i]),
                                       edgeData == nullptr ? &kPlain : &edgeData[i]);
    if (result != CUDA_SUCCESS) return result;
  }
  return CUDA_SUCCESS;
}

CUresult cuGraphDestroyNode(CUgraphNode hNode) {
  const std::lock_guard lock(GraphMutex());
  GraphNode* node = FindNode(hNode);
  if (node == nullptr || node->graph->captures != 0) return CUDA_ERROR_INVALID_VALUE;
  if (HasMemoryNodesHere(*node->graph)) return CUDA_ERROR_NOT_SUPPORTED;
  RemoveNode(*node);
  return CUDA_SUCCESS;
}

CUresult cuGraphDebugDotPrint(CUgraph hGraph, const char* path, unsigned int flags) {
  std::string text;
  {
    const std::lock_guard lock(GraphMutex());
    const Graph* graph = FindGraph(hGraph);
    if (graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
    text = DotText(*graph, flags);
  }
  return WriteDotFile(path, text) ? CUDA_SUCCESS : CUDA_ERROR_OPERATING_SYSTEM;
}

// ---- user objects

CUresult cuUserObjectCreate(CUuserObject* object_out, void* ptr, CUhostFn destroy,
                            unsigned int initialRefcount, unsigned int flags) {
  if (destroy == nullptr || initialRefcount == 0 || initialRefcount > INT32_MAX ||
      flags != CU_USER_OBJECT_NO_DESTRUCTOR_SYNC) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const std::lock_guard lock(GraphMutex());
  return CreateUserObject(ptr, destroy, initialRefcount, object_out);
}

CUresult cuUserObjectRetain(CUuserObject object, unsigned int count) {
  const std::lock_guard lock(GraphMutex());
  UserObject* found = FindUserObject(object);
  if (found == nullptr || count == 0 || count > INT32_MAX) return CUDA_ERROR_INVALID_VALUE;
  RetainUserObject(*found, count);
  return CUDA_SUCCESS;
}

CUresult cuUserObjectRelease(CUuserObject object, unsigned int count) {
  const std::lock_guard lock(GraphMutex());
  UserObject* found = FindUserObject(object);
  if (found == nullptr || count == 0 || count > found->references) return CUDA_ERROR_INVALID_VALUE;
  ReleaseUserObject(*found, count);
  return CUDA_SUCCESS;
}

CUresult cuGraphRetainUserObject(CUgraph graph, CUuserObject object, unsigned int count,
                                 unsigned int flags) {
  const std::lock_guard lock(GraphMutex());
  Graph* owner = FindGraph(graph);
  UserObject* found = FindUserObject(object);
  if (owner == nullptr || found == nullptr || count == 0 || count > INT32_MAX ||
      (flags & ~static_cast<unsigned int>(CU_GRAPH_USER_OBJECT_MOVE)) != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (flags != CU_GRAPH_USER_OBJECT_MOVE) {
    RetainUserObject(*found, count);
  } else if (count > found->references) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  owner->references[found] += count;
  return CUDA_SUCCESS;
}

CUresult cuGraphReleaseUserObject(CUgraph graph, CUuserObject object, unsigned int count) {
  const std::lock_guard lock(GraphMutex());
  Graph* owner = FindGraph(graph);
  UserObject* found = FindUserObject(object);
  if (owner == nullptr || found == nullptr || count == 0) return CUDA_ERROR_INVALID_VALUE;
  const auto held = owner->references.find(found);
  // As natively: a graph without references to the object has nothing to release.
  if (held == owner->references.end()) return CUDA_SUCCESS;
  if (held->second < count) return CUDA_ERROR_INVALID_VALUE;
  held->second -= count;
  if (held->second == 0) owner->references.erase(held);
  ReleaseUserObject(*found, count);
  return CUDA_SUCCESS;
}

}  // namespace detshare::shim::api
