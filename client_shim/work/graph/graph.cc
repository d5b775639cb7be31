#include "client_shim/work/graph/graph.h"

#include <algorithm>
#include <cstring>
#include <queue>
#include <utility>

#include "client_shim/work/graph/graph_memory.h"
#include "client_shim/work/graph/memory_reuse.h"
#include "client_shim/work/graph/user_objects.h"

namespace detshare::shim {
namespace {

// The objects of handles. Needs GraphMutex().
template <typename T>
struct Slot {
  T* object = nullptr;
};

struct Tables {
  HandleTable<Slot<Graph>> graphs;
  HandleTable<Slot<GraphNode>> nodes;
  std::mutex ended_mutex;  // guards the next field
  std::vector<EndedConditional> ended_conditionals;
};
Tables& tables() {
  static Tables* const all = new Tables;
  return *all;
}

template <typename T>
bool GiveHandle(HandleTable<Slot<T>>& table, HandleKind kind, T& object) {
  uint32_t index;
  Slot<T>* slot = table.Reserve(&index);
  if (slot == nullptr) return false;
  slot->object = &object;
  object.handle = table.Publish(kind, index);
  return true;
}

template <typename T>
void EndHandle(HandleTable<Slot<T>>& table, uint64_t handle) {
  if (handle == 0 || !table.Retire(handle)) return;
  table.Recycle(table.IndexOf(handle));
}

bool SameData(const CUgraphEdgeData& a, const CUgraphEdgeData& b) {
  return std::memcmp(&a, &b, sizeof(a)) == 0;
}

// Applies CUDA's rules for the memory that a new node allocates or frees.
CUresult TakeMemory(const Graph& graph, std::span<const GraphEdge> dependencies, NodeBody& body) {
  if (auto* alloc = std::get_if<AllocNode>(&body)) {
    GraphMemory& memory = *alloc->memory;
    // A copy of a node has a place.
    if (memory.block == nullptr) {
      const CUresult result =
          PlaceGraphMemory(alloc->memory, FindRoom(graph, dependencies, memory));
      if (result != CUDA_SUCCESS) return result;
    }
    memory.owner = graph.handle;
    alloc->description.dptr = memory.address;
  }
  const auto* free = std::get_if<FreeNode>(&body);
  if (free == nullptr) return CUDA_SUCCESS;
  GraphMemory& memory = *free->memory;
  const bool own = memory.owner == graph.handle;
  if (memory.freed_by_owner || (own && memory.freed_by_others)) return CUDA_ERROR_INVALID_VALUE;
  for (const auto& node : graph.nodes) {
    const auto* other = std::get_if<FreeNode>(&node->body);
    if (other != nullptr && other->memory == free->memory) return CUDA_ERROR_INVALID_VALUE;
  }
  (own ? memory.freed_by_owner : memory.freed_by_others) = true;
  return CUDA_SUCCESS;
}

void Forget(std::vector<GraphEdge>& edges, const GraphNode* node) {
  std::erase_if(edges, [node](const GraphEdge& edge) { return edge.node == node; });
}

}  // namespace

CUgraphNodeType TypeOf(const NodeBody& body) {
  static constexpr CUgraphNodeType kTypes[] = {
      CU_GRAPH_NODE_TYPE_EMPTY,        CU_GRAPH_NODE_TYPE_KERNEL,
      CU_GRAPH_NODE_TYPE_MEMCPY,       CU_GRAPH_NODE_TYPE_MEMSET,
      CU_GRAPH_NODE_TYPE_HOST,         CU_GRAPH_NODE_TYPE_GRAPH,
      CU_GRAPH_NODE_TYPE_EVENT_RECORD, CU_GRAPH_NODE_TYPE_WAIT_EVENT,
      CU_GRAPH_NODE_TYPE_MEM_ALLOC,    CU_GRAPH_NODE_TYPE_MEM_FREE,
      CU_GRAPH_NODE_TYPE_BATCH_MEM_OP, CU_GRAPH_NODE_TYPE_CONDITIONAL};
  static_assert(std::size(kTypes) == std::variant_size_v<NodeBody>);
  return kTypes[body.index()];
}

const NodeContext* ContextOf(const NodeBody& body) {
  return std::visit(
      [](const auto& node) -> const NodeContext* {
        if constexpr (requires { node.context; }) {
          return &node.context;
        } else {
          return nullptr;
        }
      },
      body);
}

std::mutex& GraphMutex() {
  static std::mutex* const mutex = new std::mutex;
  return *mutex;
}

GraphNode::~GraphNode() { EndHandle(tables().nodes, handle); }

Conditional::~Conditional() {
  const std::lock_guard lock(tables().ended_mutex);
  tables().ended_conditionals.push_back({context, id});
}

std::vector<EndedConditional> TakeEndedConditionals() {
  const std::lock_guard lock(tables().ended_mutex);
  return std::exchange(tables().ended_conditionals, {});
}

Graph::~Graph() {
  EndHandle(tables().graphs, handle);
  for (const auto& [object, count] : references) ReleaseUserObject(*object, count);
}

std::unique_ptr<Graph> MakeGraph(bool with_handle) {
  auto graph = std::make_unique<Graph>();
  if (with_handle && !GiveHandle(tables().graphs, HandleKind::kGraph, *graph)) return nullptr;
  return graph;
}

Graph* FindGraph(CUgraph handle) {
  const Slot<Graph>* slot =
      tables().graphs.Find(HandleKind::kGraph, reinterpret_cast<uint64_t>(handle));
  return slot == nullptr ? nullptr : slot->object;
}

GraphNode* FindNode(CUgraphNode handle) {
  const Slot<GraphNode>* slot =
      tables().nodes.Find(HandleKind::kGraphNode, reinterpret_cast<uint64_t>(handle));
  return slot == nullptr ? nullptr : slot->object;
}

bool EdgeValid(const GraphNode& from, const NodeBody& to, const CUgraphEdgeData& data) {
  static constexpr unsigned char kZero[sizeof(data.reserved)] = {};
  if (data.to_port != 0 || std::memcmp(data.reserved, kZero, sizeof(kZero)) != 0) return false;
  const bool kernel = std::holds_alternative<KernelNode>(from.body);
  if (data.from_port > CU_GRAPH_KERNEL_NODE_PORT_LAUNCH_ORDER || (data.from_port != 0 && !kernel))
    return false;
  switch (data.type) {
    case CU_GRAPH_DEPENDENCY_TYPE_DEFAULT:
      return data.from_port != CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC;
    case CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC:
      return data.from_port != 0 && std::holds_alternative<KernelNode>(to);
    default:
      return false;
  }
}

CUresult AddNode(Graph& graph, NodeBody body, std::span<const GraphEdge> dependencies,
                 GraphNode** added) {
  for (size_t i = 0; i < dependencies.size(); ++i) {
    const GraphEdge& edge = dependencies[i];
    if (edge.node == nullptr || edge.node->graph != &graph ||
        !EdgeValid(*edge.node, body, edge.data)) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    for (size_t j = 0; j < i; ++j) {
      if (dependencies[j].node == edge.node) return CUDA_ERROR_INVALID_VALUE;
    }
  }
  // A snapshot is a copy of a graph that was checked.
  if (graph.handle != 0) {
    if (const CUresult result = TakeMemory(graph, dependencies, body); result != CUDA_SUCCESS)
      return result;
  }
  auto node = std::make_unique<GraphNode>();
  if (graph.handle != 0 && !GiveHandle(tables().nodes, HandleKind::kGraphNode, *node))
    return CUDA_ERROR_OUT_OF_MEMORY;
  node->graph = &graph;
  node->position = static_cast<uint32_t>(graph.nodes.size());
  node->body = std::move(body);
  node->dependencies.assign(dependencies.begin(), dependencies.end());
  for (const GraphEdge& edge : dependencies)
    edge.node->dependents.push_back({node.get(), edge.data});
  if (auto* child = std::get_if<ChildNode>(&node->body)) child->graph->parent = &graph;
  if (auto* conditional = std::get_if<ConditionalNode>(&node->body)) {
    for (const auto& inner : conditional->bodies) inner->parent = &graph;
  }
  *added = node.get();
  graph.nodes.push_back(std::move(node));
  return CUDA_SUCCESS;
}

CUresult AddEdge(Graph& graph, GraphNode* from, GraphNode* to, const CUgraphEdgeData& data) {
  if (from == nullptr || to == nullptr || from == to || from->graph != &graph ||
      to->graph != &graph || !EdgeValid(*from, to->body, data)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  for (const GraphEdge& edge : to->dependencies) {
    if (edge.node == from) return CUDA_ERROR_INVALID_VALUE;
  }
  to->dependencies.push_back({from, data});
  from->dependents.push_back({to, data});
  return CUDA_SUCCESS;
}

CUresult RemoveEdge(Graph& graph, GraphNode* from, GraphNode* to, const CUgraphEdgeData* data) {
  if (from == nullptr || to == nullptr || from->graph != &graph || to->graph != &graph)
    return CUDA_ERROR_INVALID_VALUE;
  const auto edge =
      std::find_if(to->dependencies.begin(), to->dependencies.end(),
                   [from](const GraphEdge& candidate) { return candidate.node == from; });
  if (edge == to->dependencies.end() || (data != nullptr && !SameData(edge->data, *data)))
    return CUDA_ERROR_INVALID_VALUE;
  to->dependencies.erase(edge);
  Forget(from->dependents, to);
  return CUDA_SUCCESS;
}

void RemoveNode(GraphNode& node) {
  for (const GraphEdge& edge : node.dependencies) Forget(edge.node->dependents, &node);
  for (const GraphEdge& edge : node.dependents) Forget(edge.node->dependencies, &node);
  Graph& graph = *node.graph;
  const uint32_t position = node.position;
  graph.nodes.erase(graph.nodes.begin() + position);
  for (uint32_t i = position; i < graph.nodes.size(); ++i) graph.nodes[i]->position = i;
}

NodeBody CloneBody(const NodeBody& body, bool with_handles, bool* ok) {
  return std::visit(
      [&](const auto& node) -> NodeBody {
        using Node = std::decay_t<decltype(node)>;
        if constexpr (std::is_same_v<Node, ChildNode>) {
          ChildNode copy;
          copy.graph = CloneGraph(*node.graph, with_handles);
          copy.moved = node.moved;
          *ok = *ok && copy.graph != nullptr;
          return copy;
        } else if constexpr (std::is_same_v<Node, ConditionalNode>) {
          ConditionalNode copy;
          copy.context = node.context;
          copy.condition = node.condition;
          copy.owner = node.owner;
          copy.type = node.type;
          for (const auto& inner : node.bodies) {
            copy.bodies.push_back(CloneGraph(*inner, with_handles));
            if (copy.bodies.back() == nullptr) {
              *ok = false;
              break;
            }
            copy.handles.push_back(HandleOf(*copy.bodies.back()));
          }
          return copy;
        } else {
          return node;
        }
      },
      body);
}

std::unique_ptr<Graph> CloneGraph(const Graph& graph, bool with_handles) {
  std::unique_ptr<Graph> copy = MakeGraph(with_handles);
  if (copy == nullptr) return nullptr;
  copy->original = graph.handle != 0 ? graph.handle : graph.original;
  copy->nodes.reserve(graph.nodes.size());
  for (const auto& node : graph.nodes) {
    bool ok = true;
    NodeBody body = CloneBody(node->body, with_handles, &ok);
    GraphNode* added;
    if (!ok || AddNode(*copy, std::move(body), {}, &added) != CUDA_SUCCESS) return nullptr;
    added->original = node->handle != 0 ? node->handle : node->original;
    added->enabled = node->enabled;
  }
  const auto same = [&](const std::vector<GraphEdge>& edges) {
    std::vector<GraphEdge> copies;
    copies.reserve(edges.size());
    for (const GraphEdge& edge : edges)
      copies.push_back({copy->nodes[edge.node->position].get(), edge.data});
    return copies;
  };
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    copy->nodes[i]->dependencies = same(graph.nodes[i]->dependencies);
    copy->nodes[i]->dependents = same(graph.nodes[i]->dependents);
  }
  for (const auto& [object, count] : graph.references) {
    RetainUserObject(*object, count);
    copy->references[object] = count;
  }
  return copy;
}

bool TopologicalOrder(const Graph& graph, std::vector<GraphNode*>* order) {
  std::vector<uint32_t> missing(graph.nodes.size());
  const auto later = [](const GraphNode* a, const GraphNode* b) {
    return a->position > b->position;
  };
  std::priority_queue<GraphNode*, std::vector<GraphNode*>, decltype(later)> ready(later);
  for (const auto& node : graph.nodes) {
    missing[node->position] = static_cast<uint32_t>(node->dependencies.size());
    if (node->dependencies.empty()) ready.push(node.get());
  }
  order->clear();
  order->reserve(graph.nodes.size());
  while (!ready.empty()) {
    GraphNode* node = ready.top();
    ready.pop();
    order->push_back(node);
    for (const GraphEdge& edge : node->dependents) {
      if (--missing[edge.node->position] == 0) ready.push(edge.node);
    }
  }
  return order->size() == graph.nodes.size();
}

bool AnyNode(const Graph& graph, bool (*test)(const GraphNode&)) {
  for (const auto& node : graph.nodes) {
    if (test(*node)) return true;
    if (const auto* child = std::get_if<ChildNode>(&node->body)) {
      if (AnyNode(*child->graph, test)) return true;
    }
    if (const auto* conditional = std::get_if<ConditionalNode>(&node->body)) {
      for (const auto& inner : conditional->bodies) {
        if (AnyNode(*inner, test)) return true;
      }
    }
  }
  return false;
}

bool HasMemoryNodes(const Graph& graph) {
  return AnyNode(graph, [](const GraphNode& node) {
    return std::holds_alternative<AllocNode>(node.body) ||
           std::holds_alternative<FreeNode>(node.body);
  });
}

bool HasConditionalNodes(const Graph& graph) {
  return AnyNode(graph, [](const GraphNode& node) {
    return std::holds_alternative<ConditionalNode>(node.body);
  });
}

}  // namespace detshare::shim
