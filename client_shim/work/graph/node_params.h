// The tagged union with which cuGraphAddNode and its relatives describe a node.
#pragma once

#include "client_shim/work/graph/node.h"

namespace detshare::shim {

// Whether the bytes are zero that have no meaning in this version of CUDA. They may have one in a
// later version.
bool ReservedUnused(const CUgraphNodeParams& params);

// Handles every type except child graphs and conditional nodes, which are more than parameters.
// CUDA_ERROR_NOT_SUPPORTED: external semaphores.
CUresult MakeNodeBody(const CUgraphNodeParams& params, NodeBody* body);

// Converts the parameters of CUDA 11 and before, which name kernels only by CUfunction.
CUDA_KERNEL_NODE_PARAMS WithoutKernelHandle(const CUDA_KERNEL_NODE_PARAMS_v1& params);

}  // namespace detshare::shim
