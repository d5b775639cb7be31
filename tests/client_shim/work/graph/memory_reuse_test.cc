#include "client_shim/work/graph/memory_reuse.h"

#include <catch2/catch.hpp>

#include "tests/client_shim/work/graph/graph_maker.h"

namespace detshare::shim {
namespace {

constexpr uint64_t kMiB = 1 << 20;

// Makes graphs whose memory lies in blocks that nothing backs.
class Memories {
 public:
  GraphNode* Alloc(uint64_t bytes, std::initializer_list<GraphNode*> before = {},
                   ContextId context = 1) {
    std::vector<GraphEdge> edges;
    for (GraphNode* node : before) edges.push_back({node, {}});
    const auto memory = std::make_shared<GraphMemory>(NodeContext{nullptr, context, 0}, bytes);
    GraphMemoryRoom room = FindRoom(*graph_, edges, *memory);
    if (room.block == nullptr) {
      room.block = std::make_shared<GraphMemoryBlock>();
      room.block->context.id = context;
      room.block->address = next_;
      room.block->bytes = (bytes + 2 * kMiB - 1) / (2 * kMiB) * (2 * kMiB);
      room.offset = 0;
      next_ += uint64_t{1} << 32;
    }
    memory->address = room.block->address + room.offset;
    memory->block = room.block;
    return Put(*graph_, AllocNode{memory, {}, {}}, before);
  }
  GraphNode* Free(GraphNode* alloc, std::initializer_list<GraphNode*> before) {
    return Put(*graph_, FreeNode{std::get<AllocNode>(alloc->body).memory}, before);
  }
  GraphNode* Join(std::initializer_list<GraphNode*> before) {
    return Put(*graph_, EmptyNode{}, before);
  }

 private:
  std::unique_ptr<Graph> graph_ = MakeGraph(false);
  uint64_t next_ = uint64_t{1} << 40;
};

uint64_t AddressOf(const GraphNode* node) {
  return std::get<AllocNode>(node->body).memory->address;
}

TEST_CASE("Memory that was freed before has the next allocation, and the one after that") {
  Memories made;
  GraphNode* first = made.Alloc(2 * kMiB);
  GraphNode* second = made.Alloc(kMiB, {made.Free(first, {first})});
  CHECK(AddressOf(second) == AddressOf(first));
  GraphNode* third = made.Alloc(2 * kMiB, {made.Free(second, {second})});
  CHECK(AddressOf(third) == AddressOf(first));
}

TEST_CASE("Small allocations lie behind each other in one block, at multiples of 512 bytes") {
  Memories made;
  GraphNode* first = made.Alloc(1);
  GraphNode* second = made.Alloc(513, {first});
  GraphNode* third = made.Alloc(1, {});
  CHECK(AddressOf(second) == AddressOf(first) + 512);
  CHECK(AddressOf(third) == AddressOf(first) + 3 * 512);
}

TEST_CASE("Neighbours that were freed have one larger allocation") {
  Memories made;
  GraphNode* a = made.Alloc(kMiB);
  GraphNode* b = made.Alloc(kMiB, {a});
  REQUIRE(AddressOf(b) == AddressOf(a) + kMiB);
  GraphNode* both = made.Alloc(2 * kMiB, {made.Free(b, {made.Free(a, {b})})});
  CHECK(AddressOf(both) == AddressOf(a));
}

TEST_CASE("Memory that may still be in use beside the new node is not taken") {
  Memories made;
  GraphNode* a = made.Alloc(2 * kMiB);
  GraphNode* freed = made.Free(a, {a});
  SECTION("because no edge leads from the free node") {
    CHECK(AddressOf(made.Alloc(2 * kMiB)) != AddressOf(a));
    CHECK(AddressOf(made.Alloc(2 * kMiB, {a})) != AddressOf(a));
  }
  SECTION("because a branch beside it has it") {
    GraphNode* left = made.Alloc(2 * kMiB, {freed});
    GraphNode* right = made.Alloc(2 * kMiB, {freed});
    CHECK(AddressOf(left) == AddressOf(a));
    CHECK(AddressOf(right) != AddressOf(a));
    // The memory of both is free where the branches meet.
    GraphNode* met = made.Join({made.Free(left, {left}), made.Free(right, {right})});
    GraphNode* one = made.Alloc(2 * kMiB, {met});
    GraphNode* two = made.Alloc(2 * kMiB, {one});
    CHECK(AddressOf(one) != AddressOf(two));
    CHECK((AddressOf(one) == AddressOf(left) || AddressOf(one) == AddressOf(right)));
    CHECK((AddressOf(two) == AddressOf(left) || AddressOf(two) == AddressOf(right)));
  }
  SECTION("because it is of another context") {
    CHECK(AddressOf(made.Alloc(2 * kMiB, {freed}, 2)) != AddressOf(a));
  }
}

TEST_CASE("The smallest gap that is large enough is taken") {
  Memories made;
  GraphNode* large = made.Alloc(8 * kMiB);
  GraphNode* medium = made.Alloc(4 * kMiB, {large});
  GraphNode* small = made.Alloc(2 * kMiB, {medium});
  GraphNode* freed = made.Free(large, {small});
  freed = made.Free(medium, {freed});
  freed = made.Free(small, {freed});
  CHECK(AddressOf(made.Alloc(3 * kMiB, {freed})) == AddressOf(medium));
}

}  // namespace
}  // namespace detshare::shim
