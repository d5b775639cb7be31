// Memory that graphs allocate (cuGraphAddMemAllocNode, cuMemAllocAsync in a capture). It is
// ordinary device memory from the creation of its node until the last graph or executable graph
// with that node is gone and nobody has it: so its address never changes, and its nodes have
// nothing to do. Whether the program may use it is bookkeeping. Any thread.
#pragma once

#include <cstdint>
#include <memory>

#include "client_shim/work/graph/node.h"

namespace detshare::shim {

struct GraphMemory {
  uint64_t address = 0;
  uint64_t bytes = 0;
  NodeContext context;
  // Under GraphMutex.
  const Graph* owner = nullptr;  // the graph with the node; only to compare
  bool freed_by_owner = false;   // that graph has a node that frees it
  bool freed_by_others = false;  // another graph has
  bool used = false;             // a launch has allocated it; under the registry's mutex

  GraphMemory() = default;
  GraphMemory(const GraphMemory&) = delete;
  GraphMemory& operator=(const GraphMemory&) = delete;
  ~GraphMemory();
};

CUresult AllocateGraphMemory(const NodeContext& context, uint64_t bytes,
                             std::shared_ptr<GraphMemory>* memory);
// The memory that begins at the address, or null.
std::shared_ptr<GraphMemory> FindGraphMemory(uint64_t address);

// Whether a launch has allocated it, and it was not freed since.
bool IsAllocated(const GraphMemory& memory);
void SetAllocated(const std::shared_ptr<GraphMemory>& memory, bool allocated);

// For calls that free memory: whether it is a graph's. If so *result is the call's answer:
// CUDA_ERROR_INVALID_VALUE when it is not allocated now.
bool FreeIfGraphMemory(uint64_t address, CUresult* result);

// Bytes. Memory is reserved while it is there, and used from its first launch on.
struct GraphMemoryUse {
  uint64_t reserved = 0, reserved_high = 0;
  uint64_t used = 0, used_high = 0;
};
GraphMemoryUse UseOfGraphMemory(uint16_t device);
void ResetGraphMemoryHigh(uint16_t device);

// Context life `context` is over, and its memory with it.
void ForgetGraphMemory(ContextId context);

}  // namespace detshare::shim
