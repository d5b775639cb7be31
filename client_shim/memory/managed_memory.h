// Managed memory: host memory that CPU and GPU see at one address, always, as on a device with
// concurrent access. It never migrates, so prefetching and advice change nothing but what is asked
// back about them.
#pragma once

#include <cstdint>

#include "client_shim/objects/objects.h"
#include "proto/driver_api/cuda_unrenamed.h"

namespace detshare::shim {

CUresult AllocateManagedMemory(Context& context, uint64_t bytes, CUdeviceptr* address);
// CUDA_ERROR_INVALID_VALUE when no managed memory begins there. Waits for the context's work.
CUresult FreeManagedMemory(CUdeviceptr address);
// Whether [address, address + bytes) lies in one allocation of managed memory.
bool IsManagedMemory(uint64_t address, uint64_t bytes);

// What was said last about a part of managed memory.
struct MemoryAdvice {
  static constexpr CUmemLocation kNowhere{CU_MEM_LOCATION_TYPE_INVALID, CU_DEVICE_INVALID};
  bool read_mostly = false;
  bool accessed_by_host = false;
  uint32_t accessed_by = 0;  // a bit a device
  CUmemLocation preferred = kNowhere;
  CUmemLocation prefetched = kNowhere;
};

// The range is managed memory and the location valid.
void NotePrefetch(uint64_t address, uint64_t bytes, const CUmemLocation& location);
CUresult NoteAdvice(uint64_t address, uint64_t bytes, CUmem_advise advice,
                    const CUmemLocation& location);
// What holds for all of the range: a location only where it is the same everywhere.
MemoryAdvice AdviceOf(uint64_t address, uint64_t bytes);

}  // namespace detshare::shim
