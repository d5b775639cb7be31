// Parses the graphs in a client's payload (proto/wire/graph.h). This file checks everything that
// does not depend on the session's objects.
//
// The parser guarantees:
// - Every length fits, and no byte is left over.
// - Edges join nodes of the same graph from a lower to a higher index. They are sorted and unique.
// - Every graph but the first is the body of exactly one conditional node, which belongs to an
//   earlier graph. Hence there are no cycles, and the nesting is bounded.
// - Bodies hold only the kinds of nodes that bodies may hold.
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
  std::span<const uint8_t> contents;  // points into the payload
};

struct ParsedGraph {
  std::vector<ParsedNode> nodes;
  std::vector<wire::GraphEdge> edges;
};

// CUDA_ERROR_INVALID_VALUE for a malformed payload, CUDA_ERROR_OUT_OF_MEMORY beyond the limits. The
// memory used is proportional to the size of the payload, even when the counts in it are wrong.
absl::StatusOr<std::vector<ParsedGraph>> ParseGraphs(std::span<const uint8_t> payload,
                                                     uint32_t graph_count,
                                                     const GraphLimits& limits);
// Parses a payload of exactly one node.
absl::StatusOr<ParsedNode> ParseGraphNode(std::span<const uint8_t> payload);

// Copies the fixed part of a node's contents to `*value` and sets `*rest` to the bytes after it.
// Returns false when the contents are too short.
template <typename T>
bool ContentsOf(const ParsedNode& node, T* value, std::span<const uint8_t>* rest) {
  if (node.contents.size() < sizeof(T)) return false;
  __builtin_memcpy(value, node.contents.data(), sizeof(T));
  *rest = node.contents.subspan(sizeof(T));
  return true;
}

}  // namespace detshare
