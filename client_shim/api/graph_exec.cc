// Executable graphs. The client makes no graphs yet, so no handle names one.
#include "proto/driver_api/shim_api.h"

namespace detshare::shim::api {

CUresult cuGraphInstantiateWithParams(CUgraphExec*, CUgraph, CUDA_GRAPH_INSTANTIATE_PARAMS*) {
  return CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGraphNodeSetEnabled(CUgraphExec, CUgraphNode, unsigned int) {
  return CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGraphUpload(CUgraphExec, CUstream) { return CUDA_ERROR_INVALID_VALUE; }

CUresult cuGraphLaunch(CUgraphExec, CUstream) { return CUDA_ERROR_INVALID_VALUE; }

CUresult cuGraphExecDestroy(CUgraphExec) { return CUDA_ERROR_INVALID_VALUE; }

CUresult cuGraphExecUpdate_v2(CUgraphExec, CUgraph, CUgraphExecUpdateResultInfo*) {
  return CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGraphExecNodeSetParams(CUgraphExec, CUgraphNode, CUgraphNodeParams*) {
  return CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGraphConditionalHandleCreate(CUgraphConditionalHandle*, CUgraph, CUcontext, unsigned int,
                                        unsigned int) {
  return CUDA_ERROR_INVALID_VALUE;
}

}  // namespace detshare::shim::api
