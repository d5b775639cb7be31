// Executable graphs. Each keeps a snapshot of the graph that it was made of: updates are compared
// with it, nodes are found by those of the graph. The daemon has the flattened form.
//
// A launch of a graph whose work the GPU does alone is one record, without lock or allocation. One
// with host functions, copies of ordinary memory or event records gives a value for each signal and
// wait, and the thread of host functions does what is this process's part. Launches of one
// executable graph follow each other: the daemon sees to that.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "client_shim/objects/objects.h"
#include "client_shim/work/graph/graph.h"

namespace detshare::shim {

struct GraphExec;

// Null for every other number. Whoever destroys an executable graph while another thread uses it
// gets what CUDA promises for that: nothing, but no harm to others.
GraphExec* FindExec(CUgraphExec handle);

// Of a graph of the program's. `*error_node`: the node that was refused, or null.
CUresult Instantiate(CUgraph graph, uint64_t flags, CUgraphExec* exec, CUgraphNode* error_node,
                     CUgraphInstantiateResult* why);
CUresult DestroyExec(CUgraphExec exec);

// On a stream that does not capture.
CUresult LaunchGraph(GraphExec& exec, Stream& stream);
CUresult UploadGraph(GraphExec& exec, Stream& stream);

uint64_t FlagsOf(const GraphExec& exec);

// Changes that hold for later launches. Nodes are named by those of the graph that the executable
// graph was made of. CUDA_ERROR_INVALID_VALUE for a node that it does not have.
CUresult SetExecNode(GraphExec& exec, CUgraphNode node, NodeBody body);
// The same for a kernel. Other parameters or dimensions of the same kernel cost about what a launch
// costs, and nothing crosses when they are as they were.
CUresult SetExecKernel(GraphExec& exec, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS& params);
CUresult SetExecChild(GraphExec& exec, CUgraphNode node, CUgraph child);
CUresult UpdateExec(GraphExec& exec, CUgraph graph, CUgraphExecUpdateResultInfo* info);
CUresult SetNodeEnabled(GraphExec& exec, CUgraphNode node, bool enabled);
CUresult NodeEnabled(GraphExec& exec, CUgraphNode node, bool* enabled);

}  // namespace detshare::shim
