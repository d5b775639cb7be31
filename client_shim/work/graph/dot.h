// Graphs as text for Graphviz (cuGraphDebugDotPrint).
#pragma once

#include <string>

#include "client_shim/work/graph/graph.h"

namespace detshare::shim {

// `flags`: CUgraphDebugDot_flags. Says what it knows of the details that are asked for.
std::string DotText(const Graph& graph, uint32_t flags);
bool WriteDotFile(const char* path, const std::string& text);

}  // namespace detshare::shim
