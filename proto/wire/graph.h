// Graphs. The program's graphs live in the shim, as logical graphs; what crosses is the whole of an
// executable graph, flattened: child graphs inlined, nodes in an order that respects the edges,
// host functions and copies of pageable memory expressed by signals, waits and copies. The daemon
// keeps executable graphs only, and instantiates them for the partitions on which they run.
//
// A node carries what the same operation carries as a record of a stream: its argument struct, with
// stream 0 and no signal, and the payload behind it. So whatever a launch or a copy can say, a node
// can say.
#pragma once

#include <cstdint>

#include "proto/ring_abi.h"

namespace detshare::wire {

enum GraphNodeKind : uint32_t {
  kNodeEmpty = 0,
  // cuLaunchKernelEx, then its payload. kLaunchProgrammaticSerialization counts not: edges say it.
  kNodeKernel = 1,
  kNodeCopy = 2,    // cuMemcpy3DAsync_v2, locations kAddress or kArray
  kNodeFill = 3,    // cuMemsetD2D32Async
  kNodeSignal = 4,  // GraphFence: stores the value that the launch gives for it
  kNodeWait = 5,    // GraphFence: waits until the fence has the value that the launch gives for it
  kNodeEventRecord = 6,  // GraphEvent
  kNodeEventWait = 7,    // GraphEvent
  kNodeMemoryOps = 8,  // GraphMemoryOps, then `count` (at most kMostStreamMemoryOps) StreamMemoryOp
  kNodeConditional = 9,  // GraphConditional
};

// A payload of graphs: graph_count times (GraphHeader, node_count nodes, edge_count GraphEdge),
// nothing after. A node: GraphNode, then `bytes` bytes of what its kind says, then zeros up to a
// multiple of 8. The first graph is the root; the others are bodies of conditional nodes, each of
// exactly one. Bodies hold empty, kernel, copy, fill and conditional nodes only, as CUDA says.
struct GraphHeader {
  uint32_t node_count;
  uint32_t edge_count;
};
struct GraphNode {
  uint32_t kind;     // GraphNodeKind
  uint32_t bytes;    // of what follows, without padding
  uint32_t enabled;  // 0 or 1; only kernels, copies and fills can be 0
  uint32_t reserved;
};
struct GraphEdge {  // indices of this graph's nodes, from < to; no edge twice
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
  uint32_t first_body;  // index of the payload's graph, greater than that of the graph which the
                        // node is in
  uint32_t body_count;  // they follow each other
  uint32_t reserved;
};

// Signals and waits of one graph: their values travel in one record.
inline constexpr uint32_t kMaxGraphValues = 4096;

// grpc. Payload: graphs. The id must be free.
struct cuGraphInstantiateWithParams {
  GraphId graph;
  ContextId context;
  uint32_t flags;  // CUgraphInstantiate_flags: USE_NODE_PRIORITY counts, UPLOAD and
                   // AUTO_FREE_ON_LAUNCH are the client's
  uint32_t graph_count;
};
// Sent for failures too: which node was refused; UINT32_MAX when it is no single one.
struct cuGraphInstantiateWithParams_Answer {
  uint32_t error_graph;
  uint32_t error_node;
};

// grpc. Payload: graphs. The executable graph is as this one from its next launch on. With any
// error it is as it was; CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE when the difference is one that
// cannot be made up for.
struct cuGraphExecUpdate_v2 {
  GraphId graph;
  uint32_t graph_count;
};
struct cuGraphExecUpdate_v2_Answer {
  uint32_t result;  // CUgraphExecUpdateResult
  uint32_t error_graph;
  uint32_t error_node;
  uint32_t reserved;
};

// ring. Payload: one node (GraphNode and what follows), which is node `node` of the payload's graph
// `index` from the next launch on; of the same kind. Errors as those of cuGraphExecUpdate_v2. Not
// for conditional nodes.
struct cuGraphExecNodeSetParams {
  GraphId graph;
  uint32_t index;
  uint32_t node;
  uint32_t reserved;
};

// ring. Kernels, copies and fills only.
struct cuGraphNodeSetEnabled {
  GraphId graph;
  uint32_t index;
  uint32_t node;
  uint32_t enabled;
};

// ring. Payload: value_count times a uint64_t, one for each kNodeSignal and kNodeWait of the root,
// in the order of its nodes. Launches of one executable graph follow each other, whatever their
// streams.
struct cuGraphLaunch {
  GraphId graph;
  StreamId stream;
  uint32_t value_count;
  uint32_t reserved;
};

// ring. Makes ready what the next launch on that stream needs.
struct cuGraphUpload {
  GraphId graph;
  StreamId stream;
};

// ring. Its launches go on; the id is free at once.
struct cuGraphExecDestroy {
  GraphId graph;
  uint32_t reserved;
};

// grpc. The handle is a value for kernels, which give it to cudaGraphSetConditional, and for one
// conditional node. It lives as long as the context. All handles of an executable graph were made
// for one graph.
struct cuGraphConditionalHandleCreate {
  ContextId context;
  uint32_t default_value;
  uint32_t flags;  // CU_GRAPH_COND_ASSIGN_DEFAULT or 0
  uint32_t reserved;
  uint64_t sibling;  // id of another handle of the same graph; 0: this is its first
};
struct cuGraphConditionalHandleCreate_Answer {
  uint64_t id;  // unique in the session; the program's handle is its low 32 bits
};

}  // namespace detshare::wire
