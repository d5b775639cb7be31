#include "client_shim/memory/pointer_map.h"

#include <algorithm>
#include <iterator>
#include <mutex>

namespace detshare::shim {

PointerMap& pointers() {
  static PointerMap* const map = new PointerMap;
  return *map;
}

const Allocation* PointerMap::Holding(uint64_t address) const {
  auto after = by_address_.upper_bound(address);
  if (after == by_address_.begin()) return nullptr;
  const Allocation& candidate = std::prev(after)->second;
  return address - candidate.address < std::max<uint64_t>(candidate.bytes, 1) ? &candidate
                                                                              : nullptr;
}

void PointerMap::Insert(Allocation& allocation) {
  allocation.buffer_id = next_buffer_id_++;
  // NVIDIA's driver sets the attribute by itself, except for memory that belongs to the host.
  allocation.sync_memops =
      allocation.kind == MemoryKind::kManaged ||
      (allocation.on_device() && without_sync_memops_.count(allocation.device) == 0);
  by_address_[allocation.address] = allocation;
}

void PointerMap::Add(Allocation allocation) {
  const std::unique_lock lock(mutex_);
  Insert(allocation);
}

bool PointerMap::AddUnlessOverlapping(Allocation allocation) {
  const std::unique_lock lock(mutex_);
  if (Holding(allocation.address) != nullptr) return false;
  const auto next = by_address_.lower_bound(allocation.address);
  if (next != by_address_.end() && next->first - allocation.address < allocation.bytes)
    return false;
  Insert(allocation);
  return true;
}

bool PointerMap::Find(uint64_t address, Allocation* found) const {
  const std::shared_lock lock(mutex_);
  const Allocation* holding = Holding(address);
  if (holding == nullptr) return false;
  *found = *holding;
  return true;
}

bool PointerMap::Take(uint64_t address, MemoryKind kind, Allocation* taken) {
  const std::unique_lock lock(mutex_);
  const auto it = by_address_.find(address);
  if (it == by_address_.end() || it->second.kind != kind) return false;
  *taken = it->second;
  by_address_.erase(it);
  return true;
}

bool PointerMap::TakeOf(ContextId context, uint64_t address, MemoryKind kind, Allocation* taken) {
  const std::unique_lock lock(mutex_);
  const auto it = by_address_.find(address);
  if (it == by_address_.end() || it->second.kind != kind || it->second.context != context)
    return false;
  *taken = it->second;
  by_address_.erase(it);
  return true;
}

bool PointerMap::SetSyncMemops(uint64_t address, bool value) {
  const std::unique_lock lock(mutex_);
  const Allocation* holding = Holding(address);
  if (holding == nullptr) return false;
  const_cast<Allocation*>(holding)->sync_memops = value;
  return true;
}

void PointerMap::SetSyncMemopsOfDevice(uint16_t device, bool value) {
  const std::unique_lock lock(mutex_);
  if (value) {
    without_sync_memops_.erase(device);
  } else {
    without_sync_memops_.insert(device);
  }
  for (auto& [address, allocation] : by_address_) {
    if (allocation.on_device() && allocation.device == device) allocation.sync_memops = value;
  }
}

void PointerMap::SetAccess(uint64_t address, uint32_t mask, uint32_t access) {
  const std::unique_lock lock(mutex_);
  const auto it = by_address_.find(address);
  if (it == by_address_.end() || it->second.kind != MemoryKind::kVirtual) return;
  it->second.access = (it->second.access & ~mask) | (access & mask);
}

uint64_t PointerMap::AccessibleFrom(uint64_t address, uint16_t device, uint32_t flags) const {
  const std::shared_lock lock(mutex_);
  auto next = by_address_.upper_bound(address);
  if (next == by_address_.begin()) return 0;
  uint64_t end = address;
  for (--next; next != by_address_.end() && next->first <= end; ++next) {
    const Allocation& mapping = next->second;
    if (mapping.kind != MemoryKind::kVirtual || (mapping.AccessOf(device) & flags) != flags ||
        end - mapping.address >= mapping.bytes) {
      break;
    }
    end = mapping.address + mapping.bytes;
  }
  return end - address;
}

bool PointerMap::OverlapsHostMemory(uint64_t address, uint64_t bytes) const {
  const std::shared_lock lock(mutex_);
  if (const Allocation* holding = Holding(address); holding != nullptr) return holding->on_host();
  const auto next = by_address_.lower_bound(address);
  return next != by_address_.end() && next->first - address < bytes && next->second.on_host();
}

std::vector<Allocation> PointerMap::TakeContext(ContextId context) {
  std::vector<Allocation> host;
  const std::unique_lock freed(freeing_);
  const std::unique_lock lock(mutex_);
  for (auto it = by_address_.begin(); it != by_address_.end();) {
    if (it->second.context != context) {
      ++it;
      continue;
    }
    if (it->second.kind == MemoryKind::kPinned || it->second.kind == MemoryKind::kRegistered ||
        it->second.kind == MemoryKind::kManaged)
      host.push_back(it->second);
    it = by_address_.erase(it);
  }
  return host;
}

}  // namespace detshare::shim
