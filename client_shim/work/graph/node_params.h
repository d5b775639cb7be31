// The tagged union in which cuGraphAddNode and its relatives take what a node does.
#pragma once

#include "client_shim/work/graph/node.h"

namespace detshare::shim {

// Of every type but child graphs and conditional nodes, which are more than parameters.
// CUDA_ERROR_NOT_SUPPORTED for external semaphores.
CUresult MakeNodeBody(const CUgraphNodeParams& params, NodeBody* body);

// Parameters of CUDA 11 and before, which name kernels by CUfunction only.
CUDA_KERNEL_NODE_PARAMS WithoutKernelHandle(const CUDA_KERNEL_NODE_PARAMS_v1& params);

}  // namespace detshare::shim
