#include "client_shim/memory/memory_pools.h"

#include "client_shim/memory/pointer_map.h"
#include "client_shim/transport/session.h"
#include "proto/wire/memory.h"
#include "proto/wire/virtual_memory.h"

namespace detshare::shim {
namespace {

MemoryPool* g_default[kMaxDevices];
std::atomic<MemoryPool*> g_current[kMaxDevices];

MemoryPool* MakePool(uint16_t device, bool is_default) {
  uint32_t index;
  MemoryPool* pool = memory_pools().Reserve(&index);
  if (pool == nullptr) return nullptr;
  pool->index = index;
  pool->device = device;
  pool->is_default = is_default;
  pool->release_threshold.store(0, std::memory_order_relaxed);
  pool->reuse_follow.store(1, std::memory_order_relaxed);
  pool->reuse_opportunistic.store(1, std::memory_order_relaxed);
  pool->reuse_internal.store(1, std::memory_order_relaxed);
  pool->used.store(0, std::memory_order_relaxed);
  pool->used_high.store(0, std::memory_order_relaxed);
  pool->id = is_default ? wire::kDefaultPool : 0;
  pool->imported = false;
  pool->handle_types = CU_MEM_HANDLE_TYPE_NONE;
  pool->identity = {};
  pool->exported.store(false, std::memory_order_relaxed);
  pool->access.store(uint32_t{CU_MEM_ACCESS_FLAGS_PROT_READWRITE} << (2 * device),
                     std::memory_order_relaxed);
  pool->handle = memory_pools().Publish(HandleKind::kMemoryPool, index);
  return pool;
}

}  // namespace

HandleTable<MemoryPool>& memory_pools() {
  static auto* const table = new HandleTable<MemoryPool>;
  return *table;
}

void CreateDefaultMemoryPools() {
  for (size_t i = 0; i < session().devices().size(); ++i) {
    g_default[i] = MakePool(static_cast<uint16_t>(i), true);
    g_current[i].store(g_default[i], std::memory_order_relaxed);
  }
}

MemoryPool& DefaultPool(uint16_t device) { return *g_default[device]; }
MemoryPool& CurrentPool(uint16_t device) {
  return *g_current[device].load(std::memory_order_acquire);
}
void SetCurrentPool(uint16_t device, MemoryPool& pool) {
  g_current[device].store(&pool, std::memory_order_release);
}

CUresult CreatePool(uint16_t device, const CUmemPoolProps& properties, CUmemoryPool* handle) {
  // Ids are never reused, because the daemon keeps a pool's id until its memory is free.
  static std::atomic<PoolId> next_id{wire::kDefaultPool + 1};
  const PoolId id = next_id.fetch_add(1, std::memory_order_relaxed);
  // A pool grows in units of physical memory, so a limit is rounded up to whole ones.
  const uint64_t partial = properties.maxSize % wire::kPhysicalUnit;
  const uint64_t limit = properties.maxSize + (partial != 0 ? wire::kPhysicalUnit - partial : 0);
  const CUresult result =
      session().Call(Op::cuMemPoolCreate, device, 0, wire::cuMemPoolCreate{limit, id, 0});
  if (result != CUDA_SUCCESS) return result;
  MemoryPool* pool = MakePool(device, false);
  if (pool == nullptr) {
    session().Call(Op::cuMemPoolDestroy, device, 0, wire::cuMemPoolDestroy{id, 0});
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  pool->id = id;
  pool->handle_types = properties.handleTypes;
  *handle = reinterpret_cast<CUmemoryPool>(pool->handle);
  return CUDA_SUCCESS;
}

CUresult ImportPool(uint16_t device, const std::array<uint8_t, 16>& identity,
                    CUmemoryPool* handle) {
  MemoryPool* pool = MakePool(device, false);
  if (pool == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  pool->imported = true;
  pool->identity = identity;
  *handle = reinterpret_cast<CUmemoryPool>(pool->handle);
  return CUDA_SUCCESS;
}

CUresult DestroyPool(CUmemoryPool handle) {
  MemoryPool* pool = FindPool(handle);
  if (pool == nullptr || pool->is_default) return CUDA_ERROR_INVALID_VALUE;
  // A device whose current pool ends goes back to its default pool.
  MemoryPool* expected = pool;
  g_current[pool->device].compare_exchange_strong(expected, g_default[pool->device]);
  const uint16_t device = pool->device;
  const PoolId id = pool->id;
  if (!memory_pools().Retire(reinterpret_cast<uint64_t>(handle))) return CUDA_ERROR_INVALID_VALUE;
  memory_pools().Recycle(pool->index);
  if (id == 0) return CUDA_SUCCESS;
  return session().Call(Op::cuMemPoolDestroy, device, 0, wire::cuMemPoolDestroy{id, 0});
}

CUresult AllocateFromPool(MemoryPool& pool, uint64_t bytes, Stream& stream, CUdeviceptr* address) {
  if (pool.imported) return CUDA_ERROR_INVALID_VALUE;
  *address = 0;  // NVIDIA's driver writes 0 also where no memory is left.
  if (bytes == 0) return CUDA_SUCCESS;
  if (pool.device != stream.device) return CUDA_ERROR_NOT_SUPPORTED;  // access between devices
  wire::cuMemAllocAsync_Reply reply{};
  const CUresult result = session().Call(Op::cuMemAllocAsync, stream.device, stream.context_id,
                                         wire::cuMemAllocAsync{bytes, stream.id, pool.id}, &reply);
  if (result != CUDA_SUCCESS) return result;
  Allocation allocation;
  allocation.kind = MemoryKind::kDevice;
  allocation.device = stream.device;
  allocation.context = stream.context_id;
  allocation.context_handle = stream.context->handle.load(std::memory_order_relaxed);
  allocation.address = allocation.gpu_address = reply.address;
  allocation.bytes = bytes;
  allocation.pool = pool.handle;
  allocation.handle_types = pool.handle_types;
  pointers().Add(allocation);
  NotePoolAllocation(pool, bytes);
  *address = reply.address;
  return CUDA_SUCCESS;
}

void NotePoolAllocation(MemoryPool& pool, uint64_t bytes) {
  RaiseTo(pool.used_high, pool.used.fetch_add(bytes, std::memory_order_relaxed) + bytes);
}

void NotePoolFree(uint64_t handle, uint64_t bytes) {
  if (handle == 0) return;
  MemoryPool* pool = memory_pools().Find(HandleKind::kMemoryPool, handle);
  if (pool != nullptr) pool->used.fetch_sub(bytes, std::memory_order_relaxed);
}

bool TakeImported(CUdeviceptr address, Allocation* allocation) {
  return pointers().Find(address, allocation) && allocation->kind == MemoryKind::kOpened &&
         allocation->pool != 0 && allocation->address == address &&
         pointers().Take(address, MemoryKind::kOpened, allocation);
}

}  // namespace detshare::shim
