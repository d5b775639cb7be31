// Memory pools. What a pool has reserved the daemon knows, the rest is here. An imported pool is
// only here: it says which pointers may be imported.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "client_shim/base/handle_table.h"
#include "client_shim/memory/pointer_map.h"
#include "client_shim/objects/objects.h"
#include "proto/driver_api/cuda_unrenamed.h"
#include "proto/wire/memory.h"

namespace detshare::shim {

struct MemoryPool {
  uint64_t handle = 0;
  uint32_t index = 0;
  uint16_t device = 0;
  PoolId id = 0;  // of the device; 0: an imported one
  bool is_default = false;
  bool imported = false;
  int handle_types = 0;  // CUmemAllocationHandleType: what it can be exported as
  // Two bits of CUmemAccess_flags a device. Relaxed: for those who ask.
  std::atomic<uint32_t> access{0};
  // What names it in other processes; zero as long as nobody asked. Guarded by the mutex of
  // api/pool_sharing.cc.
  std::array<uint8_t, 16> identity{};
  std::atomic<uint64_t> release_threshold{0};
  std::atomic<int> reuse_follow{1}, reuse_opportunistic{1}, reuse_internal{1};
  std::atomic<uint64_t> used{0}, used_high{0};
};
HandleTable<MemoryPool>& memory_pools();

// At initialisation, once.
void CreateDefaultMemoryPools();

MemoryPool& DefaultPool(uint16_t device);
// The pool that cuMemAllocAsync takes from.
MemoryPool& CurrentPool(uint16_t device);
void SetCurrentPool(uint16_t device, MemoryPool& pool);

inline MemoryPool* FindPool(CUmemoryPool handle) {
  return memory_pools().Find(HandleKind::kMemoryPool, reinterpret_cast<uint64_t>(handle));
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
