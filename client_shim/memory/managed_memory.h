// Managed memory: CPU and GPU always see it at one address, as on a device with concurrent access.
//
// Its pages move between them if the daemon offers such memory and has room for it. Else it is pinned
// host memory, where prefetching and advice change only what later queries about them return.
#pragma once

#include <cstdint>

#include "client_shim/objects/objects.h"
#include "proto/driver_api/cuda_unrenamed.h"

namespace detshare::shim {

// Allocates managed memory in the context, without advice. Errors as AllocateHostMemory.
CUresult AllocateManagedMemory(Context& context, uint64_t bytes, CUdeviceptr* address);
// Waits for the context's work. CUDA_ERROR_INVALID_VALUE: no managed allocation begins at the
// address; a variable of a library is none.
CUresult FreeManagedMemory(CUdeviceptr address);
// Unmaps the small allocations of a context that ends. Its work is complete.
void ForgetManagedPieces(ContextId context);
// Whether [address, address + bytes) lies in one allocation of managed memory.
bool IsManagedMemory(uint64_t address, uint64_t bytes);
// The number of bytes of the range that advice may be about, or 0. NVIDIA's driver allocates
// managed memory in blocks. Advice may reach beyond the allocation, to the end of its last block.
uint64_t AdvisableBytes(uint64_t address, uint64_t bytes);

// The program's latest advice about a part of managed memory.
struct MemoryAdvice {
  static constexpr CUmemLocation kNowhere{CU_MEM_LOCATION_TYPE_INVALID, CU_DEVICE_INVALID};
  bool read_mostly = false;
  bool accessed_by_host = false;
  uint32_t accessed_by = 0;  // one bit for each device
  CUmemLocation preferred = kNowhere;
  CUmemLocation prefetched = kNowhere;
  // The same as numbers: a device, CU_DEVICE_CPU for all locations of the host, CU_DEVICE_INVALID
  // for none.
  CUdevice preferred_number = CU_DEVICE_INVALID;
  CUdevice prefetched_number = CU_DEVICE_INVALID;
};

// Record a prefetch or advice, for all pages that the range touches. The caller has checked that
// the range is managed memory and that the location is valid. CUDA_ERROR_INVALID_VALUE: an unknown
// advice.
void NotePrefetch(uint64_t address, uint64_t bytes, const CUmemLocation& location);
CUresult NoteAdvice(uint64_t address, uint64_t bytes, CUmem_advise advice,
                    const CUmemLocation& location);
// The advice that holds for all of the range. A location is given only where it is the same
// everywhere.
MemoryAdvice AdviceOf(uint64_t address, uint64_t bytes);

}  // namespace detshare::shim
