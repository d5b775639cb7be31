// Device memory and pinned host memory.
#include "proto/wire/memory.h"

#include "client_shim/memory/host_memory.h"
#include "client_shim/memory/managed_memory.h"
#include "client_shim/memory/memory_pools.h"
#include "client_shim/memory/pointer_map.h"
#include "client_shim/objects/current_context.h"
#include "client_shim/transport/session.h"
#include "client_shim/work/graph/capture.h"
#include "client_shim/work/graph/graph_memory.h"
#include "client_shim/work/streams.h"
#include "proto/driver_api/shim_api.h"
#include "proto/wire/ipc.h"

namespace detshare::shim::api {
namespace {

// Rows begin at addresses that textures and coalesced accesses need.
constexpr uint64_t kPitchAlignment = 512;

CUresult Allocate(uint64_t bytes, CUdeviceptr* address) {
  *address = 0;  // NVIDIA's driver writes 0 on errors, too.
  Context* context;
  CUresult result = ContextForWork(&context);
  if (result == CUDA_SUCCESS) result = RefuseUnsafeCall();
  if (result != CUDA_SUCCESS) return result;
  if (bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  const ContextId id = context->id.load(std::memory_order_acquire);
  wire::cuMemAlloc_v2_Reply reply{};
  result = session().CallUnordered(Op::cuMemAlloc_v2, context->device, id,
                                   wire::cuMemAlloc_v2{bytes}, &reply);
  if (result != CUDA_SUCCESS) return result;
  Allocation allocation;
  allocation.kind = MemoryKind::kDevice;
  allocation.device = context->device;
  allocation.context = id;
  allocation.context_handle = context->handle.load(std::memory_order_relaxed);
  allocation.address = allocation.gpu_address = reply.address;
  allocation.bytes = bytes;
  pointers().Add(allocation);
  *address = reply.address;
  return CUDA_SUCCESS;
}

// For calls that need no current context: the sticky error, or the error of a capture that does
// not allow the call.
CUresult ErrorForUnsafeCall() {
  const CUresult error = session().sticky_error();
  return error != CUDA_SUCCESS ? error : RefuseUnsafeCall();
}

}  // namespace

// ---- device memory

CUresult cuMemGetInfo_v2(size_t* free, size_t* total) {
  // NVIDIA's driver writes 0 on errors, too.
  if (free != nullptr) *free = 0;
  if (total != nullptr) *total = 0;
  Context* context;
  CUresult result = ContextForWork(&context);
  if (result != CUDA_SUCCESS) return result;
  wire::cuMemGetInfo_v2_Reply reply{};
  result = session().CallUnordered(Op::cuMemGetInfo_v2, context->device,
                                   context->id.load(std::memory_order_acquire),
                                   wire::cuMemGetInfo_v2{0}, &reply);
  if (result != CUDA_SUCCESS) return result;
  if (free != nullptr) *free = reply.free;
  if (total != nullptr) *total = reply.total;
  return CUDA_SUCCESS;
}

CUresult cuMemAlloc_v2(CUdeviceptr* dptr, size_t bytesize) { return Allocate(bytesize, dptr); }

CUresult cuMemAllocPitch_v2(CUdeviceptr* dptr, size_t* pPitch, size_t WidthInBytes, size_t Height,
                            unsigned int ElementSizeBytes) {
  // NVIDIA's driver writes 0 on errors, too. It writes the pitch before it looks at the size.
  *dptr = 0;
  *pPitch = 0;
  Context* context;
  CUresult result = ContextForWork(&context);
  if (result != CUDA_SUCCESS) return result;
  if (WidthInBytes == 0 || Height == 0 ||
      (ElementSizeBytes != 4 && ElementSizeBytes != 8 && ElementSizeBytes != 16)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  size_t pitch, bytes;
  if (__builtin_add_overflow(WidthInBytes, kPitchAlignment - 1, &pitch))
    return CUDA_ERROR_INVALID_VALUE;
  pitch &= ~(kPitchAlignment - 1);
  *pPitch = pitch;
  if (__builtin_mul_overflow(pitch, Height, &bytes)) return CUDA_ERROR_INVALID_VALUE;
  return Allocate(bytes, dptr);
}

CUresult cuMemFree_v2(CUdeviceptr dptr) {
  if (const CUresult error = ErrorForUnsafeCall(); error != CUDA_SUCCESS) return error;
  if (dptr == 0) return CUDA_SUCCESS;
  if (CUresult freed; FreeIfGraphMemory(dptr, &freed)) return freed;
  Allocation allocation;
  if (TakeImported(dptr, &allocation)) {
    NotePoolFree(allocation.pool, allocation.bytes);
    wire::cuIpcCloseMemHandle_Reply reply{};
    const CUresult closed =
        session().Call(Op::cuIpcCloseMemHandle, allocation.device, allocation.context,
                       wire::cuIpcCloseMemHandle{dptr}, &reply);
    session().DrainOutput();
    return closed;
  }
  if (!pointers().Take(dptr, MemoryKind::kDevice, &allocation)) return FreeManagedMemory(dptr);
  NotePoolFree(allocation.pool, allocation.bytes);
  const CUresult result = session().Call(Op::cuMemFree_v2, allocation.device, allocation.context,
                                         wire::cuMemFree_v2{dptr});
  // The call waits for earlier work, which may have printed.
  session().DrainOutput();
  return result;
}

CUresult cuMemGetAddressRange_v2(CUdeviceptr* pbase, size_t* psize, CUdeviceptr dptr) {
  // NVIDIA's driver writes 0 on errors, too.
  if (pbase != nullptr) *pbase = 0;
  if (psize != nullptr) *psize = 0;
  Context* context;
  if (const CUresult error = CurrentContext(&context); error != CUDA_SUCCESS) return error;
  if (pbase == nullptr && psize == nullptr) return CUDA_SUCCESS;
  Allocation allocation;
  if (!FindVisibleMemory(dptr, &allocation)) return CUDA_ERROR_NOT_FOUND;
  // Mapped memory has no range for a device that may not access it.
  if (allocation.kind == MemoryKind::kVirtual && allocation.AccessOf(context->device) == 0)
    return CUDA_ERROR_NOT_FOUND;
  // Registered memory has two addresses. The range is the one that `dptr` lies in.
  if (pbase != nullptr) *pbase = allocation.address;
  if (psize != nullptr) *psize = allocation.bytes;
  return CUDA_SUCCESS;
}

// ---- pinned host memory

CUresult cuMemHostAlloc(void** pp, size_t bytesize, unsigned int Flags) {
  *pp = nullptr;  // NVIDIA's driver writes 0 on errors, too.
  Context* context;
  CUresult result = ContextForWork(&context);
  if (result == CUDA_SUCCESS) result = RefuseUnsafeCall();
  if (result != CUDA_SUCCESS) return result;
  constexpr unsigned int kKnown =
      CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED;
  if ((Flags & ~kKnown) != 0) return CUDA_ERROR_INVALID_VALUE;
  if (bytesize == 0) return CUDA_SUCCESS;
  return AllocateHostMemory(*context, MemoryKind::kPinned, bytesize, Flags, pp);
}

CUresult cuMemAllocHost_v2(void** pp, size_t bytesize) {
  return cuMemHostAlloc(pp, bytesize, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP);
}

CUresult cuMemFreeHost(void* p) {
  if (const CUresult error = ErrorForUnsafeCall(); error != CUDA_SUCCESS) return error;
  return p == nullptr ? CUDA_SUCCESS
                      : FreeHostMemory(MemoryKind::kPinned, reinterpret_cast<uint64_t>(p));
}

CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr* pdptr, void* p, unsigned int Flags) {
  *pdptr = 0;  // NVIDIA's driver writes 0 on errors, too.
  Context* context;
  const CUresult result = CurrentContext(&context);
  if (result != CUDA_SUCCESS) return result;
  Allocation allocation;
  if (Flags != 0 || !pointers().Find(reinterpret_cast<uint64_t>(p), &allocation))
    return CUDA_ERROR_INVALID_VALUE;
  // NVIDIA's driver accepts memory of cuMemMap, and returns the beginning of the mapping.
  if (allocation.kind == MemoryKind::kVirtual) {
    *pdptr = allocation.address;
    return CUDA_SUCCESS;
  }
  // Managed memory is no host memory to this call.
  if (!allocation.on_host() || allocation.kind == MemoryKind::kManaged)
    return CUDA_ERROR_INVALID_VALUE;
  if (allocation.gpu_address == 0) return CUDA_ERROR_NOT_SUPPORTED;
  *pdptr = allocation.gpu_address + (reinterpret_cast<uint64_t>(p) - allocation.address);
  return CUDA_SUCCESS;
}

CUresult cuMemHostGetFlags(unsigned int* pFlags, void* p) {
  Context* context;
  if (const CUresult error = CurrentContext(&context); error != CUDA_SUCCESS) return error;
  Allocation allocation;
  if (!pointers().Find(reinterpret_cast<uint64_t>(p), &allocation)) return CUDA_ERROR_INVALID_VALUE;
  // The driver answers for memory of cuMemMap as for pinned memory.
  const bool mapped = allocation.kind == MemoryKind::kVirtual;
  if (!allocation.on_host() && !mapped) return CUDA_ERROR_INVALID_VALUE;
  unsigned int flags = allocation.flags;
  if (allocation.kind == MemoryKind::kPinned || mapped) {
    // With unified addressing all contexts reach it, unless it is write-combined.
    if ((flags & CU_MEMHOSTALLOC_WRITECOMBINED) == 0) flags |= CU_MEMHOSTALLOC_PORTABLE;
  } else {
    // The other flags of a registration are not kept.
    flags &= CU_MEMHOSTREGISTER_PORTABLE;
  }
  // With unified addressing all of the driver's host memory is mapped.
  *pFlags = flags | CU_MEMHOSTALLOC_DEVICEMAP;
  return CUDA_SUCCESS;
}

CUresult cuMemHostRegister_v2(void* p, size_t bytesize, unsigned int Flags) {
  Context* context;
  CUresult result = ContextForWork(&context);
  if (result == CUDA_SUCCESS) result = RefuseUnsafeCall();
  if (result != CUDA_SUCCESS) return result;
  constexpr unsigned int kKnown = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP |
                                  CU_MEMHOSTREGISTER_IOMEMORY | CU_MEMHOSTREGISTER_READ_ONLY;
  if (p == nullptr || bytesize == 0 || (Flags & ~kKnown) != 0) return CUDA_ERROR_INVALID_VALUE;
  return RegisterHostMemory(*context, p, bytesize, Flags);
}

CUresult cuMemHostUnregister(void* p) {
  if (const CUresult error = ErrorForUnsafeCall(); error != CUDA_SUCCESS) return error;
  return p == nullptr ? CUDA_ERROR_INVALID_VALUE : UnregisterHostMemory(p);
}

}  // namespace detshare::shim::api
