// The process's allocations: finds the memory that an address belongs to.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <shared_mutex>
#include <vector>

#include "proto/driver_api/cuda_unrenamed.h"
#include "proto/ring_abi.h"

namespace detshare::shim {

enum class MemoryKind : uint8_t {
  kPageable,         // memory that the driver does not know
  kDevice,           // cuMemAlloc and the like
  kPinned,           // cuMemHostAlloc
  kRegistered,       // cuMemHostRegister; `address` is the program's
  kRegisteredAlias,  // the same memory at the GPU's address
  kGlobal,           // a variable of a library
  kVirtual,          // cuMemMap
  kManaged,          // cuMemAllocManaged: host memory, at one address for CPU and GPU
  kOpened,           // cuIpcOpenMemHandle
};

// An allocation, with everything that the shim's queries about pointers need.
struct Allocation {
  MemoryKind kind = MemoryKind::kPageable;
  bool sync_memops = false;
  uint16_t device = 0;
  ContextId context = 0;
  uint64_t context_handle = 0;
  uint64_t address = 0;       // of its first byte, for the program
  uint64_t bytes = 0;         // as the program asked for
  uint64_t gpu_address = 0;   // of its first byte, for the GPU; 0: none
  uint64_t host_address = 0;  // of its first byte, for the CPU; 0: none
  uint64_t buffer_id = 0;     // unique in the process
  uint64_t pool = 0;          // handle of its memory pool; 0: none
  uint32_t flags = 0;         // as the program asked for
  // The shim's mapping that holds host memory. 0: the memory is still the program's own.
  uint64_t mapping = 0;
  uint64_t mapping_bytes = 0;
  // The file that is mapped over registered memory (ProcessMapping). An inode of 0: unknown.
  uint64_t file_device = 0, file_inode = 0;
  // 0: nothing to free. Else the daemon's name for host memory, which is its address in the pinned
  // window, or in that of managed memory.
  uint64_t window = 0;
  bool piece =
      false;  // of host memory: other allocations may share the daemon's memory (PiecePool)
  int protection = 0;     // of registered memory: its protection before the registration
  uint32_t access = 0;    // of kVirtual: two bits of CUmemAccess_flags for each device
  int handle_types = 0;   // CUmemAllocationHandleType: what it can be exported as
  bool migrates = false;  // of kManaged: its pages move between CPU and GPU
  bool of_graph = false;  // a block of a graph's memory: the program has parts of it, or none

  bool on_device() const {
    return kind == MemoryKind::kDevice || kind == MemoryKind::kGlobal ||
           kind == MemoryKind::kVirtual || kind == MemoryKind::kOpened;
  }
  uint32_t AccessOf(uint16_t of_device) const { return access >> (2 * of_device) & 3; }
  bool on_host() const { return host_address != 0; }
};

// Any thread. Readers share a lock and allocate nothing.
class PointerMap {
 public:
  // Adds the allocation and gives it a buffer id and its first `sync_memops`.
  void Add(Allocation allocation);
  // The same, but returns false if it overlaps an allocation of the same kind of address: if one
  // begins before `address + bytes` and ends after `address`.
  bool AddUnlessOverlapping(Allocation allocation);
  // Finds the allocation that holds `address`. An allocation of zero bytes holds its first byte.
  // Returns false for pageable memory and for addresses without memory.
  bool Find(uint64_t address, Allocation* found) const;
  // Removes the allocation of this kind that begins at `address`. Returns false if there is none.
  bool Take(uint64_t address, MemoryKind kind, Allocation* taken);
  // The same if the allocation is of the context, and calls free(const Allocation&). TakeContext()
  // waits for such calls. So the memory is freed before its context ends, or not at all. For memory
  // that is freed behind the program's back, which may end the context meanwhile. `free` may wait
  // for room in the ring, and does not use the map.
  template <typename Free>
  bool TakeAndFree(uint64_t address, MemoryKind kind, ContextId context, Free free) {
    const std::shared_lock freed(freeing_);
    Allocation taken;
    if (!TakeOf(context, address, kind, &taken)) return false;
    free(taken);
    return true;
  }
  // Returns false if no allocation holds `address`.
  bool SetSyncMemops(uint64_t address, bool value);
  // The same for all memory of the device, also for later memory.
  void SetSyncMemopsOfDevice(uint16_t device, bool value);
  // For the mapping that begins at `address`: replaces the bits of `mask` with those of `access`.
  void SetAccess(uint64_t address, uint32_t mask, uint32_t access);
  // The number of bytes from `address` that lie in adjacent mappings to which `device` has that
  // access (a CUmemAccess_flags).
  uint64_t AccessibleFrom(uint64_t address, uint16_t device, uint32_t flags) const;
  // Whether some of [address, address + bytes) is registered or pinned.
  bool OverlapsHostMemory(uint64_t address, uint64_t bytes) const;

  // Removes all allocations of the context, and waits until none of them is being freed by
  // TakeAndFree(). Returns those that are pinned, registered or managed.
  std::vector<Allocation> TakeContext(ContextId context);

  // Calls visit(const Allocation&) for every allocation. Takes no lock, because another thread of
  // the parent may have held it at the fork. So it is only for the child of a fork, which has one
  // thread.
  template <typename Visit>
  void ForEachInChild(Visit visit) const {
    for (const auto& [address, allocation] : by_address_) visit(allocation);
  }

 private:
  const Allocation* Holding(uint64_t address) const;
  void Insert(Allocation& allocation);
  bool TakeOf(ContextId context, uint64_t address, MemoryKind kind, Allocation* taken);

  std::shared_mutex freeing_;        // shared during TakeAndFree(); taken before mutex_
  mutable std::shared_mutex mutex_;  // guards the rest
  std::map<uint64_t, Allocation> by_address_;
  uint64_t next_buffer_id_ = 1;
  std::set<uint16_t> without_sync_memops_;  // devices
};

PointerMap& pointers();

}  // namespace detshare::shim
