// Graphs as the program makes them: nodes, edges, children. They exist in this process only; the
// daemon is given executable graphs (executable.h).
//
// One lock, GraphMutex(), guards all graphs and captures of the process: whoever calls anything
// here holds it, but for graphs that nobody else can reach (snapshots).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "client_shim/base/handle_table.h"
#include "client_shim/work/graph/node.h"

namespace detshare::shim {

struct GraphNode;
struct UserObject;

struct GraphEdge {
  GraphNode* node = nullptr;  // the other end
  CUgraphEdgeData data{};
};

struct GraphNode {
  uint64_t handle = 0;    // CUgraphNode; 0 in a snapshot
  uint64_t original = 0;  // handle of the node that this one is a copy of; 0: none
  Graph* graph = nullptr;
  uint32_t position = 0;  // in graph->nodes
  bool enabled = true;    // of executable graphs
  NodeBody body;
  std::vector<GraphEdge> dependencies;
  std::vector<GraphEdge> dependents;

  ~GraphNode();
};

struct Graph {
  uint64_t handle = 0;      // CUgraph; 0 of a snapshot
  uint64_t original = 0;    // handle of the graph that this one is a copy of; 0: none
  Graph* parent = nullptr;  // the graph with the node that owns this one; null: nobody's
  std::vector<std::unique_ptr<GraphNode>> nodes;  // in the order in which they were added
  std::map<UserObject*, uint64_t> references;     // to user objects
  uint32_t captures = 0;                          // that add to it
  uint32_t executables = 0;                       // that were made of it and live
  // Ids of the conditional handles that were made for it: a handle is the low 32 bits of its id.
  std::vector<uint64_t> conditionals;

  Graph() = default;
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  // Ends the handles of the graph and its nodes, and gives its references back.
  ~Graph();
};

std::mutex& GraphMutex();

// A new graph. Without a handle it is a snapshot, known to its maker only. Null: no handles left.
std::unique_ptr<Graph> MakeGraph(bool with_handle);

// Null for every other number.
Graph* FindGraph(CUgraph handle);
GraphNode* FindNode(CUgraphNode handle);
inline CUgraph HandleOf(const Graph& graph) { return reinterpret_cast<CUgraph>(graph.handle); }
inline CUgraphNode HandleOf(const GraphNode& node) {
  return reinterpret_cast<CUgraphNode>(node.handle);
}

// Whether edges with this data may leave `from` for `to`.
bool EdgeValid(const GraphNode& from, const NodeBody& to, const CUgraphEdgeData& data);

// Adds a node behind its dependencies, which are nodes of the graph, each named once, with valid
// edges (checked: CUDA_ERROR_INVALID_VALUE). Owns the graphs in its body from then on.
CUresult AddNode(Graph& graph, NodeBody body, std::span<const GraphEdge> dependencies,
                 GraphNode** node);
// CUDA_ERROR_INVALID_VALUE: the ends are not two nodes of the graph, or there is such an edge.
CUresult AddEdge(Graph& graph, GraphNode* from, GraphNode* to, const CUgraphEdgeData& data);
// CUDA_ERROR_INVALID_VALUE: there is no such edge with such data (null: whatever data).
CUresult RemoveEdge(Graph& graph, GraphNode* from, GraphNode* to, const CUgraphEdgeData* data);
// With its edges.
void RemoveNode(GraphNode& node);

// A copy of the graph, its children and the bodies of its conditional nodes. Nodes of the copy say
// whose copies they are. Null: no handles left.
std::unique_ptr<Graph> CloneGraph(const Graph& graph, bool with_handles);
// The same for what one node does.
NodeBody CloneBody(const NodeBody& body, bool with_handles, bool* ok);

// The nodes, each behind those that it depends on, else as they were added. False: there is a
// cycle, and `order` holds the nodes that are not in it or behind it.
bool TopologicalOrder(const Graph& graph, std::vector<GraphNode*>* order);

// Whether the graph, a child or a body has a node for which `test` is true.
bool AnyNode(const Graph& graph, bool (*test)(const GraphNode&));
bool HasMemoryNodes(const Graph& graph);
bool HasConditionalNodes(const Graph& graph);

}  // namespace detshare::shim
