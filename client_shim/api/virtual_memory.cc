// Virtual memory management.
#include "client_shim/memory/virtual_memory.h"

#include "client_shim/memory/pointer_map.h"
#include "client_shim/memory/share_descriptor.h"
#include "client_shim/transport/session.h"
#include "proto/driver_api/shim_api.h"

namespace detshare::shim::api {
namespace {

constexpr uint64_t kUnit = wire::kPhysicalUnit;

CUresult CheckHandleTypes(const CUmemAllocationProp& properties) {
  // Handles of Windows are an invalid value on Linux.
  constexpr int kKnown = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR | CU_MEM_HANDLE_TYPE_FABRIC;
  if ((properties.requestedHandleTypes & ~kKnown) != 0) return CUDA_ERROR_INVALID_VALUE;
  return (properties.requestedHandleTypes & CU_MEM_HANDLE_TYPE_FABRIC) != 0
             ? CUDA_ERROR_NOT_SUPPORTED
             : CUDA_SUCCESS;
}

// Whether the session has such a place for memory.
CUresult CheckLocation(const CUmemAllocationProp& properties) {
  switch (properties.location.type) {
    case CU_MEM_LOCATION_TYPE_DEVICE:
      return session().HasDevice(properties.location.id) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
    case CU_MEM_LOCATION_TYPE_HOST:
    case CU_MEM_LOCATION_TYPE_HOST_NUMA:
      // Natively, too, other devices reach only a GPU's memory by RDMA.
      return properties.allocFlags.gpuDirectRDMACapable != 0 ? CUDA_ERROR_INVALID_VALUE
                                                             : CUDA_ERROR_NOT_SUPPORTED;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

}  // namespace

CUresult cuMemGetAllocationGranularity(size_t* granularity, const CUmemAllocationProp* prop,
                                       CUmemAllocationGranularity_flags option) {
  if (option != CU_MEM_ALLOC_GRANULARITY_MINIMUM &&
      option != CU_MEM_ALLOC_GRANULARITY_RECOMMENDED) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  // The driver looks neither at the type nor at the location nor at the usage here.
  const CUresult result = CheckHandleTypes(*prop);
  if (result == CUDA_SUCCESS) *granularity = kUnit;
  return result;
}

CUresult cuMemGetHandleForAddressRange(void*, CUdeviceptr dptr, size_t size,
                                       CUmemRangeHandleType handleType, unsigned long long flags) {
  if (handleType != CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD ||
      (flags & ~static_cast<unsigned long long>(CU_MEM_RANGE_FLAG_DMA_BUF_MAPPING_TYPE_PCIE)) !=
          0 ||
      size == 0 || size % kPageBytes != 0 || dptr % kPageBytes != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  Allocation allocation;
  if (!pointers().Find(dptr, &allocation) || !allocation.on_device() ||
      size > allocation.bytes - (dptr - allocation.address)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuMemAddressReserve(CUdeviceptr* ptr, size_t size, size_t alignment, CUdeviceptr addr,
                             unsigned long long flags) {
  if (const CUresult error = session().sticky_error(); error != CUDA_SUCCESS) return error;
  if (flags != 0 || size == 0 || size % kUnit != 0 || addr % kPageBytes != 0 ||
      (alignment & (alignment - 1)) != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  uint64_t address;
  const CUresult result = ReserveAddresses(size, alignment, addr, &address);
  if (result == CUDA_SUCCESS) *ptr = address;
  return result;
}

CUresult cuMemAddressFree(CUdeviceptr ptr, size_t size) {
  if (const CUresult error = session().sticky_error(); error != CUDA_SUCCESS) return error;
  return FreeAddresses(ptr, size);
}

CUresult cuMemCreate(CUmemGenericAllocationHandle* handle, size_t size,
                     const CUmemAllocationProp* prop, unsigned long long flags) {
  if (const CUresult error = session().sticky_error(); error != CUDA_SUCCESS) return error;
  if (flags != 0 || prop->type != CU_MEM_ALLOCATION_TYPE_PINNED) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult error = CheckLocation(*prop); error != CUDA_SUCCESS) return error;
  if (const CUresult error = CheckHandleTypes(*prop); error != CUDA_SUCCESS) return error;
  if (size == 0 || size % kUnit != 0) return CUDA_ERROR_INVALID_VALUE;
  // Tiles of sparse arrays.
  if ((prop->allocFlags.usage & CU_MEM_CREATE_USAGE_TILE_POOL) != 0)
    return CUDA_ERROR_NOT_SUPPORTED;
  // The driver drops what it does not know.
  CUmemAllocationProp kept = *prop;
  kept.allocFlags.usage = 0;
  kept.allocFlags.gpuDirectRDMACapable = prop->allocFlags.gpuDirectRDMACapable != 0 ? 1 : 0;
  return CreatePhysicalMemory(static_cast<uint16_t>(prop->location.id), size, kept, handle);
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  if (const CUresult error = session().sticky_error(); error != CUDA_SUCCESS) return error;
  return ReleasePhysicalMemory(handle);
}

CUresult cuMemMap(CUdeviceptr ptr, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
                  unsigned long long flags) {
  if (const CUresult error = session().sticky_error(); error != CUDA_SUCCESS) return error;
  if (flags != 0 || size == 0) return CUDA_ERROR_INVALID_VALUE;
  return MapPhysicalMemory(ptr, size, offset, handle);
}

CUresult cuMemUnmap(CUdeviceptr ptr, size_t size) {
  if (const CUresult error = session().sticky_error(); error != CUDA_SUCCESS) return error;
  return size == 0 ? CUDA_ERROR_INVALID_VALUE : UnmapPhysicalMemory(ptr, size);
}

CUresult cuMemSetAccess(CUdeviceptr ptr, size_t size, const CUmemAccessDesc* desc, size_t count) {
  if (const CUresult error = session().sticky_error(); error != CUDA_SUCCESS) return error;
  if (desc == nullptr || count == 0 || size == 0) return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < count; ++i) {
    const bool device = desc[i].location.type == CU_MEM_LOCATION_TYPE_DEVICE;
    if ((!device && desc[i].location.type != CU_MEM_LOCATION_TYPE_HOST &&
         desc[i].location.type != CU_MEM_LOCATION_TYPE_HOST_NUMA) ||
        (desc[i].flags != CU_MEM_ACCESS_FLAGS_PROT_NONE &&
         desc[i].flags != CU_MEM_ACCESS_FLAGS_PROT_READ &&
         desc[i].flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE)) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    if (device && !session().HasDevice(desc[i].location.id)) return CUDA_ERROR_INVALID_DEVICE;
  }
  return SetMemoryAccess(ptr, size, {desc, count});
}

CUresult cuMemGetAccess(unsigned long long* flags, const CUmemLocation* location, CUdeviceptr ptr) {
  if (location->type == CU_MEM_LOCATION_TYPE_HOST ||
      location->type == CU_MEM_LOCATION_TYPE_HOST_NUMA ||
      location->type == CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT) {
    // For the host, the driver answers as for the memory's own device. Its nodes have no access (seen
    // with driver 580).
    CUmemAccess_flags found;
    const CUresult result = GetOwnersAccess(ptr, &found);
    *flags =
        location->type == CU_MEM_LOCATION_TYPE_HOST_NUMA ? CU_MEM_ACCESS_FLAGS_PROT_NONE : found;
    return result;
  }
  if (location->type != CU_MEM_LOCATION_TYPE_DEVICE || !session().HasDevice(location->id))
    return CUDA_ERROR_INVALID_DEVICE;
  CUmemAccess_flags found;
  const CUresult result = GetMemoryAccess(ptr, static_cast<uint16_t>(location->id), &found);
  *flags = found;  // The driver writes it on errors, too.
  return result;
}

CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp* prop,
                                                CUmemGenericAllocationHandle handle) {
  return GetPhysicalProperties(handle, prop);
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle* handle, void* addr) {
  return RetainPhysicalMemory(reinterpret_cast<uint64_t>(addr), handle);
}

CUresult cuMemExportToShareableHandle(void* shareableHandle, CUmemGenericAllocationHandle handle,
                                      CUmemAllocationHandleType handleType,
                                      unsigned long long flags) {
  if (const CUresult error = session().sticky_error(); error != CUDA_SUCCESS) return error;
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (handleType == CU_MEM_HANDLE_TYPE_FABRIC) return CUDA_ERROR_NOT_SUPPORTED;
  if (handleType != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) return CUDA_ERROR_INVALID_VALUE;
  wire::ShareToken token;
  const CUresult result = ExportPhysicalMemory(handle, &token);
  return result != CUDA_SUCCESS ? result
                                : MakeShareDescriptor(ShareKind::kPhysicalMemory, token,
                                                      static_cast<int*>(shareableHandle));
}

CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle* handle, void* osHandle,
                                        CUmemAllocationHandleType shHandleType) {
  if (const CUresult error = session().sticky_error(); error != CUDA_SUCCESS) return error;
  if (shHandleType == CU_MEM_HANDLE_TYPE_FABRIC) return CUDA_ERROR_NOT_SUPPORTED;
  if (shHandleType != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) return CUDA_ERROR_INVALID_VALUE;
  wire::ShareToken token;
  const int descriptor = static_cast<int>(reinterpret_cast<intptr_t>(osHandle));
  const CUresult result = ReadShareDescriptor(ShareKind::kPhysicalMemory, descriptor, &token);
  return result != CUDA_SUCCESS ? result : ImportPhysicalMemory(token, handle);
}

}  // namespace detshare::shim::api
