#include "client_shim/work/graph/memory_reuse.h"

#include <algorithm>
#include <map>
#include <unordered_set>
#include <utility>
#include <vector>

namespace detshare::shim {
namespace {

// The memory that nodes on a path to a node with these dependencies free.
std::unordered_set<const GraphMemory*> FreedBefore(const Graph& graph,
                                                   std::span<const GraphEdge> dependencies) {
  std::unordered_set<const GraphMemory*> freed;
  std::vector<bool> seen(graph.nodes.size());
  std::vector<const GraphNode*> open;
  const auto visit = [&](std::span<const GraphEdge> edges) {
    for (const GraphEdge& edge : edges) {
      if (seen[edge.node->position]) continue;
      seen[edge.node->position] = true;
      open.push_back(edge.node);
    }
  };
  visit(dependencies);
  while (!open.empty()) {
    const GraphNode& node = *open.back();
    open.pop_back();
    if (const auto* free = std::get_if<FreeNode>(&node.body)) freed.insert(free->memory.get());
    visit(node.dependencies);
  }
  return freed;
}

struct Piece {
  uint64_t begin = 0, end = 0;  // in bytes from the start of the block
};

}  // namespace

GraphMemoryRoom FindRoom(const Graph& graph, std::span<const GraphEdge> dependencies,
                         const GraphMemory& memory) {
  struct Block {
    std::shared_ptr<GraphMemoryBlock> block;
    std::vector<Piece> taken;
  };
  // By address, so that the choice does not depend on the order in which nodes were added.
  std::map<uint64_t, Block> blocks;
  const std::unordered_set<const GraphMemory*> freed = FreedBefore(graph, dependencies);
  for (const auto& node : graph.nodes) {
    const auto* alloc = std::get_if<AllocNode>(&node->body);
    if (alloc == nullptr || alloc->memory->block == nullptr ||
        alloc->memory->context.id != memory.context.id) {
      continue;
    }
    const GraphMemory& earlier = *alloc->memory;
    Block& block = blocks[earlier.block->address];
    block.block = earlier.block;
    if (freed.contains(&earlier)) continue;
    const uint64_t begin = earlier.address - earlier.block->address;
    block.taken.push_back({begin, begin + earlier.bytes});
  }
  GraphMemoryRoom best;
  uint64_t smallest = 0;
  for (auto& [address, block] : blocks) {
    std::sort(block.taken.begin(), block.taken.end(),
              [](const Piece& a, const Piece& b) { return a.begin < b.begin; });
    // Behind the last piece, too.
    block.taken.push_back({block.block->bytes, block.block->bytes});
    uint64_t begin = 0;
    for (const Piece& piece : block.taken) {
      const uint64_t gap = piece.begin > begin ? piece.begin - begin : 0;
      if (gap >= memory.bytes && (best.block == nullptr || gap < smallest)) {
        best = {block.block, begin};
        smallest = gap;
      }
      begin = std::max(begin, RoundUp(piece.end, kGraphMemoryAlignment));
    }
  }
  return best;
}

}  // namespace detshare::shim
