// The graphs in a client's payload (proto/wire/graph.h), taken apart: whatever can be checked
// without knowing what a session owns is checked here.
//
// Afterwards: every length fits, no byte is left over; edges join nodes of their graph from lower
// to higher, without repetition, sorted; every graph but the first is the body of exactly one
// conditional node, of a graph before it, so that there are no cycles and the nesting is bounded;
// bodies hold what bodies may hold.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/wire/graph.h"

namespace detshare {

struct GraphLimits {
  uint32_t graphs = 1024;    // in one payload
  uint32_t nesting = 16;     // of conditional nodes
  uint32_t nodes = 1 << 20;  // in one payload
  uint32_t edges = 4 << 20;  // in one payload
};

struct ParsedNode {
  wire::GraphNodeKind kind = wire::kNodeEmpty;
  bool enabled = true;
  std::span<const uint8_t> contents;  // in the payload
};

struct ParsedGraph {
  std::vector<ParsedNode> nodes;
  std::vector<wire::GraphEdge> edges;
};

// CUDA_ERROR_INVALID_VALUE for what breaks the rules, CUDA_ERROR_OUT_OF_MEMORY for too much. Memory
// is proportional to the payload, whatever the counts in it say.
absl::StatusOr<std::vector<ParsedGraph>> ParseGraphs(std::span<const uint8_t> payload,
                                                     uint32_t graph_count,
                                                     const GraphLimits& limits);
// A payload of exactly one node.
absl::StatusOr<ParsedNode> ParseGraphNode(std::span<const uint8_t> payload);

// The fixed part of a node's contents. False when it is shorter; `*rest` is what follows.
template <typename T>
bool ContentsOf(const ParsedNode& node, T* value, std::span<const uint8_t>* rest) {
  if (node.contents.size() < sizeof(T)) return false;
  __builtin_memcpy(value, node.contents.data(), sizeof(T));
  *rest = node.contents.subspan(sizeof(T));
  return true;
}

}  // namespace detshare
