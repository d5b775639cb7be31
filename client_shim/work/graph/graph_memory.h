// Memory that graphs allocate (cuGraphAddMemAllocNode, cuMemAllocAsync in a capture).
//
// It is ordinary device memory. It exists from the creation of its node until the last graph or
// executable graph with that node is gone and the program does not have it. So its address never
// changes, and its nodes have nothing to do. Whether the program may use it is bookkeeping. Any
// thread.
#pragma once

#include <cstdint>
#include <memory>

#include "client_shim/memory/pointer_map.h"
#include "client_shim/work/graph/node.h"

namespace detshare::shim {

// Device memory in which a graph's allocations lie. Allocations share a place if each begins after
// the one before it has ended (memory_reuse.h).
struct GraphMemoryBlock {
  NodeContext context;
  uint64_t address = 0;
  uint64_t bytes = 0;
  bool used = false;  // a launch has used it; needs the registry's mutex

  GraphMemoryBlock() = default;
  GraphMemoryBlock(const GraphMemoryBlock&) = delete;
  GraphMemoryBlock& operator=(const GraphMemoryBlock&) = delete;
  ~GraphMemoryBlock();
};

// A place in a block.
struct GraphMemoryRoom {
  std::shared_ptr<GraphMemoryBlock> block;
  uint64_t offset = 0;
};

// One allocation.
struct GraphMemory {
  NodeContext context;
  uint64_t bytes = 0;
  // The next two fields are set when a node with the memory joins a graph.
  uint64_t address = 0;
  std::shared_ptr<GraphMemoryBlock> block;
  // The next three fields need GraphMutex().
  uint64_t owner = 0;            // handle of the graph with the node; the graph may have ended
  bool freed_by_owner = false;   // that graph has a node that frees the memory
  bool freed_by_others = false;  // another graph has such a node

  GraphMemory() = default;
  GraphMemory(const NodeContext& in, uint64_t size) : context(in), bytes(size) {}
  GraphMemory(const GraphMemory&) = delete;
  GraphMemory& operator=(const GraphMemory&) = delete;
  ~GraphMemory();
};

// Returns the first multiple of `step` that is not below `bytes`.
constexpr uint64_t RoundUp(uint64_t bytes, uint64_t step) {
  return (bytes + step - 1) / step * step;
}

// Allocations in a block begin at multiples of this number of bytes, as with driver 580.
constexpr uint64_t kGraphMemoryAlignment = 512;

// Gives the memory a place: the room, or a new block if the room has no block. A new block has room
// for further small allocations.
CUresult PlaceGraphMemory(const std::shared_ptr<GraphMemory>& memory, GraphMemoryRoom room);
// The memory that begins at the address, or null. If several allocations have the address, it is
// the last that was placed.
std::shared_ptr<GraphMemory> FindGraphMemory(uint64_t address);

// Whether a launch has allocated the memory and it was not freed since.
bool IsAllocated(const GraphMemory& memory);
void SetAllocated(const std::shared_ptr<GraphMemory>& memory, bool allocated);
// Notes that a launch uses the memory.
void NoteUse(GraphMemory& memory);

// For calls that free memory: returns whether the memory belongs to a graph. If so, *result is the
// result of the call: CUDA_ERROR_INVALID_VALUE if the memory is not allocated.
bool FreeIfGraphMemory(uint64_t address, CUresult* result);

// Finds the allocation that holds the address, for queries of the program. As with driver 580, memory
// of a graph is there from a launch that allocates it to the call or launch that frees it.
bool FindVisibleMemory(uint64_t address, Allocation* found);

// In bytes. Programs see a pool as with driver 580: it grows in large steps when a launch uses more
// memory, all of it is both reserved and used, and it shrinks only when the program trims it.
struct GraphMemoryUse {
  uint64_t launched = 0;  // memory that exists and that a launch has used
  uint64_t pool = 0, used_high = 0, reserved_high = 0;
};
GraphMemoryUse UseOfGraphMemory(uint16_t device);
void TrimGraphMemory(uint16_t device);
// Each sets one high-water mark to the present value.
void ResetUsedGraphMemoryHigh(uint16_t device);
void ResetReservedGraphMemoryHigh(uint16_t device);

// Forgets the memory of context life `context`, which is over.
void ForgetGraphMemory(ContextId context);

}  // namespace detshare::shim
