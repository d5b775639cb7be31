// Memory pools. The daemon knows what a pool has reserved; the shim has everything else. An
// imported pool exists only in the shim: it says which pointers may be imported.
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

// A CUmemoryPool. Any thread may use it.
struct MemoryPool {
  uint64_t handle = 0;
  uint32_t index = 0;
  uint16_t device = 0;
  PoolId id = 0;  // among the pools of the device; 0: an imported pool
  bool is_default = false;
  bool imported = false;
  int handle_types = 0;  // CUmemAllocationHandleType: what the pool can be exported as
  // Two bits of CUmemAccess_flags for each device. Relaxed: only queries read it.
  std::atomic<uint32_t> access{0};
  // Whether the pool was exported. Pointers can be exported only after that.
  std::atomic<bool> exported{false};
  // The pool's name in other processes; zero until it is exported. Guarded by the mutex of
  // api/pool_sharing.cc.
  std::array<uint8_t, 16> identity{};
  std::atomic<uint64_t> release_threshold{0};
  std::atomic<int> reuse_follow{1}, reuse_opportunistic{1}, reuse_internal{1};
  std::atomic<uint64_t> used{0}, used_high{0};
};
HandleTable<MemoryPool>& memory_pools();

// Called once, at initialisation.
void CreateDefaultMemoryPools();

MemoryPool& DefaultPool(uint16_t device);
// The pool from which cuMemAllocAsync allocates.
MemoryPool& CurrentPool(uint16_t device);
void SetCurrentPool(uint16_t device, MemoryPool& pool);

inline MemoryPool* FindPool(CUmemoryPool handle) {
  return memory_pools().Find(HandleKind::kMemoryPool, reinterpret_cast<uint64_t>(handle));
}
// Makes a pool of the device in the daemon, and its handle.
CUresult CreatePool(uint16_t device, const CUmemPoolProps& properties, CUmemoryPool* handle);
// Makes a handle of another process's pool. The daemon is not asked.
CUresult ImportPool(uint16_t device, const std::array<uint8_t, 16>& identity, CUmemoryPool* handle);
// CUDA_ERROR_INVALID_VALUE: a default pool, or no pool. A device whose current pool it was gets its
// default pool as its current one.
CUresult DestroyPool(CUmemoryPool handle);

// Allocates memory in the stream's order. CUDA_ERROR_INVALID_VALUE: the pool is imported.
// CUDA_ERROR_NOT_SUPPORTED: pool and stream are on different devices.
CUresult AllocateFromPool(MemoryPool& pool, uint64_t bytes, Stream& stream, CUdeviceptr* address);
// Count an allocation from a pool, and its return. `pool` of NotePoolFree is a handle; 0: none.
void NotePoolAllocation(MemoryPool& pool, uint64_t bytes);
void NotePoolFree(uint64_t pool, uint64_t bytes);
// Takes memory of an imported pool out of the pointer map. Returns false if none begins at the
// address. The caller then closes it (cuIpcCloseMemHandle).
bool TakeImported(CUdeviceptr address, Allocation* allocation);

}  // namespace detshare::shim
