// Memory pools. What a pool has reserved the daemon knows, the rest is here. An imported pool is
// only here: it says which pointers may be imported.
#pragma once

#include <array>

#include "client_shim/contexts.h"
#include "client_shim/objects.h"
#include "client_shim/pointer_map.h"

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
CUresult CreatePool(uint16_t device, const CUmemPoolProps& properties, CUmemoryPool* handle);
CUresult ImportPool(uint16_t device, const std::array<uint8_t, 16>& identity, CUmemoryPool* handle);
CUresult DestroyPool(CUmemoryPool handle);

CUresult AllocateFromPool(MemoryPool& pool, uint64_t bytes, Stream& stream, CUdeviceptr* address);
// An allocation came from a pool, or went back.
void NotePoolAllocation(MemoryPool& pool, uint64_t bytes);
void NotePoolFree(uint64_t pool, uint64_t bytes);
// Takes memory of an imported pool out of the pointer map. False when none begins there. Whoever
// takes it closes it (cuIpcCloseMemHandle).
bool TakeImported(CUdeviceptr address, Allocation* allocation);

}  // namespace detshare::shim
