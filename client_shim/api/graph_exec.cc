// Executable graphs.
#include "client_shim/work/graph/executable.h"
#include "client_shim/work/graph/make_node.h"
#include "client_shim/work/graph/node_params.h"
#include "client_shim/work/streams.h"
#include "proto/driver_api/shim_api.h"

namespace detshare::shim::api {
namespace {

CUresult InstantiateLogged(CUgraphExec* exec, CUgraph graph, CUgraphNode* error_node, char* log,
                           size_t bytes) {
  CUgraphNode refused;
  CUgraphInstantiateResult why;
  const CUresult result = Instantiate(graph, 0, exec, &refused, &why);
  if (error_node != nullptr) *error_node = refused;
  if (log != nullptr && bytes != 0) *log = '\0';
  return result;
}

template <typename Make>
CUresult SetMade(CUgraphExec handle, CUgraphNode node, Make make) {
  GraphExec* exec = FindExec(handle);
  if (exec == nullptr) return CUDA_ERROR_INVALID_VALUE;
  NodeBody body;
  const CUresult result = make(&body);
  return result != CUDA_SUCCESS ? result : SetExecNode(*exec, node, std::move(body));
}

}  // namespace

CUresult cuGraphInstantiate(CUgraphExec* phGraphExec, CUgraph hGraph, CUgraphNode* phErrorNode,
                            char* logBuffer, size_t bufferSize) {
  return InstantiateLogged(phGraphExec, hGraph, phErrorNode, logBuffer, bufferSize);
}

CUresult cuGraphInstantiate_v2(CUgraphExec* phGraphExec, CUgraph hGraph, CUgraphNode* phErrorNode,
                               char* logBuffer, size_t bufferSize) {
  return InstantiateLogged(phGraphExec, hGraph, phErrorNode, logBuffer, bufferSize);
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec* phGraphExec, CUgraph hGraph,
                                     unsigned long long flags) {
  // There is no stream on which to upload.
  if ((flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD) != 0) return CUDA_ERROR_INVALID_VALUE;
  CUgraphNode refused;
  CUgraphInstantiateResult why;
  return Instantiate(hGraph, flags, phGraphExec, &refused, &why);
}

CUresult cuGraphInstantiateWithParams(CUgraphExec* phGraphExec, CUgraph hGraph,
                                      CUDA_GRAPH_INSTANTIATE_PARAMS* instantiateParams) {
  const bool upload = (instantiateParams->flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD) != 0;
  instantiateParams->hErrNode_out = nullptr;
  instantiateParams->result_out = CUDA_GRAPH_INSTANTIATE_ERROR;
  Stream* stream = nullptr;
  if (upload) {
    const CUresult result = StreamForWork(instantiateParams->hUploadStream, &stream);
    if (result != CUDA_SUCCESS) return result;
  }
  const CUresult result =
      Instantiate(hGraph, instantiateParams->flags, phGraphExec, &instantiateParams->hErrNode_out,
                  &instantiateParams->result_out);
  if (result != CUDA_SUCCESS || !upload) return result;
  return UploadGraph(*FindExec(*phGraphExec), *stream);
}

CUresult cuGraphExecGetFlags(CUgraphExec hGraphExec, cuuint64_t* flags) {
  const GraphExec* exec = FindExec(hGraphExec);
  if (exec == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *flags = FlagsOf(*exec);
  return CUDA_SUCCESS;
}

CUresult cuGraphExecDestroy(CUgraphExec hGraphExec) { return DestroyExec(hGraphExec); }

CUresult cuGraphLaunch(CUgraphExec hGraph, CUstream hStream) {
  Stream* stream;
  const CUresult result = StreamForWork(hStream, &stream);  // a capturing stream takes no launches
                                                            // here
  if (result != CUDA_SUCCESS) [[unlikely]]
    return result;
  GraphExec* exec = FindExec(hGraph);
  if (exec == nullptr) [[unlikely]]
    return CUDA_ERROR_INVALID_VALUE;
  return LaunchGraph(*exec, *stream);
}

CUresult cuGraphUpload(CUgraphExec hGraph, CUstream hStream) {
  Stream* stream;
  const CUresult result = StreamForWork(hStream, &stream);
  if (result != CUDA_SUCCESS) return result;
  GraphExec* exec = FindExec(hGraph);
  return exec == nullptr ? CUDA_ERROR_INVALID_VALUE : UploadGraph(*exec, *stream);
}

// ---- updates

CUresult cuGraphExecUpdate(CUgraphExec hGraphExec, CUgraph hGraph, CUgraphNode* hErrorNode_out,
                           CUgraphExecUpdateResult* updateResult_out) {
  CUgraphExecUpdateResultInfo info{};
  const CUresult result = api::cuGraphExecUpdate_v2(hGraphExec, hGraph, &info);
  // As with driver 580: nothing is written for wrong handles, and a graph with another number of
  // nodes, for which no node is to blame, counts as not supported.
  if (result == CUDA_ERROR_INVALID_VALUE) return result;
  if (hErrorNode_out != nullptr) *hErrorNode_out = info.errorNode;
  const bool other_number =
      info.result == CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED && info.errorNode == nullptr;
  *updateResult_out = other_number ? CU_GRAPH_EXEC_UPDATE_ERROR_NOT_SUPPORTED : info.result;
  return result;
}

CUresult cuGraphExecUpdate_v2(CUgraphExec hGraphExec, CUgraph hGraph,
                              CUgraphExecUpdateResultInfo* resultInfo) {
  *resultInfo = {};
  resultInfo->result = CU_GRAPH_EXEC_UPDATE_ERROR;
  GraphExec* exec = FindExec(hGraphExec);
  return exec == nullptr ? CUDA_ERROR_INVALID_VALUE : UpdateExec(*exec, hGraph, resultInfo);
}

CUresult cuGraphExecNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                  CUgraphNodeParams* nodeParams) {
  switch (nodeParams->type) {
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
    case CU_GRAPH_NODE_TYPE_CONDITIONAL:
      return CUDA_ERROR_NOT_SUPPORTED;
    case CU_GRAPH_NODE_TYPE_GRAPH:
      return api::cuGraphExecChildGraphNodeSetParams(hGraphExec, hNode, nodeParams->graph.graph);
    default:
      return SetMade(hGraphExec, hNode,
                     [&](NodeBody* body) { return MakeNodeBody(*nodeParams, body); });
  }
}

CUresult cuGraphExecKernelNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                        const CUDA_KERNEL_NODE_PARAMS_v1* nodeParams) {
  const CUDA_KERNEL_NODE_PARAMS params = WithoutKernelHandle(*nodeParams);
  return api::cuGraphExecKernelNodeSetParams_v2(hGraphExec, hNode, &params);
}

