// Finds places for the allocations of a graph in memory that the graph has freed before, as the
// driver does. A graph that allocates and frees step by step then needs the memory of its largest
// step, not of all steps.
//
// Needs GraphMutex().
#pragma once

#include <span>

#include "client_shim/work/graph/graph.h"
#include "client_shim/work/graph/graph_memory.h"

namespace detshare::shim {

// Returns the place of a new allocation of the graph, whose node will have these dependencies. An
// earlier allocation is over if a node that frees it comes before the new node on a path of edges.
// The place is the smallest gap between the other allocations that is large enough, or the first of
// equal ones. If there is no gap, the room has no block.
GraphMemoryRoom FindRoom(const Graph& graph, std::span<const GraphEdge> dependencies,
                         const GraphMemory& memory);

}  // namespace detshare::shim
