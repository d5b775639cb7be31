// Adds nodes to graphs, and reads and changes their parameters.
#include <cstring>

#include "client_shim/transport/session.h"
#include "client_shim/work/graph/graph.h"
#include "client_shim/work/graph/graph_memory.h"
#include "client_shim/work/graph/make_node.h"
#include "client_shim/work/graph/node_params.h"
#include "proto/driver_api/shim_api.h"
#include "proto/wire/graph.h"

namespace detshare::shim::api {
namespace {

// The place of a new node, as the program gives it.
struct NodePlace {
  CUgraph graph;
  const CUgraphNode* dependencies;
  const CUgraphEdgeData* data;
  size_t count;
};

// Needs GraphMutex().
CUresult AddLocked(const NodePlace& place, NodeBody body, GraphNode** node) {
  Graph* graph = FindGraph(place.graph);
  if (graph == nullptr || (place.dependencies == nullptr && place.count != 0))
    return CUDA_ERROR_INVALID_VALUE;
  std::vector<GraphEdge> edges;
  for (size_t i = 0; i < place.count; ++i) {
    edges.push_back({FindNode(place.dependencies[i]),
                     place.data == nullptr ? CUgraphEdgeData{} : place.data[i]});
  }
  return AddNode(*graph, std::move(body), edges, node);
}

CUresult Add(CUgraphNode* handle, const NodePlace& place, NodeBody body) {
  const std::lock_guard lock(GraphMutex());
  GraphNode* node;
  const CUresult result = AddLocked(place, std::move(body), &node);
  if (result == CUDA_SUCCESS) *handle = HandleOf(*node);
  return result;
}

CUresult AddChild(CUgraphNode* handle, const NodePlace& place, CUgraph child, bool move) {
  const std::lock_guard lock(GraphMutex());
  Graph* graph = FindGraph(child);
  if (graph == nullptr || HasConditionalNodes(*graph)) return CUDA_ERROR_INVALID_VALUE;
  GraphNode* node;
  if (!move) {
    if (HasMemoryNodes(*graph)) return CUDA_ERROR_INVALID_VALUE;
    ChildNode body{CloneGraph(*graph, true), false};
    if (body.graph == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
    const CUresult result = AddLocked(place, std::move(body), &node);
    if (result == CUDA_SUCCESS) *handle = HandleOf(*node);
    return result;
  }
  if (graph->parent != nullptr || graph->captures != 0 || child == place.graph)
    return CUDA_ERROR_INVALID_VALUE;
  // If the call fails, the program keeps the child graph. So an empty node takes its place until
  // all checks have passed.
  CUresult result = AddLocked(place, EmptyNode{}, &node);
  if (result != CUDA_SUCCESS) return result;
  for (const Graph* above = node->graph; above != nullptr; above = above->parent) {
    if (above != graph) continue;
    RemoveNode(*node);
    return CUDA_ERROR_INVALID_VALUE;
  }
  graph->parent = node->graph;
  node->body = ChildNode{std::unique_ptr<Graph>(graph), true};
  *handle = HandleOf(*node);
  return CUDA_SUCCESS;
}

const Graph& RootOf(const Graph& graph) {
  return graph.parent == nullptr ? graph : RootOf(*graph.parent);
}

bool UsesConditional(const Graph& graph, uint64_t condition) {
  for (const auto& node : graph.nodes) {
    const auto* conditional = std::get_if<ConditionalNode>(&node->body);
    if (conditional != nullptr) {
      if (conditional->condition == condition) return true;
      for (const auto& body : conditional->bodies) {
        if (UsesConditional(*body, condition)) return true;
      }
    }
    const auto* child = std::get_if<ChildNode>(&node->body);
    if (child != nullptr && UsesConditional(*child->graph, condition)) return true;
  }
  return false;
}

// The id of a handle that was made for the graph or for a graph inside it. 0: there is none.
uint64_t AnyConditional(const Graph& graph) {
  if (!graph.conditionals.empty()) return graph.conditionals.front()->id;
  for (const auto& node : graph.nodes) {
    const auto* conditional = std::get_if<ConditionalNode>(&node->body);
    if (conditional != nullptr) return conditional->condition;
  }
  return 0;
}

CUresult AddConditional(CUgraphNode* handle, const NodePlace& place,
                        CUDA_CONDITIONAL_NODE_PARAMS* params) {
  const bool sized = params->type == CU_GRAPH_COND_TYPE_IF      ? params->size - 1u < 2
                     : params->type == CU_GRAPH_COND_TYPE_WHILE ? params->size == 1
                     : params->type == CU_GRAPH_COND_TYPE_SWITCH
                         ? params->size - 1u < wire::kMaxGraphValues
                         : false;
  if (!sized) return CUDA_ERROR_INVALID_VALUE;
  ConditionalNode body;
  CUresult result = FindNodeContext(params->ctx, true, &body.context);
  if (result != CUDA_SUCCESS) return result;
  body.type = params->type;
  const std::lock_guard lock(GraphMutex());
  const Graph* graph = FindGraph(place.graph);
  if (graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
  for (const Graph* above = graph; above != nullptr; above = above->parent) {
    for (const auto& made : above->conditionals) {
      if (static_cast<uint32_t>(made->id) != params->handle) continue;
      body.condition = made->id;
      body.owner = made;
    }
  }
  if (body.condition == 0 || UsesConditional(RootOf(*graph), body.condition))
    return CUDA_ERROR_INVALID_VALUE;
  for (uint32_t i = 0; i < params->size; ++i) {
    body.bodies.push_back(MakeGraph(true));
    if (body.bodies.back() == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
    body.handles.push_back(HandleOf(*body.bodies.back()));
  }
  GraphNode* node;
  result = AddLocked(place, std::move(body), &node);
  if (result != CUDA_SUCCESS) return result;
  params->phGraph_out = std::get<ConditionalNode>(node->body).handles.data();
  *handle = HandleOf(*node);
  return CUDA_SUCCESS;
}

// Calls `use` with the body of the node, under GraphMutex(), if the node has this type.
template <typename Body, typename Use>
CUresult WithBody(CUgraphNode handle, Use use) {
  const std::lock_guard lock(GraphMutex());
  GraphNode* node = FindNode(handle);
  Body* body = node == nullptr ? nullptr : std::get_if<Body>(&node->body);
  return body == nullptr ? CUDA_ERROR_INVALID_VALUE : use(*body);
}

// Gives a node another body of the same type.
CUresult Set(CUgraphNode handle, NodeBody body) {
  const std::lock_guard lock(GraphMutex());
  GraphNode* node = FindNode(handle);
  if (node == nullptr || node->body.index() != body.index()) return CUDA_ERROR_INVALID_VALUE;
  if (auto* kernel = std::get_if<KernelNode>(&body)) {
    const CUresult result = KeepAttributes(std::get<KernelNode>(node->body), kernel);
    if (result != CUDA_SUCCESS) return result;
  }
  node->body = std::move(body);
  return CUDA_SUCCESS;
}

CUresult ContextOfNode(CUgraphNode handle, CUcontext* context) {
  const std::lock_guard lock(GraphMutex());
  const GraphNode* node = FindNode(handle);
  const NodeContext* found = node == nullptr ? nullptr : ContextOf(node->body);
  if (found == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *context = found->handle;
  return CUDA_SUCCESS;
}

// The same with a body that is made from parameters, in the node's context.
template <typename Body, typename Parameters>
CUresult SetInItsContext(CUgraphNode handle, const Parameters& parameters,
                         CUresult (*make)(const Parameters&, CUcontext, Body*)) {
  CUcontext context;
  CUresult result = ContextOfNode(handle, &context);
  if (result != CUDA_SUCCESS) return result;
  Body body;
  result = make(parameters, context, &body);
  return result != CUDA_SUCCESS ? result : Set(handle, std::move(body));
}

}  // namespace

// ---- nodes of any type

CUresult cuGraphAddNode(CUgraphNode* phGraphNode, CUgraph hGraph, const CUgraphNode* dependencies,
                        size_t numDependencies, CUgraphNodeParams* nodeParams) {
  return api::cuGraphAddNode_v2(phGraphNode, hGraph, dependencies, nullptr, numDependencies,
                                nodeParams);
}

CUresult cuGraphAddNode_v2(CUgraphNode* phGraphNode, CUgraph hGraph,
                           const CUgraphNode* dependencies, const CUgraphEdgeData* dependencyData,
                           size_t numDependencies, CUgraphNodeParams* nodeParams) {
  if (!ReservedUnused(*nodeParams)) return CUDA_ERROR_INVALID_VALUE;
  const NodePlace place{hGraph, dependencies, dependencyData, numDependencies};
  // Driver 580 clones the child for every other ownership.
  if (nodeParams->type == CU_GRAPH_NODE_TYPE_GRAPH) {
    return AddChild(phGraphNode, place, nodeParams->graph.graph,
                    nodeParams->graph.ownership == CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE);
  }
  if (nodeParams->type == CU_GRAPH_NODE_TYPE_CONDITIONAL)
    return AddConditional(phGraphNode, place, &nodeParams->conditional);
  NodeBody body;
  CUresult result = MakeNodeBody(*nodeParams, &body);
  if (result != CUDA_SUCCESS) return result;
  const auto* alloc = std::get_if<AllocNode>(&body);
  const std::shared_ptr<const GraphMemory> memory = alloc == nullptr ? nullptr : alloc->memory;
  result = Add(phGraphNode, place, std::move(body));
  if (result == CUDA_SUCCESS && memory != nullptr) nodeParams->alloc.dptr = memory->address;
  return result;
}

CUresult cuGraphNodeSetParams(CUgraphNode hNode, CUgraphNodeParams* nodeParams) {
  switch (nodeParams->type) {
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
    case CU_GRAPH_NODE_TYPE_GRAPH:
    case CU_GRAPH_NODE_TYPE_CONDITIONAL:
      return CUDA_ERROR_NOT_SUPPORTED;
    default:
      break;
  }
  NodeBody body;
  const CUresult result = MakeNodeBody(*nodeParams, &body);
  return result != CUDA_SUCCESS ? result : Set(hNode, std::move(body));
}

// ---- kernels

CUresult cuGraphAddKernelNode(CUgraphNode* phGraphNode, CUgraph hGraph,
                              const CUgraphNode* dependencies, size_t numDependencies,
                              const CUDA_KERNEL_NODE_PARAMS_v1* nodeParams) {
  const CUDA_KERNEL_NODE_PARAMS params = WithoutKernelHandle(*nodeParams);
  return api::cuGraphAddKernelNode_v2(phGraphNode, hGraph, dependencies, numDependencies, &params);
}

CUresult cuGraphAddKernelNode_v2(CUgraphNode* phGraphNode, CUgraph hGraph,
                                 const CUgraphNode* dependencies, size_t numDependencies,
                                 const CUDA_KERNEL_NODE_PARAMS* nodeParams) {
  KernelNode node;
  const CUresult result = MakeKernelNode(*nodeParams, &node);
  return result != CUDA_SUCCESS
             ? result
             : Add(phGraphNode, {hGraph, dependencies, nullptr, numDependencies}, std::move(node));
}

CUresult cuGraphKernelNodeGetParams(CUgraphNode hNode, CUDA_KERNEL_NODE_PARAMS_v1* nodeParams) {
  CUDA_KERNEL_NODE_PARAMS params;
  const CUresult result = api::cuGraphKernelNodeGetParams_v2(hNode, &params);
  if (result != CUDA_SUCCESS) return result;
  // Every call accepts a kernel as a function.
  if (params.func == nullptr) params.func = reinterpret_cast<CUfunction>(params.kern);
  std::memcpy(nodeParams, &params, sizeof(*nodeParams));
  return CUDA_SUCCESS;
}

CUresult cuGraphKernelNodeGetParams_v2(CUgraphNode hNode, CUDA_KERNEL_NODE_PARAMS* nodeParams) {
  return WithBody<KernelNode>(hNode, [&](KernelNode& node) {
    *nodeParams = DescribeKernelNode(node);
    return CUDA_SUCCESS;
  });
}

CUresult cuGraphKernelNodeSetParams(CUgraphNode hNode,
                                    const CUDA_KERNEL_NODE_PARAMS_v1* nodeParams) {
  const CUDA_KERNEL_NODE_PARAMS params = WithoutKernelHandle(*nodeParams);
  return api::cuGraphKernelNodeSetParams_v2(hNode, &params);
}

CUresult cuGraphKernelNodeSetParams_v2(CUgraphNode hNode,
                                       const CUDA_KERNEL_NODE_PARAMS* nodeParams) {
  KernelNode node;
  const CUresult result = MakeKernelNode(*nodeParams, &node);
  return result != CUDA_SUCCESS ? result : Set(hNode, std::move(node));
}

CUresult cuGraphKernelNodeCopyAttributes(CUgraphNode dst, CUgraphNode src) {
  return WithBody<KernelNode>(src, [dst](const KernelNode& from) {
    GraphNode* node = FindNode(dst);
    auto* to = node == nullptr ? nullptr : std::get_if<KernelNode>(&node->body);
    if (to == nullptr || to->context.id != from.context.id) return CUDA_ERROR_INVALID_VALUE;
    KernelNode changed = *to;
    const CUresult result = KeepAttributes(from, &changed);
    if (result == CUDA_SUCCESS) *to = std::move(changed);
    return result;
  });
}

CUresult cuGraphKernelNodeGetAttribute(CUgraphNode hNode, CUkernelNodeAttrID attr,
                                       CUkernelNodeAttrValue* value_out) {
  return WithBody<KernelNode>(
      hNode, [&](const KernelNode& node) { return GetKernelNodeAttribute(node, attr, value_out); });
}

CUresult cuGraphKernelNodeSetAttribute(CUgraphNode hNode, CUkernelNodeAttrID attr,
                                       const CUkernelNodeAttrValue* value) {
  return WithBody<KernelNode>(
      hNode, [&](KernelNode& node) { return SetKernelNodeAttribute(node, attr, *value); });
}

// ---- copies

CUresult cuGraphAddMemcpyNode(CUgraphNode* phGraphNode, CUgraph hGraph,
                              const CUgraphNode* dependencies, size_t numDependencies,
                              const CUDA_MEMCPY3D* copyParams, CUcontext ctx) {
  CopyNode node;
  const CUresult result = MakeCopyNode(*copyParams, ctx, &node);
  return result != CUDA_SUCCESS
             ? result
             : Add(phGraphNode, {hGraph, dependencies, nullptr, numDependencies}, std::move(node));
}

CUresult cuGraphMemcpyNodeGetParams(CUgraphNode hNode, CUDA_MEMCPY3D* nodeParams) {
  return WithBody<CopyNode>(hNode, [&](const CopyNode& node) {
    *nodeParams = node.description;
    return CUDA_SUCCESS;
  });
}

CUresult cuGraphMemcpyNodeSetParams(CUgraphNode hNode, const CUDA_MEMCPY3D* nodeParams) {
  return SetInItsContext<CopyNode>(hNode, *nodeParams, MakeCopyNode);
}

// ---- memsets

CUresult cuGraphAddMemsetNode(CUgraphNode* phGraphNode, CUgraph hGraph,
                              const CUgraphNode* dependencies, size_t numDependencies,
                              const CUDA_MEMSET_NODE_PARAMS* memsetParams, CUcontext ctx) {
  FillNode node;
  const CUresult result = MakeFillNode(*memsetParams, ctx, &node);
  return result != CUDA_SUCCESS
             ? result
             : Add(phGraphNode, {hGraph, dependencies, nullptr, numDependencies}, std::move(node));
}

CUresult cuGraphMemsetNodeGetParams(CUgraphNode hNode, CUDA_MEMSET_NODE_PARAMS* nodeParams) {
  return WithBody<FillNode>(hNode, [&](const FillNode& node) {
    *nodeParams = node.description;
    return CUDA_SUCCESS;
  });
}

CUresult cuGraphMemsetNodeSetParams(CUgraphNode hNode, const CUDA_MEMSET_NODE_PARAMS* nodeParams) {
  return SetInItsContext<FillNode>(hNode, *nodeParams, MakeFillNode);
}

// ---- host functions

CUresult cuGraphAddHostNode(CUgraphNode* phGraphNode, CUgraph hGraph,
                            const CUgraphNode* dependencies, size_t numDependencies,
                            const CUDA_HOST_NODE_PARAMS* nodeParams) {
  if (nodeParams->fn == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return Add(phGraphNode, {hGraph, dependencies, nullptr, numDependencies},
             HostNode{nodeParams->fn, nodeParams->userData});
}

CUresult cuGraphHostNodeGetParams(CUgraphNode hNode, CUDA_HOST_NODE_PARAMS* nodeParams) {
  return WithBody<HostNode>(hNode, [&](const HostNode& node) {
    *nodeParams = {node.function, node.data};
    return CUDA_SUCCESS;
  });
}

CUresult cuGraphHostNodeSetParams(CUgraphNode hNode, const CUDA_HOST_NODE_PARAMS* nodeParams) {
  if (nodeParams->fn == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return Set(hNode, HostNode{nodeParams->fn, nodeParams->userData});
}

// ---- child graphs and empty nodes

CUresult cuGraphAddChildGraphNode(CUgraphNode* phGraphNode, CUgraph hGraph,
                                  const CUgraphNode* dependencies, size_t numDependencies,
                                  CUgraph childGraph) {
  return AddChild(phGraphNode, {hGraph, dependencies, nullptr, numDependencies}, childGraph, false);
}

CUresult cuGraphChildGraphNodeGetGraph(CUgraphNode hNode, CUgraph* phGraph) {
  return WithBody<ChildNode>(hNode, [phGraph](const ChildNode& node) {
    *phGraph = HandleOf(*node.graph);
    return CUDA_SUCCESS;
  });
}

CUresult cuGraphAddEmptyNode(CUgraphNode* phGraphNode, CUgraph hGraph,
                             const CUgraphNode* dependencies, size_t numDependencies) {
  return Add(phGraphNode, {hGraph, dependencies, nullptr, numDependencies}, EmptyNode{});
}

// ---- events

CUresult cuGraphAddEventRecordNode(CUgraphNode* phGraphNode, CUgraph hGraph,
                                   const CUgraphNode* dependencies, size_t numDependencies,
                                   CUevent event) {
  EventRecordNode node;
  const CUresult result = MakeNodeEvent(event, &node.event);
  return result != CUDA_SUCCESS
             ? result
             : Add(phGraphNode, {hGraph, dependencies, nullptr, numDependencies}, node);
}

CUresult cuGraphEventRecordNodeGetEvent(CUgraphNode hNode, CUevent* event_out) {
  return WithBody<EventRecordNode>(hNode, [event_out](const EventRecordNode& node) {
    *event_out = node.event.handle;
    return CUDA_SUCCESS;
  });
}

CUresult cuGraphEventRecordNodeSetEvent(CUgraphNode hNode, CUevent event) {
  EventRecordNode node;
  const CUresult result = MakeNodeEvent(event, &node.event);
  return result != CUDA_SUCCESS ? result : Set(hNode, node);
}

CUresult cuGraphAddEventWaitNode(CUgraphNode* phGraphNode, CUgraph hGraph,
                                 const CUgraphNode* dependencies, size_t numDependencies,
                                 CUevent event) {
  EventWaitNode node;
  const CUresult result = MakeNodeEvent(event, &node.event);
  return result != CUDA_SUCCESS
             ? result
             : Add(phGraphNode, {hGraph, dependencies, nullptr, numDependencies}, node);
}

CUresult cuGraphEventWaitNodeGetEvent(CUgraphNode hNode, CUevent* event_out) {
  return WithBody<EventWaitNode>(hNode, [event_out](const EventWaitNode& node) {
    *event_out = node.event.handle;
    return CUDA_SUCCESS;
  });
}

CUresult cuGraphEventWaitNodeSetEvent(CUgraphNode hNode, CUevent event) {
  EventWaitNode node;
  const CUresult result = MakeNodeEvent(event, &node.event);
  return result != CUDA_SUCCESS ? result : Set(hNode, node);
}

// ---- memory operations of streams

CUresult cuGraphAddBatchMemOpNode(CUgraphNode* phGraphNode, CUgraph hGraph,
                                  const CUgraphNode* dependencies, size_t numDependencies,
                                  const CUDA_BATCH_MEM_OP_NODE_PARAMS* nodeParams) {
  MemoryOpsNode node;
  const CUresult result = MakeMemoryOpsNode(nodeParams->ctx, nodeParams->paramArray,
                                            nodeParams->count, nodeParams->flags, &node);
  return result != CUDA_SUCCESS
             ? result
             : Add(phGraphNode, {hGraph, dependencies, nullptr, numDependencies}, std::move(node));
}

CUresult cuGraphBatchMemOpNodeGetParams(CUgraphNode hNode,
                                        CUDA_BATCH_MEM_OP_NODE_PARAMS* nodeParams_out) {
  return WithBody<MemoryOpsNode>(hNode, [nodeParams_out](MemoryOpsNode& node) {
    *nodeParams_out = {node.context.handle, static_cast<unsigned int>(node.operations.size()),
                       node.operations.data(), node.flags};
    return CUDA_SUCCESS;
  });
}

CUresult cuGraphBatchMemOpNodeSetParams(CUgraphNode hNode,
                                        const CUDA_BATCH_MEM_OP_NODE_PARAMS* nodeParams) {
  MemoryOpsNode node;
  const CUresult result = MakeMemoryOpsNode(nodeParams->ctx, nodeParams->paramArray,
                                            nodeParams->count, nodeParams->flags, &node);
  return result != CUDA_SUCCESS ? result : Set(hNode, std::move(node));
}

// ---- memory

CUresult cuGraphAddMemAllocNode(CUgraphNode* phGraphNode, CUgraph hGraph,
                                const CUgraphNode* dependencies, size_t numDependencies,
                                CUDA_MEM_ALLOC_NODE_PARAMS* nodeParams) {
  AllocNode node;
  CUresult result = MakeAllocNode(*nodeParams, &node);
  if (result != CUDA_SUCCESS) return result;
  const std::shared_ptr<const GraphMemory> memory = node.memory;
  result = Add(phGraphNode, {hGraph, dependencies, nullptr, numDependencies}, std::move(node));
  if (result == CUDA_SUCCESS) nodeParams->dptr = memory->address;
  return result;
}

CUresult cuGraphMemAllocNodeGetParams(CUgraphNode hNode, CUDA_MEM_ALLOC_NODE_PARAMS* params_out) {
  return WithBody<AllocNode>(hNode, [params_out](AllocNode& node) {
    *params_out = node.description;
    params_out->accessDescs = node.access.empty() ? nullptr : node.access.data();
    params_out->accessDescCount = node.access.size();
    return CUDA_SUCCESS;
  });
}

CUresult cuGraphAddMemFreeNode(CUgraphNode* phGraphNode, CUgraph hGraph,
                               const CUgraphNode* dependencies, size_t numDependencies,
                               CUdeviceptr dptr) {
  FreeNode node{FindGraphMemory(dptr)};
  if (node.memory == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return Add(phGraphNode, {hGraph, dependencies, nullptr, numDependencies}, std::move(node));
}

CUresult cuGraphMemFreeNodeGetParams(CUgraphNode hNode, CUdeviceptr* dptr_out) {
  return WithBody<FreeNode>(hNode, [dptr_out](const FreeNode& node) {
    *dptr_out = node.memory->address;
    return CUDA_SUCCESS;
  });
}

CUresult cuDeviceGraphMemTrim(CUdevice device) {
  if (!session().HasDevice(device)) return CUDA_ERROR_INVALID_DEVICE;
  // The shim keeps no memory besides that of graphs, so only the numbers change.
  TrimGraphMemory(static_cast<uint16_t>(device));
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attr, void* value) {
  if (!session().HasDevice(device)) return CUDA_ERROR_INVALID_DEVICE;
  const GraphMemoryUse use = UseOfGraphMemory(static_cast<uint16_t>(device));
  switch (attr) {
    case CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT:
    case CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT:
      *static_cast<cuuint64_t*>(value) = use.pool;
      return CUDA_SUCCESS;
    case CU_GRAPH_MEM_ATTR_USED_MEM_HIGH:
      *static_cast<cuuint64_t*>(value) = use.used_high;
      return CUDA_SUCCESS;
    case CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH:
      *static_cast<cuuint64_t*>(value) = use.reserved_high;
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult cuDeviceSetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attr, void* value) {
  if (!session().HasDevice(device)) return CUDA_ERROR_INVALID_DEVICE;
  // A high-water mark can only be reset to the present use.
  if ((attr != CU_GRAPH_MEM_ATTR_USED_MEM_HIGH && attr != CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH) ||
      *static_cast<cuuint64_t*>(value) != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (attr == CU_GRAPH_MEM_ATTR_USED_MEM_HIGH) {
    ResetUsedGraphMemoryHigh(static_cast<uint16_t>(device));
  } else {
    ResetReservedGraphMemoryHigh(static_cast<uint16_t>(device));
  }
  return CUDA_SUCCESS;
}

// ---- conditional nodes

CUresult cuGraphConditionalHandleCreate(CUgraphConditionalHandle* pHandle_out, CUgraph hGraph,
                                        CUcontext ctx, unsigned int defaultLaunchValue,
                                        unsigned int flags) {
  if ((flags & ~unsigned{CU_GRAPH_COND_ASSIGN_DEFAULT}) != 0) return CUDA_ERROR_INVALID_VALUE;
  NodeContext context;
  CUresult result = FindNodeContext(ctx, true, &context);
  if (result != CUDA_SUCCESS) return result;
  wire::cuGraphConditionalHandleCreate args{context.id, defaultLaunchValue, flags, 0, 0};
  {
    const std::lock_guard lock(GraphMutex());
    const Graph* graph = FindGraph(hGraph);
    if (graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
    args.sibling = AnyConditional(RootOf(*graph));
  }
  // Make room for the new handle.
  for (const EndedConditional& ended : TakeEndedConditionals()) {
    wire::cuGraphConditionalHandleCreate end{};
    end.flags = wire::kEndConditional;
    end.sibling = ended.id;
    session().Submit(Op::cuGraphConditionalHandleCreate, ended.context.device, ended.context.id,
                     end);
  }
  std::string bytes;
  result = session().CallControl(Op::cuGraphConditionalHandleCreate, context.device, context.id,
                                 &args, sizeof(args), {}, &bytes);
  if (result != CUDA_SUCCESS) return result;
  wire::cuGraphConditionalHandleCreate_Reply reply;
  if (bytes.size() != sizeof(reply)) return CUDA_ERROR_UNKNOWN;
  std::memcpy(&reply, bytes.data(), sizeof(reply));
  auto made = std::make_shared<const Conditional>(context, reply.id);
  const std::lock_guard lock(GraphMutex());
  Graph* graph = FindGraph(hGraph);
  if (graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
  graph->conditionals.push_back(std::move(made));
  *pHandle_out = static_cast<uint32_t>(reply.id);
  return CUDA_SUCCESS;
}

}  // namespace detshare::shim::api
