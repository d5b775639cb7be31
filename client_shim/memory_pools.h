// Memory pools. The daemon knows none: an allocation from a pool is an allocation of the session,
// and a pool is what the client remembers about them.
#pragma once

#include "client_shim/contexts.h"
#include "client_shim/objects.h"

namespace detshare::shim {

// At initialisation, once.
void CreateDefaultMemoryPools();

MemoryPool& DefaultPool(uint16_t device);
// The pool that cuMemAllocAsync takes from.
MemoryPool& CurrentPool(uint16_t device);
void SetCurrentPool(uint16_t device, MemoryPool& pool);

inline MemoryPool* FindPool(CUmemoryPool handle) {
  return objects().pools.Find(HandleKind::kMemoryPool, reinterpret_cast<uint64_t>(handle));
}
CUresult CreatePool(uint16_t device, CUmemoryPool* handle);
CUresult DestroyPool(CUmemoryPool handle);

CUresult AllocateFromPool(MemoryPool& pool, uint64_t bytes, Stream& stream, CUdeviceptr* address);
// An allocation that came from a pool went back.
void NotePoolFree(uint64_t pool, uint64_t bytes);

}  // namespace detshare::shim
