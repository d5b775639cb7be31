// What nodes do, from what the program says: checked as CUDA checks it when a node is made or set.
#pragma once

#include "client_shim/objects/objects.h"
#include "client_shim/work/graph/node.h"
#include "client_shim/work/launch.h"

namespace detshare::shim {

NodeContext ContextOf(const Stream& stream);
// A context's handle; null means the current one where `optional`.
CUresult FindNodeContext(CUcontext handle, bool optional, NodeContext* context);

// A launch, already checked, of `instance` on its device.
KernelNode MakeKernelNode(const NodeContext& context, const KernelInstance& instance,
                          const LaunchRequest& launch, void** params, const void* buffer,
                          size_t buffer_bytes);
CUresult MakeKernelNode(const CUDA_KERNEL_NODE_PARAMS& params, KernelNode* node);
// What other parameters of a node's kernel, or other dimensions, come to.
struct KernelChange {
  bool same_kernel = false;  // it is the node's kernel in the node's context; else nothing is said
  LaunchRequest launch;      // with the node's attributes
  std::vector<std::byte> parameters;  // packed
};
// Allocates nothing when `change` has been used for as many parameters before.
CUresult ReadKernelChange(const CUDA_KERNEL_NODE_PARAMS& params, const KernelNode& node,
                          KernelChange* change);
// Notes by which handle a launch named the kernel: a CUfunction may be a CUkernel.
void NameKernel(CUfunction function, KernelNode* node);
// Takes what cannot be said in CUDA_KERNEL_NODE_PARAMS over from another node, and checks it anew.
CUresult KeepAttributes(const KernelNode& from, KernelNode* node);
CUresult SetKernelNodeAttribute(KernelNode& node, CUlaunchAttributeID id,
                                const CUlaunchAttributeValue& value);
CUresult GetKernelNodeAttribute(const KernelNode& node, CUlaunchAttributeID id,
                                CUlaunchAttributeValue* value);
CUDA_KERNEL_NODE_PARAMS DescribeKernelNode(KernelNode& node);

CopyNode MakeCopyNode(const NodeContext& context, const PitchedPlace& to, const PitchedPlace& from,
                      uint64_t width, uint64_t height, uint64_t depth);
CUresult MakeCopyNode(const CUDA_MEMCPY3D& copy, CUcontext context, CopyNode* node);

CUresult MakeFillNode(const CUDA_MEMSET_NODE_PARAMS& fill, CUcontext context, FillNode* node);
// Of a captured call. As the driver has it (580), that may name any memory: whether it is there is
// found out when the graph is instantiated. cuDNN captures with made-up addresses, to look at the
// nodes.
CUresult MakeCapturedFillNode(const CUDA_MEMSET_NODE_PARAMS& fill, CUcontext context,
                              FillNode* node);

CUresult MakeNodeEvent(CUevent handle, NodeEvent* event);

CUresult MakeMemoryOpsNode(CUcontext context, const CUstreamBatchMemOpParams* operations,
                           uint32_t count, uint32_t flags, MemoryOpsNode* node);

// `device` is that of the memory.
CUresult MakeAllocNode(const CUDA_MEM_ALLOC_NODE_PARAMS& params, AllocNode* node);

}  // namespace detshare::shim
