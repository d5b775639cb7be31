// Which changes an executable graph takes without being made anew.
#pragma once

#include "client_shim/work/graph/graph.h"

namespace detshare::shim {

// Compares the graph of which an executable graph was made with one that it shall be updated to:
// nodes are paired in the order in which they were added. CUDA_SUCCESS, or
// CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE with the reason in *info.
CUresult CheckUpdate(const Graph& before, const Graph& after, bool node_priorities,
                     CUgraphExecUpdateResultInfo* info);

// Whether a node of an executable graph may do this instead. CU_GRAPH_EXEC_UPDATE_SUCCESS or the
// reason why not. Children are not compared.
CUgraphExecUpdateResult CheckNodeUpdate(const NodeBody& before, const NodeBody& after,
                                        bool node_priorities);

}  // namespace detshare::shim
