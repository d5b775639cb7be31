#include "server/backends/cuda/graph_node_params.h"

#include "coroutine_runtime/status_cuda.h"
#include "policy/status_macros.h"
#include "server/backends/cuda/cuda_library.h"
#include "server/backends/cuda/cuda_queue.h"
#include "server/backends/cuda/graph_pieces.h"
#include "server/backends/cuda/memory_op_params.h"

namespace detshare::cuda {

CUgraphNodeParams& GraphNodeParams::Add(CUgraphNodeType type) {
  CUgraphNodeParams& node = all_.emplace_back();
  node = {};
  node.type = type;
  return node;
}

void GraphNodeParams::AddMemoryOps(CUcontext context) {
  CUgraphNodeParams& node = Add(CU_GRAPH_NODE_TYPE_BATCH_MEM_OP);
  node.memOp.ctx = context;
  node.memOp.count = static_cast<unsigned>(memory_ops_.size());
  node.memOp.paramArray = memory_ops_.data();
}

void GraphNodeParams::ReadValued(const GraphStep& step, CUcontext context, uint64_t value) {
  MemoryOp operation;
  operation.value = value;
  if (const auto* signal = std::get_if<SignalStep>(&step)) {
    operation.operation = MemoryOp::kWrite64;
    operation.address = reinterpret_cast<uint64_t>(signal->fence);
  } else {
    operation.operation = MemoryOp::kWait64;
    operation.flags = MemoryOp::kGreaterOrEqual;
    operation.address = reinterpret_cast<uint64_t>(std::get<WaitStep>(step).fence);
  }
  memory_ops_ = {ParamsOf(operation)};
  AddMemoryOps(context);
}

absl::Status GraphNodeParams::Read(const GraphStep& step, const CudaAddressSpace& space,
                                   CudaGroup& group, CUcontext context, bool green) {
  if (const auto* kernel = std::get_if<KernelStep>(&step)) {
    auto& own = static_cast<CudaKernel&>(*kernel->kernel);
    CUDA_KERNEL_NODE_PARAMS_v3& params = Add(CU_GRAPH_NODE_TYPE_KERNEL).kernel;
    // A function belongs to the context of its group. A CUkernel runs in the context that its node
    // names.
    if (green) {
      params.kern = own.handle();
      params.ctx = context;
    } else {
      params.func = own.function(group);
    }
    const LaunchShape& shape = kernel->shape;
    params.gridDimX = shape.grid.x;
    params.gridDimY = shape.grid.y;
    params.gridDimZ = shape.grid.z;
    params.blockDimX = shape.block.x;
    params.blockDimY = shape.block.y;
    params.blockDimZ = shape.block.z;
    params.sharedMemBytes = shape.dynamic_shared_bytes;
    // Sets each parameter on its own: the driver takes no single buffer for a cooperative kernel.
    for (const KernelParameterInfo& parameter : own.info().parameters) {
      kernel_params_.push_back(
          const_cast<std::byte*>(kernel->parameters.data() + parameter.offset));
    }
    params.kernelParams = kernel_params_.data();
  } else if (const auto* copy = std::get_if<CopyRequest>(&step)) {
    DETSHARE_ASSIGN_OR_RETURN(std::vector<CUDA_MEMCPY3D> pieces, PiecesOf(space, *copy));
    for (const CUDA_MEMCPY3D& piece : pieces) {
      CUDA_MEMCPY_NODE_PARAMS& params = Add(CU_GRAPH_NODE_TYPE_MEMCPY).memcpy;
      params.copyCtx = context;
      params.copyParams = piece;
    }
  } else if (const auto* fill = std::get_if<FillRequest>(&step)) {
    DETSHARE_ASSIGN_OR_RETURN(std::vector<CUDA_MEMSET_NODE_PARAMS_v2> pieces,
                              PiecesOf(space, *fill));
    for (const CUDA_MEMSET_NODE_PARAMS_v2& piece : pieces) {
      CUDA_MEMSET_NODE_PARAMS_v2& params = Add(CU_GRAPH_NODE_TYPE_MEMSET).memset;
      params = piece;
      params.ctx = context;
    }
  } else if (std::holds_alternative<SignalStep>(step) || std::holds_alternative<WaitStep>(step)) {
    ReadValued(step, context, 0);
  } else if (const auto* record = std::get_if<RecordStep>(&step)) {
    DETSHARE_ASSIGN_OR_RETURN(const CUevent event,
                              static_cast<CudaMarker&>(*record->marker).EventOf(group));
    Add(CU_GRAPH_NODE_TYPE_EVENT_RECORD).eventRecord.event = event;
  } else if (const auto* wait = std::get_if<WaitMarkerStep>(&step)) {
    DETSHARE_ASSIGN_OR_RETURN(const CUevent event,
                              static_cast<CudaMarker&>(*wait->marker).EventOf(group));
    Add(CU_GRAPH_NODE_TYPE_WAIT_EVENT).eventWait.event = event;
  } else if (const auto* memory = std::get_if<MemoryOpsStep>(&step)) {
    for (const MemoryOp& operation : memory->operations) {
      memory_ops_.push_back(ParamsOf(operation));
    }
    if (!memory_ops_.empty()) AddMemoryOps(context);
  } else if (const auto* conditional = std::get_if<ConditionalStep>(&step)) {
    CUDA_CONDITIONAL_NODE_PARAMS& params = Add(CU_GRAPH_NODE_TYPE_CONDITIONAL).conditional;
    params.handle = static_cast<uint32_t>(conditional->handle);
    params.type = static_cast<CUgraphConditionalNodeType>(conditional->type);
    params.size = conditional->body_count;
    params.ctx = context;
  }
  // A step without work becomes an empty node, because other nodes depend on it.
  if (all_.empty()) Add(CU_GRAPH_NODE_TYPE_EMPTY);
  return absl::OkStatus();
}

}  // namespace detshare::cuda
