#include "server/backends/cuda/cuda_physical_memory.h"

#include "policy/status_macros.h"

namespace detshare::cuda {

CUmemLocation LocationOf(const CudaContext& context) {
  CUmemLocation location{};
  location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  location.id = context.device;
  return location;
}

absl::StatusOr<std::shared_ptr<CudaPhysicalMemory>> CudaPhysicalMemory::Create(CudaContext& context,
                                                                               uint64_t bytes) {
  context.Enter();
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = LocationOf(context);
  properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  CUmemGenericAllocationHandle handle = 0;
  DETSHARE_RETURN_IF_ERROR(
      context.Check(context.api.cuMemCreate(&handle, bytes, &properties, 0), "cuMemCreate"));
  return std::shared_ptr<CudaPhysicalMemory>(new CudaPhysicalMemory(context, handle, bytes));
}

CudaPhysicalMemory::~CudaPhysicalMemory() {
  context_.Enter();
  context_.Check(context_.api.cuMemRelease(handle_), "cuMemRelease").IgnoreError();
}

}  // namespace detshare::cuda
