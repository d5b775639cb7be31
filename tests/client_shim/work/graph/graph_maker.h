// Makes logical graphs for tests, without a daemon.
#pragma once

#include <cstdlib>
#include <initializer_list>
#include <memory>
#include <utility>
#include <vector>

#include "client_shim/work/graph/graph.h"

namespace detshare::shim {

// Adds a node behind others. Ends the test program if that fails.
inline GraphNode* Put(Graph& graph, NodeBody body, std::initializer_list<GraphNode*> before = {}) {
  std::vector<GraphEdge> edges;
  for (GraphNode* node : before) edges.push_back({node, {}});
  GraphNode* node = nullptr;
  if (AddNode(graph, std::move(body), edges, &node) != CUDA_SUCCESS) std::abort();
  return node;
}

inline NodeBody Child(std::unique_ptr<Graph> graph) { return ChildNode{std::move(graph), false}; }

inline KernelNode KernelOf(KernelId id, uint32_t blocks = 1) {
  KernelNode node;
  node.id = id;
  node.launch.grid[0] = blocks;
  return node;
}

// The addresses are invented. Nothing dereferences them.
inline CopyNode CopyOf(Place to, Place from, uint64_t bytes) {
  CopyNode node;
  node.to = {to, bytes, bytes};
  node.from = {from, bytes, bytes};
  node.width = bytes;
  return node;
}
inline Place OnDevice(uint64_t address) { return {address, 0}; }
inline Place Pageable(const void* memory) { return {0, reinterpret_cast<uint64_t>(memory)}; }

}  // namespace detshare::shim
