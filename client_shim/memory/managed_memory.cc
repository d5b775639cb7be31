#include "client_shim/memory/managed_memory.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <mutex>

#include "client_shim/memory/host_memory.h"
#include "client_shim/memory/managed_mapping.h"
#include "client_shim/memory/piece_pool.h"
#include "client_shim/memory/pointer_map.h"
#include "client_shim/objects/waits.h"
#include "client_shim/transport/session.h"
#include "proto/wire/memory.h"

namespace detshare::shim {
namespace {

constexpr uint64_t kBlockBytes = uint64_t{2} << 20;

bool Same(const CUmemLocation& a, const CUmemLocation& b) {
  return a.type == b.type && a.id == b.id;
}

CUdevice NumberOf(const CUmemLocation& location) {
  if (location.type == CU_MEM_LOCATION_TYPE_DEVICE) return location.id;
  return location.type == CU_MEM_LOCATION_TYPE_INVALID ? CU_DEVICE_INVALID : CU_DEVICE_CPU;
}

// The location as later queries read it. The host has one id. NVIDIA's driver does not remember the
// node of the calling thread.
CUmemLocation Kept(const CUmemLocation& location) {
  if (location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT) return MemoryAdvice::kNowhere;
  CUmemLocation kept = location;
  if (location.type == CU_MEM_LOCATION_TYPE_HOST) kept.id = CU_DEVICE_CPU;
  return kept;
}

// Advice by address: an entry holds up to the next one. Memory without advice has the default.
struct AdviceMap {
  std::mutex mutex;  // guards the rest
  std::map<uint64_t, MemoryAdvice> from{{0, MemoryAdvice()}};

  using Iterator = std::map<uint64_t, MemoryAdvice>::iterator;

