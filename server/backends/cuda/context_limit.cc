#include "server/backends/cuda/context_limit.h"

namespace detshare::cuda {

CUresult RaiseLimit(const DriverApi& api, CUlimit limit, uint64_t value, uint64_t memory,
                    uint64_t* in_force) {
  size_t now = 0;
  CUresult result = api.cuCtxGetLimit(&now, limit);
  *in_force = now;
  if (result != CUDA_SUCCESS || value <= now) return result;
  result = api.cuCtxSetLimit(limit, value);
  const bool fixed_by_use =
      limit == CU_LIMIT_MALLOC_HEAP_SIZE || limit == CU_LIMIT_PRINTF_FIFO_SIZE;
  if (result == CUDA_ERROR_INVALID_VALUE && fixed_by_use && value <= memory) return CUDA_SUCCESS;
  if (result == CUDA_SUCCESS) *in_force = value;
  return result;
}

}  // namespace detshare::cuda
