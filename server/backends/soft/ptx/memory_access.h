// Checked address translation for the memory handlers.
#pragma once

#include <atomic>
#include <cstring>
#include <type_traits>

#include "server/backends/soft/ptx/memory_ops.h"
#include "server/backends/soft/ptx/unit.h"

namespace detshare::soft::ptx {

// Returns whether the tenant may access [address, address + bytes). Keeps the range in `c`.
bool FindRange(Context& c, uint64_t address, uint64_t bytes, bool write);

inline bool Allowed(Context& c, uint64_t address, uint64_t bytes, bool write) {
  if (address >= c.range_begin && address < c.range_end && bytes <= c.range_end - address &&
      (!write || c.range_writable)) {
    return true;
  }
  return FindRange(c, address, bytes, write);
}

// Points into the shared memory of the block or of another block of the cluster. Null when out of
// bounds.
uint8_t* SharedPointer(Context& c, uint64_t offset, uint64_t bytes);

// Translates a generic address of any space for lane `lane`. Null when the lane may not access it.
uint8_t* GenericPointer(Context& c, uint32_t lane, uint64_t address, uint64_t bytes, bool write);

// Reads memory at a generic address for lane `lane`. Returns false when the lane may not access a
// byte of it.
bool ReadGeneric(Context& c, uint32_t lane, uint64_t address, size_t bytes, void* out);

enum class Reach : uint8_t { kGlobal, kGeneric, kShared, kLocal };

// Sets pointers[lane] to the host pointer for an access of `bytes` (a power of two), for each lane
// of `mask`. Checks alignment and access. On a violation it raises the fault of the first such lane
// and returns false. Only memory_access.cc instantiates it, for every reach and width.
template <Reach kReach, bool kAddress64>
bool Pointers(Context& c, const Instr& in, uint32_t mask, uint64_t bytes, uint64_t align,
              bool write, uint64_t* pointers);

enum class Access : uint8_t {
  kFault,        // the fault is raised
  kEach,         // pointers[lane] is set, for each lane of `mask`
  kSame,         // of all 32 lanes, to pointers[0]
  kConsecutive,  // of all 32 lanes, without gaps, to memory that begins at pointers[0]
};

// As Pointers(), for accesses that have faster code for the usual patterns.
template <Reach kReach, bool kAddress64>
Access FindAccess(Context& c, const Instr& in, uint32_t mask, uint64_t bytes, bool write,
                  uint64_t* pointers);

// Relaxed atomic accesses. Blocks of a kernel run on several threads and may race, as on a GPU.
template <class T>
inline T LoadRelaxed(uint64_t pointer) {
  return __atomic_load_n(reinterpret_cast<const T*>(pointer), __ATOMIC_RELAXED);
}
template <class T>
inline void StoreRelaxed(uint64_t pointer, T value) {
  __atomic_store_n(reinterpret_cast<T*>(pointer), value, __ATOMIC_RELAXED);
}

inline void BeforeAccess(Context& c, const Instr& in) {
  if ((in.aux & MemoryAux::kRelease) != 0) std::atomic_thread_fence(std::memory_order_release);
  (void)c;
}
inline void AfterAccess(Context& c, const Instr& in) {
  if ((in.aux & MemoryAux::kAcquire) != 0) std::atomic_thread_fence(std::memory_order_acquire);
  if ((in.aux & MemoryAux::kPolling) != 0) NotePoll(c);
}

}  // namespace detshare::soft::ptx
