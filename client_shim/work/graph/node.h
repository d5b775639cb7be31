// The bodies of graph nodes: one struct for each type of node. They hold plain data, as the program
// gave it and in the form that the daemon gets.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "client_shim/objects/objects.h"
#include "client_shim/work/copy.h"
#include "client_shim/work/launch.h"
#include "proto/driver_api/cuda_unrenamed.h"
#include "proto/ring_abi.h"
#include "proto/wire/launch_hints.h"

namespace detshare::shim {

struct Graph;
struct GraphMemory;

// The context in which the work of a node runs. Nodes that only order others have no context.
struct NodeContext {
  CUcontext handle = nullptr;
  ContextId id = 0;
  uint16_t device = 0;
};

struct EmptyNode {};

struct KernelNode {
  NodeContext context;
  CUfunction function = nullptr;  // set if the program named the kernel by CUfunction; else
                                  // `kernel` is set
  CUkernel kernel = nullptr;
  KernelId id = 0;  // on context.device
  LaunchRequest launch;
  wire::LaunchHints hints{};
  std::vector<std::byte> parameters;  // packed as the kernel has them
  std::vector<uint32_t> offsets;      // of each parameter in `parameters`
  // The attributes that the program has set, for queries. Their effects are also in the fields
  // above.
  std::map<uint32_t, CUlaunchAttributeValue> attributes;
  std::vector<void*> pointers;  // to each parameter, for queries
};

struct CopyNode {
  NodeContext context;
  CUDA_MEMCPY3D description{};
  PitchedPlace to;
  PitchedPlace from;
  uint64_t width = 0;
  uint64_t height = 1;
  uint64_t depth = 1;

  uint64_t bytes() const { return width * height * depth; }
};

struct FillNode {
  NodeContext context;
  CUDA_MEMSET_NODE_PARAMS description{};
  uint64_t address = 0;  // for the GPU
  bool known = true;     // whether the memory was there when the node was made
};

struct HostNode {
  CUhostFn function = nullptr;
  void* data = nullptr;
};

struct ChildNode {
  std::unique_ptr<Graph> graph;
  bool moved = false;  // CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE
};

// An event of a node. If the program destroys the event while the node lives, `event` has another
// handle.
struct NodeEvent {
  CUevent handle = nullptr;
  Event* event = nullptr;
  EventId id = 0;
};
struct EventRecordNode {
  NodeEvent event;
};
struct EventWaitNode {
  NodeEvent event;
};

struct AllocNode {
  std::shared_ptr<GraphMemory> memory;
  CUDA_MEM_ALLOC_NODE_PARAMS description{};
  std::vector<CUmemAccessDesc> access;
};
struct FreeNode {
  std::shared_ptr<GraphMemory> memory;
};

struct MemoryOpsNode {
  NodeContext context;
  std::vector<CUstreamBatchMemOpParams> operations;
  uint32_t flags = 0;
  std::string wire;  // the operations in the daemon's form
};

// A conditional handle in the daemon. It ends when no graph of the program, no executable graph and
// no node has it any more (TakeEndedConditionals()).
struct Conditional {
  Conditional(const NodeContext& made_in, uint64_t made_id) : context(made_in), id(made_id) {}
  Conditional(const Conditional&) = delete;
  Conditional& operator=(const Conditional&) = delete;
  ~Conditional();

  const NodeContext context;
  const uint64_t id;  // the program's handle is its low 32 bits
};

struct ConditionalNode {
  NodeContext context;
  uint64_t condition = 0;  // id of its handle
  std::shared_ptr<const Conditional> owner;
  CUgraphConditionalNodeType type = CU_GRAPH_COND_TYPE_IF;
  std::vector<std::unique_ptr<Graph>> bodies;
  std::vector<CUgraph> handles;  // of the bodies; programs get this array
};

using NodeBody =
    std::variant<EmptyNode, KernelNode, CopyNode, FillNode, HostNode, ChildNode, EventRecordNode,
                 EventWaitNode, AllocNode, FreeNode, MemoryOpsNode, ConditionalNode>;

CUgraphNodeType TypeOf(const NodeBody& body);
// Null for nodes that run nowhere.
const NodeContext* ContextOf(const NodeBody& body);

}  // namespace detshare::shim
