// Pointer attributes, from the map of the process's allocations.
//
// As in driver 580: a query about memory that the driver does not know is an error for one
// attribute. For several attributes it gives default values. Truth values are written as 32 bits.
#include <cstring>

#include "client_shim/memory/pointer_map.h"
#include "client_shim/memory/virtual_memory.h"
#include "client_shim/objects/current_context.h"
#include "client_shim/transport/session.h"
#include "client_shim/work/graph/graph_memory.h"
#include "proto/driver_api/shim_api.h"

namespace detshare::shim::api {
namespace {

constexpr int kNoDevice = -2;

template <typename T>
CUresult Write(void* data, T value) {
  memcpy(data, &value, sizeof(value));
  return CUDA_SUCCESS;
}

bool Valid(CUpointer_attribute attribute) {
  return attribute >= CU_POINTER_ATTRIBUTE_CONTEXT &&
         attribute <= CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE;
}

uint16_t CurrentDeviceOr(uint16_t device) {
  Context* context;
  return CurrentContext(&context) == CUDA_SUCCESS ? context->device : device;
}

struct AddressRange {
  uint64_t start, bytes;
};

// NVIDIA's driver maps memory in blocks, of which it gives out parts: 2 MiB, and 32 MiB for pools.
// Memory that the program registers keeps its own size.
AddressRange MappingOf(const Allocation& allocation) {
  constexpr uint64_t kBlock = 2 << 20, kPoolBlock = 32 << 20;
  if (allocation.kind == MemoryKind::kRegistered || allocation.kind == MemoryKind::kRegisteredAlias)
    return {allocation.address, allocation.bytes};
  if (allocation.window != 0) return {allocation.window, RoundUp(allocation.mapping_bytes, kBlock)};
  if (allocation.pool != 0) return {allocation.address, RoundUp(allocation.bytes, kPoolBlock)};
  const uint64_t start = allocation.address / kBlock * kBlock;
  return {start, RoundUp(allocation.address + allocation.bytes - start, kBlock)};
}

// CUDA_ERROR_INVALID_VALUE: the attribute has no value. Queries of several attributes use the bytes
// that are written nevertheless.
CUresult OfAllocation(const Allocation& allocation, CUpointer_attribute attribute,
                      CUdeviceptr pointer, void* data) {
  const uint64_t offset = pointer - allocation.address;
  const bool managed = allocation.kind == MemoryKind::kManaged;
  const bool mapped = allocation.kind == MemoryKind::kVirtual;
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
      // Memory of a pool belongs to a device and not to a context.
      return Write<uint64_t>(data, allocation.pool != 0 ? 0 : allocation.context_handle);
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      return Write<uint32_t>(
          data, allocation.on_device() || managed ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST);
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
      return Write<uint64_t>(data,
                             allocation.gpu_address != 0 ? allocation.gpu_address + offset : 0);
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
      Write<uint64_t>(data, allocation.on_host() ? allocation.host_address + offset : 0);
      return allocation.on_host() ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
      return Write<uint32_t>(data, allocation.sync_memops);
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
      return Write<uint64_t>(data, allocation.buffer_id);
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      return Write<int32_t>(data, allocation.device);
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE: {
      uint64_t start = allocation.address, bytes = allocation.bytes;
      // The range of mapped memory is the reserved one, with all its mappings.
      if (mapped) FindReservation(pointer, &start, &bytes);
      return Write<uint64_t>(data,
                             attribute == CU_POINTER_ATTRIBUTE_RANGE_START_ADDR ? start : bytes);
    }
    case CU_POINTER_ATTRIBUTE_MAPPED:
      return Write<uint32_t>(data, 1);
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
      return Write<uint64_t>(data, allocation.handle_types);
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
      return Write<uint32_t>(
          data, mapped ? allocation.AccessOf(CurrentDeviceOr(allocation.device))
                       : static_cast<uint32_t>(CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE));
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
      return Write<uint64_t>(data, allocation.pool);
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
      return Write<uint64_t>(data, MappingOf(allocation).bytes);
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
      return Write<uint64_t>(data, MappingOf(allocation).start);
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
      return Write<uint32_t>(data, managed);
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
    case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
      return Write<uint32_t>(data, allocation.kind == MemoryKind::kDevice && allocation.pool == 0);
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
      return Write<uint32_t>(data, 0);
    case CU_POINTER_ATTRIBUTE_P2P_TOKENS:
      // NVIDIA's driver has no tokens any more. It writes 0 also with the error.
      Write<uint64_t>(data, 0);
      return allocation.on_device() || managed ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_ERROR_INVALID_VALUE;
}

// The values for memory that the driver does not know.
void Default(CUpointer_attribute attribute, CUdeviceptr pointer, void* data) {
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
      Write<uint64_t>(data, pointer);
      return;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      Write<int32_t>(data, kNoDevice);
      return;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
      return;  // not written
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
    case CU_POINTER_ATTRIBUTE_MAPPED:
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
    case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
      Write<uint32_t>(data, 0);
      return;
    default:
      Write<uint64_t>(data, 0);
  }
}

}  // namespace

CUresult cuPointerGetAttribute(void* data, CUpointer_attribute attribute, CUdeviceptr ptr) {
  Allocation allocation;
  if (!Valid(attribute) || !FindVisibleMemory(ptr, &allocation)) return CUDA_ERROR_INVALID_VALUE;
  return OfAllocation(allocation, attribute, ptr, data);
}

CUresult cuPointerGetAttributes(unsigned int numAttributes, CUpointer_attribute* attributes,
                                void** data, CUdeviceptr ptr) {
  if (numAttributes == 0 || attributes == nullptr || data == nullptr)
    return CUDA_ERROR_INVALID_VALUE;
  for (unsigned int i = 0; i < numAttributes; ++i) {
    if (data[i] == nullptr) return CUDA_ERROR_INVALID_VALUE;
  }
  Allocation allocation;
  const bool known = FindVisibleMemory(ptr, &allocation);
  for (unsigned int i = 0; i < numAttributes; ++i) {
    // NVIDIA's driver has written the values before a wrong attribute.
    if (!Valid(attributes[i]) || attributes[i] == CU_POINTER_ATTRIBUTE_P2P_TOKENS)
      return CUDA_ERROR_INVALID_VALUE;
    if (known) {
      OfAllocation(allocation, attributes[i], ptr, data[i]);
    } else {
      Default(attributes[i], ptr, data[i]);
    }
  }
  return CUDA_SUCCESS;
}

CUresult cuPointerSetAttribute(const void* value, CUpointer_attribute attribute, CUdeviceptr ptr) {
  // NVIDIA's driver looks at the memory first: memory of cuMemMap has no attributes to set.
  Allocation allocation;
  if (pointers().Find(ptr, &allocation) && allocation.kind == MemoryKind::kVirtual)
    return CUDA_ERROR_NOT_SUPPORTED;
  if (attribute != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS) return CUDA_ERROR_INVALID_VALUE;
  uint32_t wish;
  memcpy(&wish, value, sizeof(wish));
  return pointers().SetSyncMemops(ptr, wish != 0) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

}  // namespace detshare::shim::api
