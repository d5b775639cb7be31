// Decides which changes an executable graph can take without being made again.
#pragma once

#include "client_shim/work/graph/graph.h"

namespace detshare::shim {

// Compares the source graph of an executable graph with the graph of an update. Nodes are paired in
// the order in which they were added. Returns CUDA_SUCCESS, or CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE
// with the reason in *info. The caller holds GraphMutex().
CUresult CheckUpdate(const Graph& before, const Graph& after, bool node_priorities,
                     CUgraphExecUpdateResultInfo* info);

// Whether a node of an executable graph may take this body. Returns CU_GRAPH_EXEC_UPDATE_SUCCESS or
// the reason why not. Does not compare children.
CUgraphExecUpdateResult CheckNodeUpdate(const NodeBody& before, const NodeBody& after,
                                        bool node_priorities);

}  // namespace detshare::shim
