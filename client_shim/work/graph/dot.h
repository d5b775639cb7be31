// Writes graphs as text for Graphviz (cuGraphDebugDotPrint). The caller holds GraphMutex().
#pragma once

#include <string>

#include "client_shim/work/graph/graph.h"

namespace detshare::shim {

// `flags` are CUgraphDebugDot_flags. The text has those of the requested details that the shim
// knows.
std::string DotText(const Graph& graph, uint32_t flags);
// Returns false if the file cannot be written.
bool WriteDotFile(const char* path, const std::string& text);

}  // namespace detshare::shim
