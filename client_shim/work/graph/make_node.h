// Makes the bodies of nodes from the program's parameters. Checks them as CUDA does when a node is
// made or set. Any thread.
#pragma once

#include "client_shim/objects/objects.h"
#include "client_shim/work/graph/node.h"
#include "client_shim/work/launch.h"

namespace detshare::shim {

NodeContext ContextOf(const Stream& stream);
// The context of a handle. With `optional`, null means the current context.
CUresult FindNodeContext(CUcontext handle, bool optional, NodeContext* context);

// A launch of `instance` on its device. The caller has checked it.
KernelNode MakeKernelNode(const NodeContext& context, const KernelInstance& instance,
                          const LaunchRequest& launch, void** params, const void* buffer,
                          size_t buffer_bytes);
CUresult MakeKernelNode(const CUDA_KERNEL_NODE_PARAMS& params, KernelNode* node);
// The effect of other parameters or dimensions on a node.
struct KernelChange {
  bool same_kernel = false;  // it is the node's kernel in the node's context; otherwise the other
                             // fields are not set
  LaunchRequest launch;      // with the node's attributes
  std::vector<std::byte> parameters;  // packed
};
// Allocates nothing if `change` was used for as many parameters before.
CUresult ReadKernelChange(const CUDA_KERNEL_NODE_PARAMS& params, const KernelNode& node,
                          KernelChange* change);
// Records the handle with which a launch named the kernel: a CUfunction may be a CUkernel.
void NameKernel(CUfunction function, KernelNode* node);
// Copies from another node what CUDA_KERNEL_NODE_PARAMS cannot express, and checks the node again.
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
// For a captured call. As in the driver (580), it may name any memory; instantiation checks whether
// the memory exists. cuDNN captures with made-up addresses, to look at the nodes.
CUresult MakeCapturedFillNode(const CUDA_MEMSET_NODE_PARAMS& fill, CUcontext context,
                              FillNode* node);

CUresult MakeNodeEvent(CUevent handle, NodeEvent* event);

CUresult MakeMemoryOpsNode(CUcontext context, const CUstreamBatchMemOpParams* operations,
                           uint32_t count, uint32_t flags, MemoryOpsNode* node);

// `device` is the memory's device.
CUresult MakeAllocNode(const CUDA_MEM_ALLOC_NODE_PARAMS& params, AllocNode* node);

}  // namespace detshare::shim
