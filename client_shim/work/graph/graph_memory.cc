#include "client_shim/work/graph/graph_memory.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <limits>
#include <map>
#include <mutex>
#include <vector>

#include "client_shim/transport/session.h"
#include "proto/wire/memory.h"

namespace detshare::shim {
namespace {

struct Registry {
  std::mutex mutex;  // guards the rest; a GraphMemory and a block take it when they end
  std::map<uint64_t, std::weak_ptr<GraphMemory>> by_address;
  std::map<uint64_t, std::shared_ptr<GraphMemory>> allocated;
  std::array<GraphMemoryUse, kMaxDevices> use;
};
Registry& registry() {
  static Registry* const all = new Registry;
  return *all;
}
// The number of memories. Programs without any pay one load when they free memory.
std::atomic<uint64_t> g_count{0};

constexpr uint64_t kPoolStep = 32 << 20;

// Small allocations share a block of this size, which is what the driver takes from the card.
constexpr uint64_t kBlockStep = 2 << 20;

uint64_t PoolFor(uint64_t bytes) { return RoundUp(bytes, kPoolStep); }

// Needs the registry's mutex.
void CountUse(GraphMemoryBlock& block) {
  if (block.used) return;
  block.used = true;
  GraphMemoryUse& use = registry().use[block.context.device];
  use.launched += block.bytes;
  use.pool = std::max(use.pool, PoolFor(use.launched));
  use.used_high = std::max(use.used_high, use.pool);
  use.reserved_high = std::max(use.reserved_high, use.pool);
}

CUresult MakeBlock(const NodeContext& context, uint64_t bytes,
                   std::shared_ptr<GraphMemoryBlock>* block) {
  wire::cuMemAlloc_v2_Reply reply{};
  const CUresult result = session().CallUnordered(Op::cuMemAlloc_v2, context.device, context.id,
                                                  wire::cuMemAlloc_v2{bytes}, &reply);
  if (result != CUDA_SUCCESS) return result;
  Allocation allocation;
  allocation.kind = MemoryKind::kDevice;
  allocation.device = context.device;
  allocation.context = context.id;
  allocation.context_handle = reinterpret_cast<uint64_t>(context.handle);
  allocation.address = allocation.gpu_address = reply.address;
  allocation.bytes = bytes;
  allocation.of_graph = true;
  pointers().Add(allocation);
  auto made = std::make_shared<GraphMemoryBlock>();
  made->context = context;
  made->address = reply.address;
  made->bytes = bytes;
  *block = std::move(made);
  return CUDA_SUCCESS;
}

}  // namespace

GraphMemoryBlock::~GraphMemoryBlock() {
  if (address == 0) return;
  if (used) {
    const std::lock_guard lock(registry().mutex);
    registry().use[context.device].launched -= bytes;
  }
  // A context that ended has ended its memory, and other memory may have the address since.
  pointers().TakeAndFree(
      address, MemoryKind::kDevice, context.id, [this](const Allocation& allocation) {
        session().Submit(Op::cuMemFree_v2, context.device, context.id, wire::cuMemFree_v2{address});
      });
}

GraphMemory::~GraphMemory() {
  if (address == 0) return;
  g_count.fetch_sub(1, std::memory_order_relaxed);
  const std::lock_guard lock(registry().mutex);
  const auto found = registry().by_address.find(address);
  // Another allocation may have the address since.
  if (found != registry().by_address.end() && found->second.expired())
    registry().by_address.erase(found);
}

CUresult PlaceGraphMemory(const std::shared_ptr<GraphMemory>& memory, GraphMemoryRoom room) {
  if (room.block == nullptr) {
    if (memory->bytes > std::numeric_limits<uint64_t>::max() - kBlockStep)
      return CUDA_ERROR_OUT_OF_MEMORY;
    const CUresult result =
        MakeBlock(memory->context, RoundUp(memory->bytes, kBlockStep), &room.block);
    if (result != CUDA_SUCCESS) return result;
    room.offset = 0;
  }
  memory->address = room.block->address + room.offset;
  memory->block = std::move(room.block);
  const std::lock_guard lock(registry().mutex);
  registry().by_address[memory->address] = memory;
  g_count.fetch_add(1, std::memory_order_relaxed);
  return CUDA_SUCCESS;
}

std::shared_ptr<GraphMemory> FindGraphMemory(uint64_t address) {
  const std::lock_guard lock(registry().mutex);
  const auto found = registry().by_address.find(address);
  return found == registry().by_address.end() ? nullptr : found->second.lock();
}

bool IsAllocated(const GraphMemory& memory) {
  const std::lock_guard lock(registry().mutex);
  return registry().allocated.contains(memory.address);
}

// The caller holds a reference, so no memory ends here, under the lock.
void SetAllocated(const std::shared_ptr<GraphMemory>& memory, bool allocated) {
  const std::lock_guard lock(registry().mutex);
  if (allocated) {
    registry().allocated[memory->address] = memory;
    CountUse(*memory->block);
  } else {
    registry().allocated.erase(memory->address);
  }
}

void NoteUse(GraphMemory& memory) {
  const std::lock_guard lock(registry().mutex);
  CountUse(*memory.block);
}

bool FreeIfGraphMemory(uint64_t address, CUresult* result) {
  if (g_count.load(std::memory_order_relaxed) == 0) return false;
  const std::shared_ptr<GraphMemory> memory = FindGraphMemory(address);
  if (memory == nullptr) return false;
  *result = IsAllocated(*memory) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  SetAllocated(memory, false);
  return true;
}

bool FindVisibleMemory(uint64_t address, Allocation* found) {
  if (!pointers().Find(address, found)) return false;
  if (!found->of_graph) return true;
  const std::lock_guard lock(registry().mutex);
  const auto& allocated = registry().allocated;
  auto part = allocated.upper_bound(address);
  if (part == allocated.begin()) return false;
  const GraphMemory& memory = *(--part)->second;
  if (address - memory.address >= memory.bytes) return false;
  found->address = found->gpu_address = memory.address;
  found->bytes = memory.bytes;
  return true;
}

GraphMemoryUse UseOfGraphMemory(uint16_t device) {
  const std::lock_guard lock(registry().mutex);
  return registry().use[device];
}

void TrimGraphMemory(uint16_t device) {
  const std::lock_guard lock(registry().mutex);
  GraphMemoryUse& use = registry().use[device];
  use.pool = PoolFor(use.launched);
}

void ResetUsedGraphMemoryHigh(uint16_t device) {
  const std::lock_guard lock(registry().mutex);
  GraphMemoryUse& use = registry().use[device];
  use.used_high = use.pool;
}

void ResetReservedGraphMemoryHigh(uint16_t device) {
  const std::lock_guard lock(registry().mutex);
  GraphMemoryUse& use = registry().use[device];
  use.reserved_high = use.pool;
}

void ForgetGraphMemory(ContextId context) {
  std::vector<std::shared_ptr<GraphMemory>> ended;  // outlives the lock
  const std::lock_guard lock(registry().mutex);
  const auto ends = [&](std::shared_ptr<GraphMemory> memory) {
    if (memory == nullptr) return false;  // it ends now, and removes its entry itself
    const bool its = memory->context.id == context;
    ended.push_back(std::move(memory));
    return its;
  };
  std::erase_if(registry().allocated, [&](const auto& entry) { return ends(entry.second); });
  // Graphs may keep the memory, but other memory may have the address from now on.
  std::erase_if(registry().by_address,
                [&](const auto& entry) { return ends(entry.second.lock()); });
}

}  // namespace detshare::shim
