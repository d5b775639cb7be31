#include "server/session/graph_payload.h"

#include <algorithm>
#include <tuple>

#include "coroutine_runtime/status_cuda.h"
#include "policy/status_macros.h"
#include "proto/wire/copy.h"
#include "proto/wire/launch.h"
#include "server/session/payload_reader.h"

namespace detshare {
namespace {

using wire::GraphNodeKind;

absl::Status TooMuch(std::string_view what) { return CudaError(kCudaErrorOutOfMemory, what); }

// Returns the size of the fixed part of a node's contents, UINT64_MAX for an unknown kind. Sets
// `*exact` when no bytes may follow the fixed part.
uint64_t FixedBytes(uint32_t kind, bool* exact) {
  *exact = kind != wire::kNodeKernel && kind != wire::kNodeMemoryOps;
  switch (kind) {
    case wire::kNodeEmpty:
      return 0;
    case wire::kNodeKernel:
      return sizeof(wire::cuLaunchKernelEx);
    case wire::kNodeCopy:
      return sizeof(wire::cuMemcpy3DAsync_v2);
    case wire::kNodeFill:
      return sizeof(wire::cuMemsetD2D32Async);
    case wire::kNodeSignal:
    case wire::kNodeWait:
      return sizeof(wire::GraphFence);
    case wire::kNodeEventRecord:
    case wire::kNodeEventWait:
      return sizeof(wire::GraphEvent);
    case wire::kNodeMemoryOps:
      return sizeof(wire::GraphMemoryOps);
    case wire::kNodeConditional:
      return sizeof(wire::GraphConditional);
  }
  return UINT64_MAX;
}

bool MayBeDisabled(uint32_t kind) {
  return kind == wire::kNodeKernel || kind == wire::kNodeCopy || kind == wire::kNodeFill;
}

bool MayBeInBody(GraphNodeKind kind) {
  return kind == wire::kNodeEmpty || kind == wire::kNodeConditional || MayBeDisabled(kind);
}

absl::Status ReadNode(PayloadReader& reader, ParsedNode* node) {
  wire::GraphNode head;
  std::span<const uint8_t> padding;
  if (!reader.Struct(&head) || !reader.Bytes(head.bytes, &node->contents) ||
      !reader.Bytes((8 - head.bytes % 8) % 8, &padding)) {
    return InvalidValue("a node that extends beyond the payload");
  }
  bool exact = false;
  const uint64_t fixed = FixedBytes(head.kind, &exact);
  if (fixed == UINT64_MAX) return InvalidValue("an unknown kind of node");
  if (head.bytes < fixed || (exact && head.bytes != fixed)) {
    return InvalidValue("a node of the wrong length");
  }
  if (head.enabled > 1 || head.reserved != 0 || (head.enabled == 0 && !MayBeDisabled(head.kind)) ||
      std::any_of(padding.begin(), padding.end(), [](uint8_t byte) { return byte != 0; })) {
    return InvalidValue("a node with an invalid field");
  }
  node->kind = static_cast<GraphNodeKind>(head.kind);
  node->enabled = head.enabled == 1;
  return absl::OkStatus();
}

auto PlaceOf(const wire::GraphEdge& edge) { return std::tie(edge.from, edge.to); }

absl::Status CheckEdges(ParsedGraph& graph) {
  constexpr uint8_t kProgrammatic = 1;  // CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC
  constexpr uint8_t kLastPort = 2;      // CU_GRAPH_KERNEL_NODE_PORT_LAUNCH_ORDER
  for (const wire::GraphEdge& edge : graph.edges) {
    if (edge.from >= edge.to || edge.to >= graph.nodes.size()) {
      return InvalidValue("an edge that does not lead to a later node");
    }
    const bool reserved = std::any_of(std::begin(edge.reserved), std::end(edge.reserved),
                                      [](uint8_t byte) { return byte != 0; });
    if (edge.type > kProgrammatic || edge.from_port > kLastPort || edge.to_port != 0 || reserved) {
      return InvalidValue("an edge of an unknown type");
    }
    const bool kernels = graph.nodes[edge.from].kind == wire::kNodeKernel &&
                         graph.nodes[edge.to].kind == wire::kNodeKernel;
    if (edge.type == kProgrammatic && !kernels) {
      return InvalidValue("a programmatic edge that does not join two kernels");
    }
    if (edge.from_port != 0 && graph.nodes[edge.from].kind != wire::kNodeKernel) {
      return InvalidValue("a port of a node that is not a kernel");
    }
  }
  std::sort(
      graph.edges.begin(), graph.edges.end(),
      [](const wire::GraphEdge& a, const wire::GraphEdge& b) { return PlaceOf(a) < PlaceOf(b); });
  const auto twice = std::adjacent_find(
      graph.edges.begin(), graph.edges.end(),
      [](const wire::GraphEdge& a, const wire::GraphEdge& b) { return PlaceOf(a) == PlaceOf(b); });
  return twice == graph.edges.end() ? absl::OkStatus()
                                    : InvalidValue("two edges between the same nodes");
}

absl::Status ReadGraph(PayloadReader& reader, const GraphLimits& limits, uint64_t* nodes_left,
                       uint64_t* edges_left, ParsedGraph* graph) {
  wire::GraphHeader header;
  if (!reader.Struct(&header)) return InvalidValue("a graph that extends beyond the payload");
  if (header.node_count > *nodes_left || header.edge_count > *edges_left) {
    return TooMuch("too many nodes or edges");
  }
  // Check the counts before any memory is reserved for them.
  if (uint64_t{header.node_count} * sizeof(wire::GraphNode) +
          uint64_t{header.edge_count} * sizeof(wire::GraphEdge) >
      reader.left()) {
    return InvalidValue("more nodes and edges than the payload holds");
  }
  *nodes_left -= header.node_count;
  *edges_left -= header.edge_count;
  graph->nodes.resize(header.node_count);
  for (ParsedNode& node : graph->nodes) {
    DETSHARE_RETURN_IF_ERROR(ReadNode(reader, &node));
  }
  graph->edges.resize(header.edge_count);
  for (wire::GraphEdge& edge : graph->edges) {
    if (!reader.Struct(&edge)) return InvalidValue("an edge that extends beyond the payload");
  }
  return CheckEdges(*graph);
}

// Checks that every graph but the first is the body of exactly one node, and that the nesting is
// bounded.
absl::Status CheckBodies(const std::vector<ParsedGraph>& graphs, const GraphLimits& limits) {
  std::vector<uint32_t> depth(graphs.size(), 0);  // 0: no node has named the graph so far
  for (uint32_t index = 0; index < graphs.size(); ++index) {
    if (index != 0 && depth[index] == 0) return InvalidValue("a graph that is no node's body");
    for (const ParsedNode& node : graphs[index].nodes) {
      if (index != 0 && !MayBeInBody(node.kind)) {
        return InvalidValue("a kind of node that is not allowed in a body");
      }
      if (node.kind != wire::kNodeConditional) continue;
      wire::GraphConditional conditional;
      std::span<const uint8_t> rest;
      ContentsOf(node, &conditional, &rest);
      if (conditional.first_body <= index || conditional.body_count == 0 ||
          conditional.first_body >= graphs.size() ||
          conditional.body_count > graphs.size() - conditional.first_body) {
        return InvalidValue("a conditional node that does not name its bodies");
      }
      for (uint32_t body = 0; body < conditional.body_count; ++body) {
        uint32_t& of_body = depth[conditional.first_body + body];
        if (of_body != 0) return InvalidValue("a body of two conditional nodes");
        of_body = depth[index] + 1;
        if (of_body > limits.nesting) return TooMuch("conditional nodes nested too deeply");
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<ParsedGraph>> ParseGraphs(std::span<const uint8_t> payload,
                                                     uint32_t graph_count,
                                                     const GraphLimits& limits) {
  if (graph_count == 0) return InvalidValue("no graph");
  if (graph_count > limits.graphs) return TooMuch("too many graphs");
  PayloadReader reader(payload);
  uint64_t nodes_left = limits.nodes, edges_left = limits.edges;
  std::vector<ParsedGraph> graphs;
  for (uint32_t i = 0; i < graph_count; ++i) {
    DETSHARE_RETURN_IF_ERROR(
        ReadGraph(reader, limits, &nodes_left, &edges_left, &graphs.emplace_back()));
  }
  if (!reader.empty()) return InvalidValue("bytes after the last graph");
  DETSHARE_RETURN_IF_ERROR(CheckBodies(graphs, limits));
  const auto values =
      std::count_if(graphs[0].nodes.begin(), graphs[0].nodes.end(), [](const ParsedNode& node) {
        return node.kind == wire::kNodeSignal || node.kind == wire::kNodeWait;
      });
  if (values > wire::kMaxGraphValues) return TooMuch("too many signals and waits");
  return graphs;
}

absl::StatusOr<ParsedNode> ParseGraphNode(std::span<const uint8_t> payload) {
  PayloadReader reader(payload);
  ParsedNode node;
  DETSHARE_RETURN_IF_ERROR(ReadNode(reader, &node));
  if (!reader.empty()) return InvalidValue("bytes after the node");
  return node;
}

}  // namespace detshare
