// Converts an operation on memory to the driver's form.
#pragma once

#include "coroutine_runtime/memory_op.h"
#include "server/backends/cuda/driver_api.h"

namespace detshare::cuda {

inline CUstreamBatchMemOpParams ParamsOf(const MemoryOp& operation) {
  CUstreamBatchMemOpParams params{};
  params.operation = static_cast<CUstreamBatchMemOpType>(operation.operation);
  if (operation.is_wait()) {
    params.waitValue.address = operation.address;
    params.waitValue.value64 = operation.value;
    params.waitValue.flags = operation.flags;
  } else if (operation.is_write()) {
    params.writeValue.address = operation.address;
    params.writeValue.value64 = operation.value;
    params.writeValue.flags = operation.flags;
  } else if (operation.operation == MemoryOp::kBarrier) {
    params.memoryBarrier.flags = operation.flags;
  }
  return params;
}

}  // namespace detshare::cuda
