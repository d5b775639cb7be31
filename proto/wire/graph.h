// Graphs. The shim keeps the program's graphs as logical graphs. It sends whole executable graphs
// to the daemon in a flat form: child graphs are inlined, nodes are in an order that respects the
// edges, and host functions and copies of pageable memory are signals, waits and copies. The daemon
// keeps only executable graphs, and instantiates them for the partitions on which they run.
//
// A node carries the same struct as the operation's ring record, with stream 0 and no signal, and
// the payload after it. So a node has all features of a launch or a copy.
//
// The comment of each op names its transport.
#pragma once

#include <cstdint>

#include "proto/ring_abi.h"

namespace detshare::wire {

enum GraphNodeKind : uint32_t {
  kNodeEmpty = 0,
  // cuLaunchKernelEx, then its payload. kLaunchProgrammaticSerialization is ignored: the edges'
  // types say it.
  kNodeKernel = 1,
  kNodeCopy = 2,         // cuMemcpy3DAsync_v2, locations kAddress or kArray
  kNodeFill = 3,         // cuMemsetD2D32Async
  kNodeSignal = 4,       // GraphFence: stores the value that the launch gives for this node
  kNodeWait = 5,         // GraphFence: waits until the fence has the value that the launch gives
  kNodeEventRecord = 6,  // GraphEvent
  kNodeEventWait = 7,    // GraphEvent
  kNodeMemoryOps = 8,  // GraphMemoryOps, then `count` (at most kMaxStreamMemoryOps) StreamMemoryOp
  kNodeConditional = 9,  // GraphConditional
};

// A payload of graphs is graph_count times (GraphHeader, node_count nodes, edge_count GraphEdge)
// and nothing else. A node is a GraphNode, then `bytes` bytes as its kind demands, then zeros up to
// a multiple of 8. The first graph is the root. Each other graph is the body of exactly one
// conditional node. As in CUDA, bodies hold only empty, kernel, copy, fill and conditional nodes.
struct GraphHeader {
  uint32_t node_count;
  uint32_t edge_count;
};
struct GraphNode {
  uint32_t kind;     // GraphNodeKind
  uint32_t bytes;    // the size of the data that follows, without padding
  uint32_t enabled;  // 0 or 1; only kernels, copies and fills can be 0
  uint32_t reserved;
};
struct GraphEdge {  // indices of this graph's nodes, from < to; no edge occurs twice
  uint32_t from;
  uint32_t to;
  uint8_t from_port;  // of CUgraphEdgeData
  uint8_t to_port;
  uint8_t type;  // CUgraphDependencyType
  uint8_t reserved[5];
};

struct GraphFence {
  FenceIndex fence;
  uint32_t reserved;
};
struct GraphEvent {
  EventId event;
  uint32_t reserved;
};
struct GraphMemoryOps {
  uint32_t count;
  uint32_t flags;  // 0
};
struct GraphConditional {
  uint64_t handle;      // of cuGraphConditionalHandleCreate
  uint32_t type;        // CUgraphConditionalNodeType
  uint32_t first_body;  // index of the first body in the payload, greater than the index of the
                        // node's own graph
  uint32_t body_count;  // the bodies follow each other
  uint32_t reserved;
};

// The maximum number of a graph's signals and waits, because one record carries all their values.
inline constexpr uint32_t kMaxGraphValues = 4096;

// Transport: control. Payload: graphs. The client chooses the id, which must be free.
struct cuGraphInstantiateWithParams {
  GraphId graph;
  ContextId context;
  uint32_t flags;  // CUgraphInstantiate_flags: the daemon uses USE_NODE_PRIORITY; the client
                   // implements UPLOAD and AUTO_FREE_ON_LAUNCH
  uint32_t graph_count;
};
// Also sent when the call fails: names the refused node, or UINT32_MAX when it is no single node.
struct cuGraphInstantiateWithParams_Reply {
  uint32_t error_graph;
  uint32_t error_node;
};

// Transport: control. Payload: graphs. The payload replaces the executable graph from the next launch
// on. After an error the executable graph is unchanged. CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE when
// CUDA does not allow such an update.
struct cuGraphExecUpdate_v2 {
  GraphId graph;
  uint32_t graph_count;
};
struct cuGraphExecUpdate_v2_Reply {
  uint32_t result;  // CUgraphExecUpdateResult
  uint32_t error_graph;
  uint32_t error_node;
  uint32_t reserved;
};

// Transport: ring. Payload: one node (GraphNode and its data). It replaces node `node` of graph
// `index` of the instantiated payload from the next launch on. Both nodes have the same kind, which
// is not conditional. The errors are those of cuGraphExecUpdate_v2.
struct cuGraphExecNodeSetParams {
  GraphId graph;
  uint32_t index;
  uint32_t node;
  uint32_t reserved;
};

// Transport: ring. For kernels, copies and fills only.
struct cuGraphNodeSetEnabled {
  GraphId graph;
  uint32_t index;
  uint32_t node;
  uint32_t enabled;
};

// Transport: ring. Payload: value_count values of type uint64_t, one for each kNodeSignal and
// kNodeWait of the root, in the order of its nodes. Launches of one executable graph run one after
// the other, also on different streams.
struct cuGraphLaunch {
  GraphId graph;
  StreamId stream;
  uint32_t value_count;
  uint32_t reserved;
};

// Transport: ring. Prepares the next launch on that stream.
struct cuGraphUpload {
  GraphId graph;
  StreamId stream;
};

// Transport: ring. Launches that were submitted before still run. The id is free at once.
struct cuGraphExecDestroy {
  GraphId graph;
  uint32_t reserved;
};

// Transport: control. One conditional node uses the handle. Kernels pass its value to
// cudaGraphSetConditional. The handle lives as long as the context, unless the client ends it
// earlier. All handles in an executable graph were made for the same graph.
struct cuGraphConditionalHandleCreate {
  ContextId context;
  uint32_t default_value;
  uint32_t flags;  // CU_GRAPH_COND_ASSIGN_DEFAULT or 0, or kEndConditional
  uint32_t reserved;
  uint64_t sibling;  // the id of another handle of the same graph; 0: this is the graph's first
};
// Instead of a new handle: ends the handle with the id `sibling`, if there is one. No executable
// graph has it any more. There is no body of a reply.
inline constexpr uint32_t kEndConditional = 1u << 31;
struct cuGraphConditionalHandleCreate_Reply {
  uint64_t id;  // unique in the session; the program's handle is its low 32 bits
};

}  // namespace detshare::wire