  // The entry that begins at `address`. Makes it if there is none.
  Iterator Cut(uint64_t address) {
    const auto next = from.upper_bound(address);
    const auto before = std::prev(next);
    if (before->first == address) return before;
    return from.emplace_hint(next, address, before->second);
  }
  template <typename Change>
  void ForRange(uint64_t address, uint64_t bytes, Change change) {
    constexpr uint64_t kMask = kPageBytes - 1;
    const Iterator end = Cut((address + bytes + kMask) & ~kMask);
    for (Iterator entry = Cut(address & ~kMask); entry != end; ++entry) change(entry->second);
  }
  void Forget(uint64_t address, uint64_t bytes) {
    const Iterator end = Cut(address + bytes);
    const Iterator begin = Cut(address);
    begin->second = MemoryAdvice();
    from.erase(std::next(begin), end);
  }
};

AdviceMap& advice() {
  static AdviceMap* const map = new AdviceMap;
  return *map;
}

PiecePool& managed_pieces() {
  static PiecePool* const pool = new PiecePool(MapManaged);
  return *pool;
}

// Allocates memory whose pages move. Returns false if there is none.
bool AllocateMoving(Context& context, uint64_t bytes, Allocation* allocation) {
  PiecePool::Piece piece;
  if (bytes <= PiecePool::kSmallBytes) {
    if (managed_pieces().Allocate(context, bytes, PiecePool::kBlockBytes, &piece) != CUDA_SUCCESS)
      return false;
    allocation->piece = true;
  } else {
    if (MapManaged(context, bytes, &piece.block) != CUDA_SUCCESS) return false;
    allocation->mapping = piece.address = piece.block.address;
  }
  allocation->address = piece.address;
  allocation->window = piece.block.address;
  allocation->mapping_bytes = piece.block.bytes;
  allocation->kind = MemoryKind::kManaged;
  allocation->device = context.device;
  allocation->context = context.id.load(std::memory_order_relaxed);
  allocation->context_handle = context.handle.load(std::memory_order_relaxed);
  allocation->gpu_address = allocation->host_address = allocation->address;
  allocation->bytes = bytes;
  allocation->migrates = true;
  return true;
}

CUresult FreeMoving(CUdeviceptr address) {
  Allocation allocation;
  if (!pointers().Take(address, MemoryKind::kManaged, &allocation)) return CUDA_ERROR_INVALID_VALUE;
  // The pages are gone with the mapping, and earlier work may still use them.
  SynchronizeContexts();
  if (allocation.piece && managed_pieces().Free(allocation.context, address, allocation.bytes) == 0)
    return session().sticky_error();
  UnmapHostMemory(allocation);
  return session().Call(Op::cuMemFreeHost, allocation.device, allocation.context,
                        wire::cuMemFreeHost{allocation.window});
}

}  // namespace

CUresult AllocateManagedMemory(Context& context, uint64_t bytes, CUdeviceptr* address) {
  if (Allocation allocation; AllocateMoving(context, bytes, &allocation)) {
    pointers().Add(allocation);
    *address = allocation.address;
  } else {
    void* memory;
    const CUresult result =
        AllocateHostMemory(context, MemoryKind::kManaged, bytes, /*flags=*/0, &memory);
    if (result != CUDA_SUCCESS) return result;
    *address = reinterpret_cast<CUdeviceptr>(memory);
  }
  const std::lock_guard lock(advice().mutex);
  advice().Forget(*address, bytes);
  return CUDA_SUCCESS;
}

CUresult FreeManagedMemory(CUdeviceptr address) {
  Allocation allocation;
  // A variable of a library has no memory of its own to free.
  if (!pointers().Find(address, &allocation) || allocation.window == 0)
    return CUDA_ERROR_INVALID_VALUE;
  const CUresult result =
      allocation.migrates ? FreeMoving(address) : FreeHostMemory(MemoryKind::kManaged, address);
  session().DrainOutput();
  return result;
}

void ForgetManagedPieces(ContextId context) { managed_pieces().Forget(context); }

bool IsManagedMemory(uint64_t address, uint64_t bytes) {
  Allocation allocation;
  return bytes != 0 && pointers().Find(address, &allocation) &&
         allocation.kind == MemoryKind::kManaged &&
         bytes <= allocation.bytes - (address - allocation.address);
}

uint64_t AdvisableBytes(uint64_t address, uint64_t bytes) {
  Allocation allocation;
  if (bytes == 0 || !pointers().Find(address, &allocation) ||
      allocation.kind != MemoryKind::kManaged) {
    return 0;
  }
  const uint64_t offset = address - allocation.address;
  const uint64_t blocks = (allocation.bytes + kBlockBytes - 1) / kBlockBytes * kBlockBytes;
  return bytes <= blocks - offset ? std::min(bytes, allocation.bytes - offset) : 0;
}

void NotePrefetch(uint64_t address, uint64_t bytes, const CUmemLocation& location) {
  const CUmemLocation kept = Kept(location);
  const std::lock_guard lock(advice().mutex);
  advice().ForRange(address, bytes, [&](MemoryAdvice& one) {
    one.prefetched = kept;
    one.prefetched_number = NumberOf(kept);
  });
}

CUresult NoteAdvice(uint64_t address, uint64_t bytes, CUmem_advise what,
                    const CUmemLocation& location) {
  const bool host = location.type != CU_MEM_LOCATION_TYPE_DEVICE;
  const uint32_t device = host ? 0 : uint32_t{1} << location.id;
  const std::lock_guard lock(advice().mutex);
  const auto change = [&](auto apply) { advice().ForRange(address, bytes, apply); };
  switch (what) {
    case CU_MEM_ADVISE_SET_READ_MOSTLY:
      change([](MemoryAdvice& one) { one.read_mostly = true; });
      return CUDA_SUCCESS;
    case CU_MEM_ADVISE_UNSET_READ_MOSTLY:
      change([](MemoryAdvice& one) { one.read_mostly = false; });
      return CUDA_SUCCESS;
    case CU_MEM_ADVISE_SET_PREFERRED_LOCATION:
      change([&](MemoryAdvice& one) {
        one.preferred = Kept(location);
        one.preferred_number = NumberOf(one.preferred);
      });
      return CUDA_SUCCESS;
    case CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION:
      change([](MemoryAdvice& one) {
        one.preferred = MemoryAdvice::kNowhere;
        one.preferred_number = CU_DEVICE_INVALID;
      });
      return CUDA_SUCCESS;
    case CU_MEM_ADVISE_SET_ACCESSED_BY:
      change([&](MemoryAdvice& one) {
        one.accessed_by |= device;
        one.accessed_by_host |= host;
      });
      return CUDA_SUCCESS;
    case CU_MEM_ADVISE_UNSET_ACCESSED_BY:
      change([&](MemoryAdvice& one) {
        one.accessed_by &= ~device;
        if (host) one.accessed_by_host = false;
      });
      return CUDA_SUCCESS;
  }
  return CUDA_ERROR_INVALID_VALUE;
}

MemoryAdvice AdviceOf(uint64_t address, uint64_t bytes) {
  const std::lock_guard lock(advice().mutex);
  auto entry = std::prev(advice().from.upper_bound(address));
  MemoryAdvice all = entry->second;
  for (++entry; entry != advice().from.end() && entry->first - address < bytes; ++entry) {
    const MemoryAdvice& one = entry->second;
    all.read_mostly &= one.read_mostly;
    all.accessed_by_host &= one.accessed_by_host;
    all.accessed_by &= one.accessed_by;
    if (!Same(all.preferred, one.preferred)) all.preferred = MemoryAdvice::kNowhere;
    if (all.preferred_number != one.preferred_number) all.preferred_number = CU_DEVICE_INVALID;
    // The host and a node of the host are two places, although both have the number of the CPU.
    if (!Same(all.prefetched, one.prefetched)) {
      all.prefetched = MemoryAdvice::kNowhere;
      all.prefetched_number = CU_DEVICE_INVALID;
    }
  }
  return all;
}

}  // namespace detshare::shim
