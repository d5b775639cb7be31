#include "client_shim/work/graph/node_params.h"

#include <cstring>

#include "client_shim/work/graph/graph.h"
#include "client_shim/work/graph/graph_memory.h"
#include "client_shim/work/graph/make_node.h"

namespace detshare::shim {
namespace {

// Converts between structs of different names and the same layout.
template <typename To, typename From>
To Same(const From& from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  std::memcpy(&to, &from, sizeof(to));
  return to;
}

template <typename Node, typename Make>
CUresult Made(NodeBody* body, Make make) {
  Node node;
  const CUresult result = make(&node);
  if (result == CUDA_SUCCESS) *body = std::move(node);
  return result;
}

}  // namespace

bool ReservedUnused(const CUgraphNodeParams& params) {
  for (const int reserved : params.reserved0) {
    if (reserved != 0) return false;
  }
  return params.reserved2 == 0;
}

CUresult MakeNodeBody(const CUgraphNodeParams& params, NodeBody* body) {
  if (!ReservedUnused(params)) return CUDA_ERROR_INVALID_VALUE;
  switch (params.type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
      return Made<KernelNode>(body, [&](KernelNode* node) {
        return MakeKernelNode(Same<CUDA_KERNEL_NODE_PARAMS>(params.kernel), node);
      });
    case CU_GRAPH_NODE_TYPE_MEMCPY:
      if (params.memcpy.flags != 0 || params.memcpy.reserved != 0) return CUDA_ERROR_INVALID_VALUE;
      return Made<CopyNode>(body, [&](CopyNode* node) {
        return MakeCopyNode(params.memcpy.copyParams, params.memcpy.copyCtx, node);
      });
    case CU_GRAPH_NODE_TYPE_MEMSET: {
      const CUDA_MEMSET_NODE_PARAMS_v2& fill = params.memset;
      return Made<FillNode>(body, [&](FillNode* node) {
        return MakeFillNode(
            {fill.dst, fill.pitch, fill.value, fill.elementSize, fill.width, fill.height}, fill.ctx,
            node);
      });
    }
    case CU_GRAPH_NODE_TYPE_HOST:
      if (params.host.fn == nullptr) return CUDA_ERROR_INVALID_VALUE;
      *body = HostNode{params.host.fn, params.host.userData};
      return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_EMPTY:
      *body = EmptyNode{};
      return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
      return Made<EventWaitNode>(body, [&](EventWaitNode* node) {
        return MakeNodeEvent(params.eventWait.event, &node->event);
      });
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
      return Made<EventRecordNode>(body, [&](EventRecordNode* node) {
        return MakeNodeEvent(params.eventRecord.event, &node->event);
      });
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL:
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT:
      return CUDA_ERROR_NOT_SUPPORTED;
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
      return Made<AllocNode>(body, [&](AllocNode* node) {
        return MakeAllocNode(Same<CUDA_MEM_ALLOC_NODE_PARAMS>(params.alloc), node);
      });
    case CU_GRAPH_NODE_TYPE_MEM_FREE: {
      FreeNode node{FindGraphMemory(params.free.dptr)};
      if (node.memory == nullptr) return CUDA_ERROR_INVALID_VALUE;
      *body = std::move(node);
      return CUDA_SUCCESS;
    }
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
      return Made<MemoryOpsNode>(body, [&](MemoryOpsNode* node) {
        return MakeMemoryOpsNode(params.memOp.ctx, params.memOp.paramArray, params.memOp.count,
                                 params.memOp.flags, node);
      });
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

CUDA_KERNEL_NODE_PARAMS WithoutKernelHandle(const CUDA_KERNEL_NODE_PARAMS_v1& params) {
  CUDA_KERNEL_NODE_PARAMS with{};
  std::memcpy(&with, &params, sizeof(params));
  return with;
}

}  // namespace detshare::shim
