// Managed memory.
#include "client_shim/memory/managed_memory.h"

#include <cstring>

#include "client_shim/memory/pointer_map.h"
#include "client_shim/objects/current_context.h"
#include "client_shim/transport/session.h"
#include "client_shim/work/streams.h"
#include "proto/driver_api/shim_api.h"
#include "proto/wire/memory.h"

namespace detshare::shim::api {
namespace {

// Checks that managed memory may be at the location. All locations of the host have the same
// meaning here.
CUresult CheckLocation(const CUmemLocation& location) {
  switch (location.type) {
    case CU_MEM_LOCATION_TYPE_DEVICE:
      return session().HasDevice(location.id) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
    case CU_MEM_LOCATION_TYPE_HOST:
    case CU_MEM_LOCATION_TYPE_HOST_NUMA:
    case CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT:
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

// Whether an allocation of a memory pool holds the address.
bool IsPoolMemory(CUdeviceptr address) {
  Allocation allocation;
  return pointers().Find(address, &allocation) && allocation.pool != 0;
}

// Whether the pages of managed memory at the address move.
bool Migrates(CUdeviceptr address) {
  Allocation allocation;
  return pointers().Find(address, &allocation) && allocation.migrates;
}

// A device, or CU_DEVICE_CPU.
CUmemLocation LocationOf(CUdevice device) {
  CUmemLocation location{};
  location.type = device == CU_DEVICE_CPU ? CU_MEM_LOCATION_TYPE_HOST : CU_MEM_LOCATION_TYPE_DEVICE;
  location.id = device == CU_DEVICE_CPU ? 0 : device;
  return location;
}

int32_t WirePlace(const CUmemLocation& location) {
  return location.type == CU_MEM_LOCATION_TYPE_DEVICE ? location.id : wire::kPlaceHost;
}

// The range is managed memory, and the location valid.
CUresult PrefetchOne(Stream& stream, CUdeviceptr address, size_t bytes,
                     const CUmemLocation& location) {
  NotePrefetch(address, bytes, location);
  if (!Migrates(address)) return CUDA_SUCCESS;
  return SubmitWork(stream, Op::cuMemPrefetchAsync_v2,
                    wire::cuMemPrefetchAsync_v2{address, bytes, stream.id, WirePlace(location)});
}

CUresult Prefetch(CUdeviceptr address, size_t bytes, const CUmemLocation& location,
                  CUstream handle) {
  Stream* stream;
  if (const CUresult error = StreamForWork(handle, &stream); error != CUDA_SUCCESS) return error;
  if (!IsManagedMemory(address, bytes)) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult error = CheckLocation(location); error != CUDA_SUCCESS) return error;
  return PrefetchOne(*stream, address, bytes, location);
}

CUresult Advise(CUdeviceptr address, size_t bytes, CUmem_advise advice,
                const CUmemLocation& location) {
  // NVIDIA's driver wants a known type of location even where the location has no meaning.
  if (location.type < CU_MEM_LOCATION_TYPE_INVALID ||
      location.type > CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  // These kinds of advice have no location.
  const bool nowhere = advice == CU_MEM_ADVISE_SET_READ_MOSTLY ||
                       advice == CU_MEM_ADVISE_UNSET_READ_MOSTLY ||
                       advice == CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION;
  // With a node of the host they change nothing, and the driver accepts them for memory of pools,
  // too.
  const bool ignored = nowhere && location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA;
  if (ignored && bytes != 0 && IsPoolMemory(address)) return CUDA_SUCCESS;
  const uint64_t advised = AdvisableBytes(address, bytes);
  if (advised == 0) return CUDA_ERROR_INVALID_VALUE;
  if (ignored) return CUDA_SUCCESS;
  const bool accessed =
      advice == CU_MEM_ADVISE_SET_ACCESSED_BY || advice == CU_MEM_ADVISE_UNSET_ACCESSED_BY;
  if (accessed && location.type != CU_MEM_LOCATION_TYPE_DEVICE &&
      location.type != CU_MEM_LOCATION_TYPE_HOST) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  // A device that does not exist is CUDA_ERROR_INVALID_DEVICE only for prefetches.
  if (!nowhere && CheckLocation(location) != CUDA_SUCCESS) return CUDA_ERROR_INVALID_VALUE;
  const CUmemLocation place = nowhere ? LocationOf(CU_DEVICE_CPU) : location;
  const CUresult noted = NoteAdvice(address, advised, advice, place);
  Allocation allocation;
  if (noted != CUDA_SUCCESS || !pointers().Find(address, &allocation) || !allocation.migrates)
    return noted;
  return session().Call(
      Op::cuMemAdvise_v2, allocation.device, allocation.context,
      wire::cuMemAdvise_v2{address, advised, static_cast<uint32_t>(advice), WirePlace(place)});
}

// A batch of ranges that are all managed memory.
CUresult CheckBatch(const CUdeviceptr* addresses, const size_t* sizes, size_t count,
                    unsigned long long flags) {
  if (addresses == nullptr || sizes == nullptr || count == 0 || flags != 0)
    return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < count; ++i) {
    if (!IsManagedMemory(addresses[i], sizes[i])) return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

CUresult PrefetchBatch(const CUdeviceptr* addresses, const size_t* sizes, size_t count,
                       const CUmemLocation* locations, const size_t* indices, size_t location_count,
                       unsigned long long flags, CUstream handle) {
  Stream* stream;
  if (const CUresult error = StreamForWork(handle, &stream); error != CUDA_SUCCESS) return error;
  if (const CUresult error = CheckBatch(addresses, sizes, count, flags); error != CUDA_SUCCESS)
    return error;
  if (locations == nullptr || indices == nullptr || location_count == 0 || location_count > count ||
      indices[0] != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  for (size_t i = 0; i < location_count; ++i) {
    if (indices[i] >= count || (i != 0 && indices[i] <= indices[i - 1]))
      return CUDA_ERROR_INVALID_VALUE;
    if (const CUresult error = CheckLocation(locations[i]); error != CUDA_SUCCESS) return error;
  }
  for (size_t i = 0, location = 0; i < count; ++i) {
    if (location + 1 < location_count && indices[location + 1] == i) ++location;
    if (const CUresult error = PrefetchOne(*stream, addresses[i], sizes[i], locations[location]);
        error != CUDA_SUCCESS) {
      return error;
    }
  }
  return CUDA_SUCCESS;
}

CUresult WriteInt(void* data, size_t bytes, int value) {
  if (bytes != sizeof(int)) return CUDA_ERROR_INVALID_VALUE;
  memcpy(data, &value, sizeof(value));
  return CUDA_SUCCESS;
}

CUresult WriteAccessedBy(void* data, size_t bytes, const MemoryAdvice& advice) {
  if (bytes == 0 || bytes % sizeof(int) != 0) return CUDA_ERROR_INVALID_VALUE;
  const size_t room = bytes / sizeof(int);
  int* out = static_cast<int*>(data);
  size_t used = 0;
  for (int device = 0; device < static_cast<int>(kMaxDevices) && used < room; ++device) {
    if ((advice.accessed_by >> device & 1) != 0) out[used++] = device;
  }
  if (advice.accessed_by_host && used < room) out[used++] = CU_DEVICE_CPU;
  while (used < room) out[used++] = CU_DEVICE_INVALID;
  return CUDA_SUCCESS;
}

CUresult WriteAttribute(void* data, size_t bytes, CUmem_range_attribute attribute,
                        const MemoryAdvice& advice) {
  switch (attribute) {
    case CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY:
      return WriteInt(data, bytes, advice.read_mostly);
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION:
      return WriteInt(data, bytes, advice.preferred_number);
    case CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY:
      return WriteAccessedBy(data, bytes, advice);
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION:
      return WriteInt(data, bytes, advice.prefetched_number);
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE:
      return WriteInt(data, bytes, advice.preferred.type);
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_ID:
      return WriteInt(data, bytes, advice.preferred.id);
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_TYPE:
      return WriteInt(data, bytes, advice.prefetched.type);
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_ID:
      return WriteInt(data, bytes, advice.prefetched.id);
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

}  // namespace

CUresult cuMemAllocManaged(CUdeviceptr* dptr, size_t bytesize, unsigned int flags) {
  *dptr = 0;  // NVIDIA's driver writes 0 on errors, too.
  Context* context;
  if (const CUresult error = ContextForWork(&context); error != CUDA_SUCCESS) return error;
  if (bytesize == 0 || (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST))
    return CUDA_ERROR_INVALID_VALUE;
  return AllocateManagedMemory(*context, bytesize, dptr);
}

CUresult cuMemPrefetchAsync(CUdeviceptr devPtr, size_t count, CUdevice dstDevice,
                            CUstream hStream) {
  return Prefetch(devPtr, count, LocationOf(dstDevice), hStream);
}

CUresult cuMemPrefetchAsync_v2(CUdeviceptr devPtr, size_t count, CUmemLocation location,
                               unsigned int flags, CUstream hStream) {
  return flags != 0 ? CUDA_ERROR_INVALID_VALUE : Prefetch(devPtr, count, location, hStream);
}

CUresult cuMemAdvise(CUdeviceptr devPtr, size_t count, CUmem_advise advice, CUdevice device) {
  return Advise(devPtr, count, advice, LocationOf(device));
}

CUresult cuMemAdvise_v2(CUdeviceptr devPtr, size_t count, CUmem_advise advice,
                        CUmemLocation location) {
  return Advise(devPtr, count, advice, location);
}

CUresult cuMemPrefetchBatchAsync(CUdeviceptr* dptrs, size_t* sizes, size_t count,
                                 CUmemLocation* prefetchLocs, size_t* prefetchLocIdxs,
                                 size_t numPrefetchLocs, unsigned long long flags,
                                 CUstream hStream) {
  return PrefetchBatch(dptrs, sizes, count, prefetchLocs, prefetchLocIdxs, numPrefetchLocs, flags,
                       hStream);
}

// Discarded memory may have any contents, so it keeps its old contents.
CUresult cuMemDiscardBatchAsync(CUdeviceptr* dptrs, size_t* sizes, size_t count,
                                unsigned long long flags, CUstream hStream) {
  Stream* stream;
  if (const CUresult error = StreamForWork(hStream, &stream); error != CUDA_SUCCESS) return error;
  return CheckBatch(dptrs, sizes, count, flags);
}

CUresult cuMemDiscardAndPrefetchBatchAsync(CUdeviceptr* dptrs, size_t* sizes, size_t count,
                                           CUmemLocation* prefetchLocs, size_t* prefetchLocIdxs,
                                           size_t numPrefetchLocs, unsigned long long flags,
                                           CUstream hStream) {
  return PrefetchBatch(dptrs, sizes, count, prefetchLocs, prefetchLocIdxs, numPrefetchLocs, flags,
                       hStream);
}

CUresult cuMemRangeGetAttribute(void* data, size_t dataSize, CUmem_range_attribute attribute,
                                CUdeviceptr devPtr, size_t count) {
  if (!IsManagedMemory(devPtr, count)) return CUDA_ERROR_INVALID_VALUE;
  return WriteAttribute(data, dataSize, attribute, AdviceOf(devPtr, count));
}

CUresult cuMemRangeGetAttributes(void** data, size_t* dataSizes, CUmem_range_attribute* attributes,
                                 size_t numAttributes, CUdeviceptr devPtr, size_t count) {
  if (numAttributes == 0 || data == nullptr || dataSizes == nullptr || attributes == nullptr ||
      !IsManagedMemory(devPtr, count)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const MemoryAdvice advice = AdviceOf(devPtr, count);
  for (size_t i = 0; i < numAttributes; ++i) {
    if (data[i] == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const CUresult result = WriteAttribute(data[i], dataSizes[i], attributes[i], advice);
    if (result != CUDA_SUCCESS) return result;
  }
  return CUDA_SUCCESS;
}

// The memory is always visible to all streams, which every attachment allows.
CUresult cuStreamAttachMemAsync(CUstream hStream, CUdeviceptr dptr, size_t length,
                                unsigned int flags) {
  Stream* stream;
  if (const CUresult error = StreamForWork(hStream, &stream); error != CUDA_SUCCESS) return error;
  Allocation allocation;
  if (!pointers().Find(dptr, &allocation) || allocation.kind != MemoryKind::kManaged ||
      dptr != allocation.address || (length != 0 && length != allocation.bytes)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST && flags != CU_MEM_ATTACH_SINGLE)
    return CUDA_ERROR_INVALID_VALUE;
  // The driver refuses the null handle, but not the legacy stream by its own name.
  if (flags == CU_MEM_ATTACH_SINGLE && hStream == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return CUDA_SUCCESS;
}

}  // namespace detshare::shim::api
