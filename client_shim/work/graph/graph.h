// Graphs as the program makes them: nodes, edges, children. They exist only in this process; the
// daemon gets executable graphs (executable.h).
//
// One lock, GraphMutex(), guards all graphs and captures of the process. Callers of these functions
// hold it, except for graphs that no other thread can reach (snapshots).
// A holder may wait for the daemon (memory of a new node), so the thread of host functions never
// takes it.
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
  uint64_t original = 0;  // handle of the node of which this is a copy; 0: none
  Graph* graph = nullptr;
  uint32_t position = 0;  // in graph->nodes
  bool enabled = true;    // of executable graphs
  NodeBody body;
  std::vector<GraphEdge> dependencies;
  std::vector<GraphEdge> dependents;

  ~GraphNode();
};

struct Graph {
  uint64_t handle = 0;      // CUgraph; 0: this is a snapshot
  uint64_t original = 0;    // handle of the graph of which this is a copy; 0: none
  Graph* parent = nullptr;  // the graph whose node owns this graph; null: no node owns it
  std::vector<std::unique_ptr<GraphNode>> nodes;  // in the order in which they were added
  std::map<UserObject*, uint64_t> references;     // to user objects, with their numbers
  uint32_t captures = 0;                          // captures that add nodes to it
  uint32_t executables = 0;                       // living executable graphs that were made of it
  // The conditional handles that were made for this graph.
  std::vector<std::shared_ptr<const Conditional>> conditionals;

  Graph() = default;
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  // Ends the handles of the graph and its nodes, and releases its references.
  ~Graph();
};

std::mutex& GraphMutex();

struct EndedConditional {
  NodeContext context;
  uint64_t id = 0;
};
// The conditional handles that have ended since the last call, and of which the daemon does not know
// that. They end under GraphMutex(), where nobody may wait for room in the ring.
std::vector<EndedConditional> TakeEndedConditionals();

// Makes a graph. A graph without a handle is a snapshot, which only its maker knows. Null: no
// handle is left.
std::unique_ptr<Graph> MakeGraph(bool with_handle);

// Null for every other number.
Graph* FindGraph(CUgraph handle);
GraphNode* FindNode(CUgraphNode handle);
inline CUgraph HandleOf(const Graph& graph) { return reinterpret_cast<CUgraph>(graph.handle); }
inline CUgraphNode HandleOf(const GraphNode& node) {
  return reinterpret_cast<CUgraphNode>(node.handle);
}

// Whether an edge with this data may lead from `from` to `to`.
bool EdgeValid(const GraphNode& from, const NodeBody& to, const CUgraphEdgeData& data);

// Adds a node behind its dependencies. These must be nodes of the graph, each named once, with
// valid edges; otherwise CUDA_ERROR_INVALID_VALUE. The graph then owns the graphs in the body. The
// memory of an AllocNode gets its address here, because it depends on the graph's other memory.
CUresult AddNode(Graph& graph, NodeBody body, std::span<const GraphEdge> dependencies,
                 GraphNode** node);
// CUDA_ERROR_INVALID_VALUE: `from` and `to` are not two nodes of the graph, or the edge exists.
CUresult AddEdge(Graph& graph, GraphNode* from, GraphNode* to, const CUgraphEdgeData& data);
// CUDA_ERROR_INVALID_VALUE: there is no such edge with this data (null: any data).
CUresult RemoveEdge(Graph& graph, GraphNode* from, GraphNode* to, const CUgraphEdgeData* data);
// Removes the node and its edges.
void RemoveNode(GraphNode& node);

// Copies the graph, its children and the bodies of its conditional nodes. Each copied node has its
// original's handle. Null: no handle is left.
std::unique_ptr<Graph> CloneGraph(const Graph& graph, bool with_handles);
// The same for the body of a node. `*ok` is false if no handle is left.
NodeBody CloneBody(const NodeBody& body, bool with_handles, bool* ok);

// Sorts the nodes so that each comes after its dependencies, and otherwise as they were added.
// Returns false if there is a cycle; `order` then holds the nodes that are neither in it nor behind
// it.
bool TopologicalOrder(const Graph& graph, std::vector<GraphNode*>* order);

// Whether `test` is true for a node of the graph, of a child or of a body.
bool AnyNode(const Graph& graph, bool (*test)(const GraphNode&));
bool HasMemoryNodes(const Graph& graph);
bool HasConditionalNodes(const Graph& graph);

}  // namespace detshare::shim
