// Stream-ordered allocation and memory pools.
#include "client_shim/memory/memory_pools.h"
#include "client_shim/memory/pointer_map.h"
#include "client_shim/transport/session.h"
#include "client_shim/work/graph/capture.h"
#include "client_shim/work/graph/capture_work.h"
#include "client_shim/work/graph/graph_memory.h"
#include "client_shim/work/streams.h"
#include "proto/driver_api/shim_api.h"
#include "proto/wire/ipc.h"
#include "proto/wire/memory.h"

namespace detshare::shim::api {
namespace {

// The device of a location, for calls that name pools by location.
CUresult DeviceOf(const CUmemLocation* location, CUmemAllocationType type, uint16_t* device) {
  if (location == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (type == CU_MEM_ALLOCATION_TYPE_MANAGED) return CUDA_ERROR_NOT_SUPPORTED;
  if (type != CU_MEM_ALLOCATION_TYPE_PINNED) return CUDA_ERROR_INVALID_VALUE;
  if (location->type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_NOT_SUPPORTED;
  // cuDeviceGetMemPool says CUDA_ERROR_INVALID_DEVICE.
  if (!session().HasDevice(location->id)) return CUDA_ERROR_INVALID_VALUE;
  *device = static_cast<uint16_t>(location->id);
  return CUDA_SUCCESS;
}

CUresult SetInDaemon(const MemoryPool& pool, CUmemPool_attribute attribute, uint64_t value) {
  return session().Submit(
      Op::cuMemPoolSetAttribute, pool.device, 0,
      wire::cuMemPoolSetAttribute{value, pool.id, static_cast<uint32_t>(attribute)});
}

}  // namespace

CUresult cuDeviceSetMemPool(CUdevice dev, CUmemoryPool pool) {
  MemoryPool* found = FindPool(pool);
  if (found == nullptr || !session().HasDevice(dev)) return CUDA_ERROR_INVALID_VALUE;
  if (found->device != dev) return CUDA_ERROR_INVALID_DEVICE;
  if (found->imported) return CUDA_ERROR_INVALID_VALUE;
  SetCurrentPool(static_cast<uint16_t>(dev), *found);
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetMemPool(CUmemoryPool* pool, CUdevice dev) {
  if (!session().HasDevice(dev)) return CUDA_ERROR_INVALID_DEVICE;
  *pool = reinterpret_cast<CUmemoryPool>(CurrentPool(static_cast<uint16_t>(dev)).handle);
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetDefaultMemPool(CUmemoryPool* pool_out, CUdevice dev) {
  if (!session().HasDevice(dev)) return CUDA_ERROR_INVALID_DEVICE;
  *pool_out = reinterpret_cast<CUmemoryPool>(DefaultPool(static_cast<uint16_t>(dev)).handle);
  return CUDA_SUCCESS;
}

CUresult cuMemGetDefaultMemPool(CUmemoryPool* pool_out, CUmemLocation* location,
                                CUmemAllocationType type) {
  uint16_t device;
  const CUresult result = DeviceOf(location, type, &device);
  if (result == CUDA_SUCCESS)
    *pool_out = reinterpret_cast<CUmemoryPool>(DefaultPool(device).handle);
  return result;
}

CUresult cuMemGetMemPool(CUmemoryPool* pool, CUmemLocation* location, CUmemAllocationType type) {
  uint16_t device;
  const CUresult result = DeviceOf(location, type, &device);
  if (result == CUDA_SUCCESS) *pool = reinterpret_cast<CUmemoryPool>(CurrentPool(device).handle);
  return result;
}

CUresult cuMemSetMemPool(CUmemLocation* location, CUmemAllocationType type, CUmemoryPool pool) {
  uint16_t device;
  const CUresult result = DeviceOf(location, type, &device);
  return result != CUDA_SUCCESS ? result : api::cuDeviceSetMemPool(device, pool);
}

CUresult cuMemAllocAsync(CUdeviceptr* dptr, size_t bytesize, CUstream hStream) {
  *dptr = 0;  // NVIDIA's driver writes 0 on errors, too.
  Stream* stream;
  const CUresult result = StreamForWorkOrCapture(hStream, &stream);
  if (result != CUDA_SUCCESS) return result;
  if (Capturing(*stream)) return CaptureAlloc(*stream, bytesize, dptr);
  return AllocateFromPool(CurrentPool(stream->device), bytesize, *stream, dptr);
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr* dptr, size_t bytesize, CUmemoryPool pool,
                                 CUstream hStream) {
  Stream* stream;
  const CUresult result = StreamForWorkOrCapture(hStream, &stream);
  if (result != CUDA_SUCCESS) return result;
  MemoryPool* found = FindPool(pool);
  if (found == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (Capturing(*stream)) return CaptureAlloc(*stream, bytesize, dptr);
  return AllocateFromPool(*found, bytesize, *stream, dptr);
}

CUresult cuMemFreeAsync(CUdeviceptr dptr, CUstream hStream) {
  Stream* stream;
  const CUresult result = StreamForWorkOrCapture(hStream, &stream);
  if (result != CUDA_SUCCESS) return result;
  if (dptr == 0) return CUDA_SUCCESS;
  if (Capturing(*stream)) return CaptureFree(*stream, dptr);
  if (CUresult freed; FreeIfGraphMemory(dptr, &freed)) return freed;
  Allocation allocation;
  if (TakeImported(dptr, &allocation)) {
    NotePoolFree(allocation.pool, allocation.bytes);
    // The daemon waits for all earlier work.
    return session().Submit(Op::cuIpcCloseMemHandle, allocation.device, allocation.context,
                            wire::cuIpcCloseMemHandle{dptr});
  }
  if (!pointers().Take(dptr, MemoryKind::kDevice, &allocation)) return CUDA_ERROR_INVALID_VALUE;
  NotePoolFree(allocation.pool, allocation.bytes);
  return SubmitWork(*stream, Op::cuMemFreeAsync, wire::cuMemFreeAsync{dptr, stream->id, 0});
}

CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t minBytesToKeep) {
  const MemoryPool* found = FindPool(pool);
  if (found == nullptr || found->imported) return CUDA_ERROR_INVALID_VALUE;
  return session().Call(Op::cuMemPoolTrimTo, found->device, 0,
                        wire::cuMemPoolTrimTo{minBytesToKeep, found->id, 0});
}

CUresult cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attr, void* value) {
  MemoryPool* found = FindPool(pool);
  if (found == nullptr || found->imported || value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  switch (attr) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
      found->reuse_follow.store(*static_cast<int*>(value), std::memory_order_relaxed);
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
      found->reuse_opportunistic.store(*static_cast<int*>(value), std::memory_order_relaxed);
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
      found->reuse_internal.store(*static_cast<int*>(value), std::memory_order_relaxed);
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
      found->release_threshold.store(*static_cast<cuuint64_t*>(value), std::memory_order_relaxed);
      return SetInDaemon(*found, attr, *static_cast<cuuint64_t*>(value));
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
      // A high-water mark can only be reset to the present use.
      if (*static_cast<cuuint64_t*>(value) != 0) return CUDA_ERROR_INVALID_VALUE;
      if (attr == CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH) return SetInDaemon(*found, attr, 0);
      found->used_high.store(found->used.load(std::memory_order_relaxed),
                             std::memory_order_relaxed);
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attr, void* value) {
  MemoryPool* found = FindPool(pool);
  if (found == nullptr || value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  switch (attr) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
      *static_cast<int*>(value) = found->reuse_follow.load(std::memory_order_relaxed);
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
      *static_cast<int*>(value) = found->reuse_opportunistic.load(std::memory_order_relaxed);
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
      *static_cast<int*>(value) = found->reuse_internal.load(std::memory_order_relaxed);
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
      *static_cast<cuuint64_t*>(value) = found->release_threshold.load(std::memory_order_relaxed);
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
      *static_cast<cuuint64_t*>(value) = found->used.load(std::memory_order_relaxed);
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH: {
      // Only the owner of an imported pool knows what the pool has reserved.
      if (found->imported) return CUDA_ERROR_INVALID_VALUE;
      wire::cuMemPoolGetAttribute_Reply reply{};
      const CUresult result = session().Call(
          Op::cuMemPoolGetAttribute, found->device, 0,
          wire::cuMemPoolGetAttribute{found->id, static_cast<uint32_t>(attr)}, &reply);
      if (result == CUDA_SUCCESS) *static_cast<cuuint64_t*>(value) = reply.value;
      return result;
    }
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
      *static_cast<cuuint64_t*>(value) = found->used_high.load(std::memory_order_relaxed);
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc* map, size_t count) {
  MemoryPool* found = FindPool(pool);
  if (found == nullptr || (map == nullptr && count != 0)) return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < count; ++i) {
    if (map[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_NOT_SUPPORTED;
    if (!session().HasDevice(map[i].location.id)) return CUDA_ERROR_INVALID_DEVICE;
    // Pools know no access that only reads.
    if (map[i].flags == CU_MEM_ACCESS_FLAGS_PROT_READ) return CUDA_ERROR_NOT_SUPPORTED;
    if (map[i].flags != CU_MEM_ACCESS_FLAGS_PROT_NONE &&
        map[i].flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    // The pool's own device always has access.
    const bool own = map[i].location.id == found->device;
    if (own && map[i].flags == CU_MEM_ACCESS_FLAGS_PROT_NONE) return CUDA_ERROR_INVALID_DEVICE;
    if (!own && found->imported) return CUDA_ERROR_NOT_SUPPORTED;
  }
  for (size_t i = 0; i < count; ++i) {
    const auto device = static_cast<uint32_t>(map[i].location.id);
    if (device == found->device) continue;
    const auto access = static_cast<uint32_t>(map[i].flags);
    const CUresult result = session().Call(Op::cuMemPoolSetAccess, found->device, 0,
                                           wire::cuMemPoolSetAccess{found->id, device, access, 0});
    if (result != CUDA_SUCCESS) return result;
    const uint32_t mask = uint32_t{3} << (2 * device);
    found->access.fetch_and(~mask, std::memory_order_relaxed);
    found->access.fetch_or(access << (2 * device), std::memory_order_relaxed);
  }
  return CUDA_SUCCESS;
}

CUresult cuMemPoolGetAccess(CUmemAccess_flags* flags, CUmemoryPool memPool,
                            CUmemLocation* location) {
  MemoryPool* found = FindPool(memPool);
  if (found == nullptr || location == nullptr) return CUDA_ERROR_INVALID_VALUE;
  // The host has no access to device memory. Its number is not looked at.
  if (location->type == CU_MEM_LOCATION_TYPE_HOST ||
      location->type == CU_MEM_LOCATION_TYPE_HOST_NUMA) {
    *flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
    return CUDA_SUCCESS;
  }
  if (location->type != CU_MEM_LOCATION_TYPE_DEVICE || !session().HasDevice(location->id))
    return CUDA_ERROR_INVALID_VALUE;
  *flags = static_cast<CUmemAccess_flags>(
      found->access.load(std::memory_order_relaxed) >> (2 * location->id) & 3);
  return CUDA_SUCCESS;
}

CUresult cuMemPoolCreate(CUmemoryPool* pool, const CUmemPoolProps* poolProps) {
  if (poolProps == nullptr || poolProps->allocType != CU_MEM_ALLOCATION_TYPE_PINNED)
    return CUDA_ERROR_INVALID_VALUE;
  // Handles of Windows are an invalid value on Linux.
  constexpr int kKnown = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR | CU_MEM_HANDLE_TYPE_FABRIC;
  if ((poolProps->handleTypes & ~kKnown) != 0) return CUDA_ERROR_INVALID_VALUE;
  if ((poolProps->handleTypes & CU_MEM_HANDLE_TYPE_FABRIC) != 0) return CUDA_ERROR_NOT_SUPPORTED;
  // Calls that name existing pools say CUDA_ERROR_NOT_SUPPORTED here.
  if (poolProps->location.type < CU_MEM_LOCATION_TYPE_DEVICE ||
      poolProps->location.type > CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  uint16_t device;
  const CUresult result = DeviceOf(&poolProps->location, poolProps->allocType, &device);
  return result != CUDA_SUCCESS ? result : CreatePool(device, *poolProps, pool);
}

CUresult cuMemPoolDestroy(CUmemoryPool pool) { return DestroyPool(pool); }

}  // namespace detshare::shim::api