CUresult cuGraphExecKernelNodeSetParams_v2(CUgraphExec hGraphExec, CUgraphNode hNode,
                                           const CUDA_KERNEL_NODE_PARAMS* nodeParams) {
  GraphExec* exec = FindExec(hGraphExec);
  return exec == nullptr ? CUDA_ERROR_INVALID_VALUE : SetExecKernel(*exec, hNode, *nodeParams);
}

CUresult cuGraphExecMemcpyNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                        const CUDA_MEMCPY3D* copyParams, CUcontext ctx) {
  return SetMade(hGraphExec, hNode, [&](NodeBody* body) {
    return MakeCopyNode(*copyParams, ctx, &body->emplace<CopyNode>());
  });
}

CUresult cuGraphExecMemsetNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                        const CUDA_MEMSET_NODE_PARAMS* memsetParams,
                                        CUcontext ctx) {
  return SetMade(hGraphExec, hNode, [&](NodeBody* body) {
    return MakeFillNode(*memsetParams, ctx, &body->emplace<FillNode>());
  });
}

CUresult cuGraphExecHostNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                      const CUDA_HOST_NODE_PARAMS* nodeParams) {
  if (nodeParams->fn == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return SetMade(hGraphExec, hNode, [&](NodeBody* body) {
    *body = HostNode{nodeParams->fn, nodeParams->userData};
    return CUDA_SUCCESS;
  });
}

CUresult cuGraphExecChildGraphNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                            CUgraph childGraph) {
  GraphExec* exec = FindExec(hGraphExec);
  return exec == nullptr ? CUDA_ERROR_INVALID_VALUE : SetExecChild(*exec, hNode, childGraph);
}

CUresult cuGraphExecEventRecordNodeSetEvent(CUgraphExec hGraphExec, CUgraphNode hNode,
                                            CUevent event) {
  return SetMade(hGraphExec, hNode, [&](NodeBody* body) {
    return MakeNodeEvent(event, &body->emplace<EventRecordNode>().event);
  });
}

CUresult cuGraphExecEventWaitNodeSetEvent(CUgraphExec hGraphExec, CUgraphNode hNode,
                                          CUevent event) {
  return SetMade(hGraphExec, hNode, [&](NodeBody* body) {
    return MakeNodeEvent(event, &body->emplace<EventWaitNode>().event);
  });
}

CUresult cuGraphExecBatchMemOpNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                            const CUDA_BATCH_MEM_OP_NODE_PARAMS* nodeParams) {
  return SetMade(hGraphExec, hNode, [&](NodeBody* body) {
    return MakeMemoryOpsNode(nodeParams->ctx, nodeParams->paramArray, nodeParams->count,
                             nodeParams->flags, &body->emplace<MemoryOpsNode>());
  });
}

CUresult cuGraphNodeSetEnabled(CUgraphExec hGraphExec, CUgraphNode hNode, unsigned int isEnabled) {
  GraphExec* exec = FindExec(hGraphExec);
  return exec == nullptr ? CUDA_ERROR_INVALID_VALUE : SetNodeEnabled(*exec, hNode, isEnabled != 0);
}

CUresult cuGraphNodeGetEnabled(CUgraphExec hGraphExec, CUgraphNode hNode, unsigned int* isEnabled) {
  GraphExec* exec = FindExec(hGraphExec);
  if (exec == nullptr) return CUDA_ERROR_INVALID_VALUE;
  bool enabled = false;
  const CUresult result = NodeEnabled(*exec, hNode, &enabled);
  if (result == CUDA_SUCCESS) *isEnabled = enabled ? 1 : 0;
  return result;
}

}  // namespace detshare::shim::api
