// Graphs: nodes of all kinds, edges, clones, instantiation and updates.
#include <array>

#include "tests/gpu/sweep/sweep.h"

namespace sweep {
namespace {

void CUDA_CB DoNothing(void*) {}

void* store_out = nullptr;
unsigned store_value = 5;
unsigned char some_bytes[24] = {};
void* store_list[2] = {&store_out, &store_value};
void* many_list[5] = {some_bytes, some_bytes, some_bytes, &store_out, &store_value};

CUDA_KERNEL_NODE_PARAMS AnyKernel() {
  CUDA_KERNEL_NODE_PARAMS kernel{};
  store_out = reinterpret_cast<void*>(fix.second.base);
  kernel.func = AnyFunction().value;
  kernel.gridDimX = numbers.Mostly<unsigned>({1, 2, 16}, {0, 1u << 31}, 8);
  kernel.gridDimY = numbers.Mostly<unsigned>({1}, {0, 2, 65536}, 6);
  kernel.gridDimZ = numbers.Mostly<unsigned>({1}, {0, 65536}, 4);
  kernel.blockDimX = numbers.Mostly<unsigned>({1, 32, 256}, {0, 257, 1025}, 8);
  kernel.blockDimY = numbers.Mostly<unsigned>({1}, {0, 2}, 4);
  kernel.blockDimZ = numbers.Mostly<unsigned>({1}, {0, 65}, 4);
  kernel.sharedMemBytes = numbers.Mostly<unsigned>({0, 1024}, {49153, UINT32_MAX}, 6);
  kernel.kernelParams = kernel.func == fix.many      ? many_list
                        : kernel.func == fix.nothing ? nullptr
                                                     : store_list;
  return kernel;
}

CUDA_MEMSET_NODE_PARAMS AnyMemset() {
  CUDA_MEMSET_NODE_PARAMS memset{};
  memset.dst = Somewhere(numbers.Chance(80) ? fix.second : fix.device_memory).value;
  memset.elementSize = numbers.Mostly<unsigned>({1, 2, 4}, {0, 3, 8}, 10);
  memset.value = numbers.Mostly<unsigned>({0, 7, 255}, {256, 65536, UINT32_MAX}, 15);
  memset.width = numbers.Mostly<std::size_t>({1, 16, 64}, {0}, 10);
  memset.height = numbers.Mostly<std::size_t>({1, 1, 4}, {0, 2}, 8);
  memset.pitch = numbers.Mostly<std::size_t>({256, 512}, {0, 1, 3, 100}, 15);
  return memset;
}

CUDA_MEMCPY3D AnyCopy() {
  CUDA_MEMCPY3D copy{};
  const bool from_host = numbers.Chance(30), to_host = numbers.Chance(30);
  copy.srcMemoryType = from_host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
  copy.dstMemoryType = to_host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
  const std::int64_t offset = numbers.Mostly<std::int64_t>({0, 256}, {1}, 10);
  if (from_host) {
    copy.srcHost = reinterpret_cast<void*>(At(fix.pinned, offset).value);
  } else {
    copy.srcDevice = At(fix.device_memory, offset).value;
  }
  if (to_host) {
    copy.dstHost = reinterpret_cast<void*>(At(fix.host, offset).value);
  } else {
    copy.dstDevice = At(fix.second, offset).value;
  }
  copy.WidthInBytes = numbers.Mostly<std::size_t>({4, 64, 256}, {0, 300}, 8);
  copy.Height = numbers.Mostly<std::size_t>({1, 1, 4}, {0}, 6);
  copy.Depth = numbers.Mostly<std::size_t>({1, 1, 2}, {0}, 6);
  copy.srcPitch = copy.dstPitch = numbers.Mostly<std::size_t>({256, 512}, {0, 100}, 6);
  copy.srcHeight = copy.dstHeight = numbers.Mostly<std::size_t>({4, 8}, {0}, 6);
  return copy;
}

// A graph and its nodes, null where they could not be made.
struct Made {
  CUgraph graph = nullptr;
  std::vector<CUgraphNode> nodes;
  // A graph with them must not be launched: it would leave memory behind.
  bool launchable = true;
};

int node_number = 0;

// Nodes that the new one depends on; sometimes one that is wrong.
struct Dependencies {
  std::array<CUgraphNode, 3> nodes{};
  std::size_t count = 0;
  std::string text;
};

Dependencies AnyDependencies(const Made& made) {
  Dependencies found;
  const std::uint64_t wanted = numbers.Below(3);
  const std::uint64_t start = numbers.Next();
  if (!made.nodes.empty())
    for (std::uint64_t i = 0; i < wanted; ++i) {
      const CUgraphNode node = made.nodes[(start + i) % made.nodes.size()];
      if (node == nullptr) continue;
      found.nodes[found.count++] = node;
      found.text += Show(static_cast<const void*>(node)) + " ";
    }
  return found;
}

void Remember(Made* made, const Out<CUgraphNode>& node) {
  const CUgraphNode one = node.Or(nullptr);
  made->nodes.push_back(one);
  if (one != nullptr) NameHandle(one, Format("node%d", node_number).c_str());
  ++node_number;
}

CUgraph child = nullptr;

void AddNode(Made* made) {
  const Dependencies on = AnyDependencies(*made);
  const auto list = As(on.nodes.data(), "{" + on.text + "}");
  const CUgraph graph = made->graph;
  Out<CUgraphNode> node("node");
  switch (numbers.Below(10)) {
    case 0:
      CALL(cuGraphAddEmptyNode, node.MaybeNull(), graph, list, on.count);
      break;
    case 1:
    case 2: {
      CUDA_KERNEL_NODE_PARAMS kernel = AnyKernel();
      CALL(cuGraphAddKernelNode, node, graph, list, on.count, RefOrNull(kernel));
      break;
    }
    case 3: {
      CUDA_MEMSET_NODE_PARAMS memset = AnyMemset();
      CALL(cuGraphAddMemsetNode, node, graph, list, on.count, RefOrNull(memset),
           numbers.Mostly<CUcontext>({fix.context}, {nullptr}, 5));
      break;
    }
    case 4: {
      CUDA_MEMCPY3D copy = AnyCopy();
      CALL(cuGraphAddMemcpyNode, node, graph, list, on.count, RefOrNull(copy),
           numbers.Mostly<CUcontext>({fix.context}, {nullptr}, 5));
      break;
    }
    case 5: {
      CUDA_HOST_NODE_PARAMS host{};
      host.fn = &DoNothing;
      CALL(cuGraphAddHostNode, node, graph, list, on.count, RefOrNull(host));
      break;
    }
    case 6:
      CALL(cuGraphAddEventRecordNode, node, graph, list, on.count, AnyEvent());
      break;
    case 7:
      CALL(cuGraphAddEventWaitNode, node, graph, list, on.count, AnyEvent());
      break;
    case 8:
      CALL(cuGraphAddChildGraphNode, node, graph, list, on.count, child);
      break;
    default: {
      CUstreamBatchMemOpParams write{};
      write.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
      write.writeValue.address = At(fix.second, 64).value;
      write.writeValue.value = 3;
      CUDA_BATCH_MEM_OP_NODE_PARAMS batch{};
      batch.ctx = fix.context;
      batch.count = numbers.Mostly<unsigned>({1}, {0}, 5);
      batch.paramArray = &write;
      batch.flags = numbers.Mostly<unsigned>({0}, {1}, 5);
      CALL(cuGraphAddBatchMemOpNode, node, graph, list, on.count, Ref(batch));
    }
  }
  Remember(made, node);
}

// Nodes of which only the general function makes some kinds.
void AddGeneralNode(Made* made) {
  const Dependencies on = AnyDependencies(*made);
  const auto list = As(on.nodes.data(), "{" + on.text + "}");
  Out<CUgraphNode> node("node");
  CUgraphNodeParams parameters{};
  const int type = numbers.Mostly<int>({0, 1, 2, 3, 4, 5, 6, 7, 12, 13}, {8, 9, 14, 100, -1}, 6);
  parameters.type = static_cast<CUgraphNodeType>(type);
  CUgraph body[2] = {nullptr, nullptr};
  std::string text = Format("type=%d ", type);
  CUstreamBatchMemOpParams write{};
  switch (type) {
    case CU_GRAPH_NODE_TYPE_KERNEL: {
      const CUDA_KERNEL_NODE_PARAMS kernel = AnyKernel();
      std::memcpy(&parameters.kernel, &kernel, sizeof kernel);
      text += Show(kernel);
      break;
    }
    case CU_GRAPH_NODE_TYPE_MEMCPY:
      parameters.memcpy.copyParams = AnyCopy();
      parameters.memcpy.copyCtx = fix.context;
      parameters.memcpy.flags = numbers.Mostly<int>({0}, {1}, 4);
      text += Show(parameters.memcpy.copyParams);
      break;
    case CU_GRAPH_NODE_TYPE_MEMSET: {
      const CUDA_MEMSET_NODE_PARAMS memset = AnyMemset();
      std::memcpy(static_cast<void*>(&parameters.memset), &memset, sizeof memset);
      parameters.memset.ctx = fix.context;
      text += Show(memset);
      break;
    }
    case CU_GRAPH_NODE_TYPE_HOST:
      parameters.host.fn = &DoNothing;
      break;
    case CU_GRAPH_NODE_TYPE_GRAPH:
      parameters.graph.graph = child;
      parameters.graph.ownership =
          static_cast<CUgraphChildGraphNodeOwnership>(numbers.Mostly<int>({0}, {2, -1}, 10));
      text += Show(parameters.graph.ownership);
      break;
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
      parameters.eventWait.event = AnyEvent().value;
      break;
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
      parameters.eventRecord.event = AnyEvent().value;
      break;
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
      write.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
      write.writeValue.address = At(fix.second, 64).value;
      parameters.memOp.ctx = fix.context;
      parameters.memOp.count = 1;
      parameters.memOp.paramArray = &write;
      break;
    case CU_GRAPH_NODE_TYPE_CONDITIONAL: {
      Out<CUgraphConditionalHandle> handle("handle");
      const unsigned flags = numbers.Mostly<unsigned>({1}, {0, 2, 3}, 25);
      CALL(cuGraphConditionalHandleCreate, handle, made->graph,
           numbers.Mostly<CUcontext>({fix.context}, {nullptr}),
           numbers.Mostly<unsigned>({0}, {1, 100}, 20), flags);
      parameters.conditional.handle = handle.Or(0);
      parameters.conditional.type =
          static_cast<CUgraphConditionalNodeType>(numbers.Mostly<int>({0, 1, 2}, {3, -1}, 10));
      parameters.conditional.size = numbers.Mostly<unsigned>({1, 1, 2}, {0, 3}, 10);
      parameters.conditional.ctx = fix.context;
      text += Format("%d size=%u", parameters.conditional.type, parameters.conditional.size);
      // A loop would not end.
      made->launchable = false;
      if (handle.Or(0) == 0) return;
      break;
    }
    default:
      break;
  }
  if (numbers.Chance(2)) parameters.reserved2 = 1;
  CALL(cuGraphAddNode, node, made->graph, list, nullptr, on.count,
       As(&parameters, "{" + text + "}"));
  if (type == CU_GRAPH_NODE_TYPE_CONDITIONAL && node.Or(nullptr) != nullptr) {
    body[0] = parameters.conditional.phGraph_out == nullptr ? nullptr
                                                            : parameters.conditional.phGraph_out[0];
    Note(std::string("body: ") + (body[0] == nullptr ? "null" : "set"));
  }
  Remember(made, node);
}

void Begin(Made* made) {
  node_number = 0;
  Out<CUgraph> graph("graph");
  CALL(cuGraphCreate, graph.MaybeNull(), numbers.Mostly<unsigned>({0}, {1, UINT32_MAX}, 4));
  made->graph = graph.Or(nullptr);
  if (made->graph == nullptr && cuGraphCreate(&made->graph, 0) != CUDA_SUCCESS) return;
  NameHandle(made->graph, "graph");
}

void End(Made* made) {
  for (const CUgraphNode node : made->nodes) NameHandle(node, nullptr);
  CALL(cuGraphDestroy, made->graph);
  NameHandle(made->graph, nullptr);
  Settle();
}

CUgraphNode AnyNode(const Made& made) {
  const std::uint64_t number = numbers.Next();
  if (made.nodes.empty()) return nullptr;
  for (std::size_t i = 0; i < made.nodes.size(); ++i) {
    const CUgraphNode node = made.nodes[(number + i) % made.nodes.size()];
    if (node != nullptr) return node;
  }
  return nullptr;
}

// Mostly the index of the function for the node's kind, in the order of the functions below.
std::uint64_t KindOf(CUgraphNode node, std::uint64_t end) {
  constexpr int kOrder[] = {CU_GRAPH_NODE_TYPE_KERNEL,       CU_GRAPH_NODE_TYPE_MEMSET,
                            CU_GRAPH_NODE_TYPE_MEMCPY,       CU_GRAPH_NODE_TYPE_HOST,
                            CU_GRAPH_NODE_TYPE_EVENT_RECORD, CU_GRAPH_NODE_TYPE_WAIT_EVENT,
                            CU_GRAPH_NODE_TYPE_GRAPH,        CU_GRAPH_NODE_TYPE_BATCH_MEM_OP};
  const std::uint64_t any = numbers.Below(end);
  const bool matching = numbers.Chance(70);
  CUgraphNodeType type{};
  if (!matching || cuGraphNodeGetType(node, &type) != CUDA_SUCCESS) return any;
  for (std::uint64_t i = 0; i < end; ++i)
    if (kOrder[i] == type) return i;
  return any;
}

void AskNode(CUgraphNode node) {
  Out<CUgraphNodeType> type("type");
  CALL(cuGraphNodeGetType, node, type.MaybeNull());
  Out<std::size_t> count("count");
  count.value = numbers.Pick<std::size_t>({0, 1, 3});
  CUgraphNode list[8] = {};
  const bool listed = numbers.Chance(50);
  CALL(cuGraphNodeGetDependencies, node,
       listed ? As(list, "list") : As<CUgraphNode*>(nullptr, "null"), nullptr, count);
  if (listed)
    Note("list: " + Show(static_cast<const void*>(list[0])) + " " +
         Show(static_cast<const void*>(list[1])) + " " + Show(static_cast<const void*>(list[2])));
  Out<std::size_t> dependents("count");
  CALL(cuGraphNodeGetDependentNodes, node, nullptr, nullptr, dependents);
}

// Asks with the function of one kind, which is not always the right one.
void AskParameters(CUgraphNode node) {
  switch (KindOf(node, 8)) {
    case 0: {
      Out<CUDA_KERNEL_NODE_PARAMS> kernel("kernel");
      CALL(cuGraphKernelNodeGetParams, node, kernel);
      break;
    }
    case 1: {
      Out<CUDA_MEMSET_NODE_PARAMS> memset("memset");
      CALL(cuGraphMemsetNodeGetParams, node, memset);
      break;
    }
    case 2: {
      Out<CUDA_MEMCPY3D> copy("copy");
      CALL(cuGraphMemcpyNodeGetParams, node, copy);
      break;
    }
    case 3: {
      Out<CUDA_HOST_NODE_PARAMS> host("host");
      CALL(cuGraphHostNodeGetParams, node, host);
      break;
    }
    case 4: {
      Out<CUevent> event("event");
      CALL(cuGraphEventRecordNodeGetEvent, node, event);
      break;
    }
    case 5: {
      Out<CUevent> event("event");
      CALL(cuGraphEventWaitNodeGetEvent, node, event);
      break;
    }
    case 6: {
      Out<CUgraph> graph("graph");
      CALL(cuGraphChildGraphNodeGetGraph, node, graph);
      break;
    }
    default: {
      Out<CUDA_BATCH_MEM_OP_NODE_PARAMS> batch("batch");
      CALL(cuGraphBatchMemOpNodeGetParams, node, batch);
    }
  }
}

void SetParameters(CUgraphNode node) {
  switch (KindOf(node, 6)) {
    case 0: {
      CUDA_KERNEL_NODE_PARAMS kernel = AnyKernel();
      CALL(cuGraphKernelNodeSetParams, node, Ref(kernel));
      break;
    }
    case 1: {
      CUDA_MEMSET_NODE_PARAMS memset = AnyMemset();
      CALL(cuGraphMemsetNodeSetParams, node, Ref(memset));
      break;
    }
    case 2: {
      CUDA_MEMCPY3D copy = AnyCopy();
      CALL(cuGraphMemcpyNodeSetParams, node, Ref(copy));
      break;
    }
    case 3: {
      CUDA_HOST_NODE_PARAMS host{};
      host.fn = &DoNothing;
      CALL(cuGraphHostNodeSetParams, node, Ref(host));
      break;
    }
    case 4:
      CALL(cuGraphEventRecordNodeSetEvent, node, AnyEvent());
      break;
    default:
      CALL(cuGraphEventWaitNodeSetEvent, node, AnyEvent());
  }
}

void NodeAttribute(CUgraphNode node, CUgraphNode other) {
  const int id = numbers.Mostly<int>({2, 4, 5, 8, 9, 10, 14}, {0, 1, 3, 6, 13, 100, -1}, 15);
  CUlaunchAttributeValue value{};
  if (id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION) {
    value.clusterDim = {numbers.Mostly<unsigned>({1, 2}, {0, 3, 100}), 1, 1};
  } else {
    value.priority = numbers.Mostly<int>({0, 1}, {-1, 5, 50, 101});
  }
  if (numbers.Chance(60))
    CALL(cuGraphKernelNodeSetAttribute, node, id, As(&value, Show(value.priority)));
  FillPattern(&value);
  CALL(cuGraphKernelNodeGetAttribute, node, id, As(&value, "value"));
  Note("value: " + (id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
                        ? Show(value.clusterDim.x) + "x" + Show(value.clusterDim.y)
                        : Show(value.priority)));
  if (numbers.Chance(20)) CALL(cuGraphKernelNodeCopyAttributes, node, other);
}

void ChangeEdges(const Made& made) {
  CUgraphNode from[2] = {AnyNode(made), AnyNode(made)};
  CUgraphNode to[2] = {AnyNode(made), AnyNode(made)};
  if (from[0] == nullptr) return;
  const auto show = [](CUgraphNode* nodes) {
    return As(nodes, "{" + Show(static_cast<const void*>(nodes[0])) + " " +
                         Show(static_cast<const void*>(nodes[1])) + "}");
  };
  CUgraphEdgeData data[2] = {};
  data[0].from_port = static_cast<unsigned char>(numbers.Mostly<int>({0}, {1, 2, 3}, 20));
  data[0].type = static_cast<unsigned char>(numbers.Mostly<int>({0}, {1, 2}, 20));
  const auto edge = numbers.Chance(30) ? As(data, "{" + Show(data[0]) + "}")
                                       : As<CUgraphEdgeData*>(nullptr, "null");
  const std::size_t count = numbers.Mostly<std::size_t>({1, 1, 2}, {0}, 5);
  if (numbers.Chance(65)) {
    CALL(cuGraphAddDependencies, made.graph, show(from), show(to), edge, count);
  } else {
    CALL(cuGraphRemoveDependencies, made.graph, show(from), show(to), edge, count);
  }
  Out<std::size_t> edges("edges"), roots("roots");
  CALL(cuGraphGetEdges, made.graph, nullptr, nullptr, nullptr, edges);
  CALL(cuGraphGetRootNodes, made.graph, nullptr, roots);
}

void CloneGraph(const Made& made) {
  Out<CUgraph> clone("clone");
  CALL(cuGraphClone, clone, made.graph);
  if (clone.Or(nullptr) == nullptr) return;
  Out<CUgraphNode> found("node");
  const CUgraphNode node = AnyNode(made);
  if (node != nullptr) {
    CALL(cuGraphNodeFindInClone, found, node, clone.value);
    CALL(cuGraphNodeFindInClone, found, node, made.graph);
  }
  CALL(cuGraphDestroy, clone.value);
}

CUgraphExec InstantiateGraph(const Made& made) {
  Out<CUgraphExec> exec("exec");
  unsigned long long flags = numbers.Mostly<unsigned>({0, 0, 1, 8}, {2, 3, 4, 16, 1u << 31}, 15);
  if (numbers.Chance(30)) {
    CUDA_GRAPH_INSTANTIATE_PARAMS parameters{};
    parameters.flags = flags;
    if ((flags & 2) != 0) parameters.hUploadStream = fix.stream;
    parameters.result_out = static_cast<CUgraphInstantiateResult>(77);
    CALL(cuGraphInstantiateWithParams, exec, made.graph,
         As(&parameters, Format("{flags=%llu}", flags)));
    Note("result: " + Show(parameters.result_out) +
         " node: " + Show(static_cast<const void*>(parameters.hErrNode_out)));
  } else {
    CALL(cuGraphInstantiate, exec, made.graph, static_cast<std::uint64_t>(flags));
  }
  return exec.Or(nullptr);
}

void UseExec(const Made& made, CUgraphExec exec) {
  NameHandle(exec, "exec");
  Out<cuuint64_t> flags("flags");
  CALL(cuGraphExecGetFlags, exec, flags);
  const CUgraphNode node = AnyNode(made);
  if (node != nullptr) {
    Out<unsigned> enabled("enabled");
    CALL(cuGraphNodeGetEnabled, exec, node, enabled);
    if (numbers.Chance(30))
      CALL(cuGraphNodeSetEnabled, exec, node, numbers.Mostly<unsigned>({0, 1}, {2}));
    switch (KindOf(node, 7)) {
      case 0: {
        CUDA_KERNEL_NODE_PARAMS kernel = AnyKernel();
        CALL(cuGraphExecKernelNodeSetParams, exec, node, Ref(kernel));
        break;
      }
      case 1: {
        CUDA_MEMSET_NODE_PARAMS memset = AnyMemset();
        CALL(cuGraphExecMemsetNodeSetParams, exec, node, Ref(memset), fix.context);
        break;
      }
      case 2: {
        CUDA_MEMCPY3D copy = AnyCopy();
        CALL(cuGraphExecMemcpyNodeSetParams, exec, node, Ref(copy), fix.context);
        break;
      }
      case 3: {
        CUDA_HOST_NODE_PARAMS host{};
        host.fn = &DoNothing;
        CALL(cuGraphExecHostNodeSetParams, exec, node, Ref(host));
        break;
      }
      case 4:
        CALL(cuGraphExecEventRecordNodeSetEvent, exec, node, AnyEvent());
        break;
      case 5:
        CALL(cuGraphExecEventWaitNodeSetEvent, exec, node, AnyEvent());
        break;
      default:
        CALL(cuGraphExecChildGraphNodeSetParams, exec, node, child);
    }
  }
  if (made.launchable) {
    if (numbers.Chance(30)) CALL(cuGraphUpload, exec, AnyStream());
    CALL(cuGraphLaunch, exec, AnyStream());
    Settle();
  }
  CALL(cuGraphExecDestroy, exec);
  NameHandle(exec, nullptr);
}

void MakeChild() {
  CUgraphNode node = nullptr;
  if (child == nullptr && cuGraphCreate(&child, 0) == CUDA_SUCCESS)
    cuGraphAddEmptyNode(&node, child, nullptr, 0);
  NameHandle(child, "child");
}

}  // namespace

void Graphs() {
  MakeChild();
  while (NextRound(60)) {
    Made made;
    Begin(&made);
    if (made.graph == nullptr) continue;
    for (std::uint64_t nodes = 1 + numbers.Below(5); nodes > 0; --nodes) AddNode(&made);
    if (numbers.Chance(60)) ChangeEdges(made);
    if (numbers.Chance(25)) CloneGraph(made);
    if (numbers.Chance(15)) {
      const CUgraphNode node = AnyNode(made);
      if (node != nullptr) {
        CALL(cuGraphDestroyNode, node);
        NameHandle(node, nullptr);
        for (CUgraphNode& one : made.nodes)
          if (one == node) one = nullptr;
      }
    }
    if (numbers.Chance(15))
      CALL(cuGraphDebugDotPrint, made.graph,
           numbers.Pick<const char*>({"/dev/null", "/nonexistent/g"}),
           numbers.Mostly<unsigned>({0, 1, 4}, {1u << 20, UINT32_MAX}));
    const CUgraphExec exec = InstantiateGraph(made);
    if (exec != nullptr) UseExec(made, exec);
    End(&made);
  }
  const auto none = As<CUgraph>(nullptr, "null");
  Out<CUgraphNode> node("node");
  Out<CUgraph> clone("clone");
  Out<CUgraphExec> exec("exec");
  CALL(cuGraphAddEmptyNode, node, none, nullptr, 0);
  CALL(cuGraphDestroy, none);
  CALL(cuGraphClone, clone, none);
  CALL(cuGraphInstantiate, exec, none, 0);
}

void GraphNodes() {
  MakeChild();
  while (NextRound(70)) {
    Made made;
    Begin(&made);
    if (made.graph == nullptr) continue;
    for (std::uint64_t nodes = 1 + numbers.Below(3); nodes > 0; --nodes) {
      if (numbers.Chance(50)) {
        AddGeneralNode(&made);
      } else {
        AddNode(&made);
      }
    }
    for (int question = 0; question < 3; ++question) {
      const CUgraphNode node = AnyNode(made), other = AnyNode(made);
      const std::uint64_t kind = numbers.Below(4);
      if (node == nullptr) continue;
      switch (kind) {
        case 0:
          AskNode(node);
          break;
        case 1:
          AskParameters(node);
          break;
        case 2:
          SetParameters(node);
          AskParameters(node);
          break;
        default:
          NodeAttribute(node, other);
      }
    }
    const CUgraphExec exec = InstantiateGraph(made);
    if (exec != nullptr) UseExec(made, exec);
    End(&made);
  }
}

void GraphUpdates() {
  MakeChild();
  while (NextRound(60)) {
    Made first, second;
    Begin(&first);
    if (first.graph == nullptr) continue;
    const Random same = numbers;
    const std::uint64_t nodes = 1 + numbers.Below(3);
    for (std::uint64_t i = 0; i < nodes; ++i) AddNode(&first);
    // The second graph begins as the first does, and then is another one in part of the cases.
    Begin(&second);
    if (numbers.Chance(65)) {
      numbers = same;
      numbers.Below(3);
      for (std::uint64_t i = 0; i < nodes; ++i) AddNode(&second);
    } else {
      for (std::uint64_t i = 0; i < nodes; ++i) AddNode(&second);
    }
    if (numbers.Chance(15)) AddNode(&second);
    if (numbers.Chance(15)) ChangeEdges(second);
    Out<CUgraphExec> exec("exec");
    CALL(cuGraphInstantiate, exec, first.graph, 0);
    const CUgraphExec made = exec.Or(nullptr);
    if (made != nullptr) {
      NameHandle(made, "exec");
      Out<CUgraphExecUpdateResultInfo> info("info");
      CALL(cuGraphExecUpdate, made, second.graph, info);
      CALL(cuGraphLaunch, made, AnyStream());
      Settle();
      CALL(cuGraphExecDestroy, made);
      NameHandle(made, nullptr);
    }
    End(&second);
    End(&first);
  }
}

void UserObjects() {
  while (NextRound(60)) {
    Out<CUuserObject> object("object");
    CALL(cuUserObjectCreate, object.MaybeNull(), As<void*>(&store_value, "value"),
         As(&DoNothing, "destroy"), numbers.Mostly<unsigned>({1, 2, 5}, {0}, 10),
         numbers.Mostly<unsigned>({1}, {0, 2, 3}, 15));
    const CUuserObject made = object.Or(nullptr);
    if (made == nullptr) continue;
    CUgraph graph = nullptr;
    cuGraphCreate(&graph, 0);
    NameHandle(graph, "graph");
    CALL(cuUserObjectRetain, made, numbers.Mostly<unsigned>({1, 2}, {0}, 15));
    // One reference stays with the program.
    CALL(cuGraphRetainUserObject, graph, made, numbers.Mostly<unsigned>({1}, {0, 2}, 15),
         numbers.Mostly<unsigned>({0}, {1, 2, 3}, 20));
    CALL(cuGraphReleaseUserObject, graph, made, numbers.Mostly<unsigned>({1}, {0}, 15));
    CALL(cuGraphDestroy, graph);
    NameHandle(graph, nullptr);
    CALL(cuUserObjectRelease, made, numbers.Mostly<unsigned>({1}, {0}, 15));
  }
}

}  // namespace sweep
