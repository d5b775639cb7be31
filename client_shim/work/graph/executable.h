// Executable graphs. Each keeps a snapshot of its source graph. Updates are compared with the
// snapshot, and the source graph's nodes name the snapshot's nodes. The daemon has the flattened
// form.
//
// If the GPU does all work of a graph alone, a launch is one record, without a lock or an
// allocation. Other graphs have host functions, copies of ordinary memory or event records. Their
// launches name a value for each signal and wait, and the thread of host functions does this
// process's part. The daemon runs the launches of one executable graph one after another.
//
// Any thread may call these functions.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "client_shim/objects/objects.h"
#include "client_shim/work/graph/graph.h"

namespace detshare::shim {

struct GraphExec;

// Null for every other number. If the program destroys an executable graph while another thread
// uses it, the results are undefined, as in CUDA, but no other object is harmed.
GraphExec* FindExec(CUgraphExec handle);

// Makes an executable graph of a graph of the program. On failure `*error_node` is the refused
// node, or null.
CUresult Instantiate(CUgraph graph, uint64_t flags, CUgraphExec* exec, CUgraphNode* error_node,
                     CUgraphInstantiateResult* why);
CUresult DestroyExec(CUgraphExec exec);

// For a stream that does not capture.
CUresult LaunchGraph(GraphExec& exec, Stream& stream);
CUresult UploadGraph(GraphExec& exec, Stream& stream);

uint64_t FlagsOf(const GraphExec& exec);

// Changes for later launches. Nodes are named by those of the source graph.
// CUDA_ERROR_INVALID_VALUE: the executable graph has no such node.
CUresult SetExecNode(GraphExec& exec, CUgraphNode node, NodeBody body);
// The same for a kernel. New parameters or dimensions of the same kernel cost about as much as a
// launch. If nothing changes, nothing is sent to the daemon.
CUresult SetExecKernel(GraphExec& exec, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS& params);
CUresult SetExecChild(GraphExec& exec, CUgraphNode node, CUgraph child);
// Makes the executable graph do what `graph` does (cuGraphExecUpdate). `info` says why it cannot.
CUresult UpdateExec(GraphExec& exec, CUgraph graph, CUgraphExecUpdateResultInfo* info);
CUresult SetNodeEnabled(GraphExec& exec, CUgraphNode node, bool enabled);
CUresult NodeEnabled(GraphExec& exec, CUgraphNode node, bool* enabled);

}  // namespace detshare::shim
