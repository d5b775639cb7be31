// Checked address translation for the memory handlers.
#pragma once

#include <atomic>
#include <cstring>
#include <type_traits>

#include "server/backends/soft/ptx/context.h"
#include "server/backends/soft/ptx/memory_ops.h"

namespace detshare::soft::ptx {

// True when the tenant may access [address, address + bytes). Remembers the range in `c`.
bool FindRange(Context& c, uint64_t address, uint64_t bytes, bool write);

inline bool Allowed(Context& c, uint64_t address, uint64_t bytes, bool write) {
  if (address >= c.range_begin && address < c.range_end && bytes <= c.range_end - address &&
      (!write || c.range_writable)) {
    return true;
  }
  return FindRange(c, address, bytes, write);
}

// The block's own shared memory or that of another block of the cluster. Null when out of bounds.
uint8_t* SharedPointer(Context& c, uint64_t offset, uint64_t bytes);

// A generic address of any space, as lane `lane` sees it; null when it is out of reach.
uint8_t* GenericPointer(Context& c, uint32_t lane, uint64_t address, uint64_t bytes, bool write);

// Host pointers for an access of `bytes` (a power of two) by each lane of `mask`, in
// pointers[lane]. Checks alignment and reach; on a violation raises the fault of the first such
// lane and returns false.
enum class Reach : uint8_t { kGlobal, kGeneric, kShared, kLocal };

bool SlowPointers(Context& c, const Instr& in, uint32_t mask, Reach reach, uint64_t bytes,
                  uint64_t align, bool write, uint64_t* addresses);

template <bool kAddress64>
inline void LoadAddresses(const Context& c, const Instr& in, uint32_t mask, uint64_t* out,
                          uint64_t* low, uint64_t* high, uint64_t* bits) {
  using A = std::conditional_t<kAddress64, uint64_t, uint32_t>;
  const A* a = c.Src<A>(in.a);
  const A offset = static_cast<A>(in.imm);  // 32-bit addresses wrap
  uint64_t lo = ~uint64_t{0}, hi = 0, all = 0;
  if (mask == kFullMask) {
    for (uint32_t i = 0; i < kLanes; ++i) {
      const uint64_t address = static_cast<A>(a[i] + offset);
      out[i] = address;
      lo = address < lo ? address : lo;
      hi = address > hi ? address : hi;
      all |= address;
    }
  } else {
    ForEachLane(mask, [&](uint32_t i) {
      const uint64_t address = static_cast<A>(a[i] + offset);
      out[i] = address;
      lo = address < lo ? address : lo;
      hi = address > hi ? address : hi;
      all |= address;
    });
  }
  *low = lo;
  *high = hi;
  *bits = all;
}

// As above, with the common case inline: all lanes within one known range.
template <Reach kReach, bool kAddress64>
inline bool Pointers(Context& c, const Instr& in, uint32_t mask, uint64_t bytes, uint64_t align,
                     bool write, uint64_t* out) {
  uint64_t low, high, bits;
  LoadAddresses<kAddress64>(c, in, mask, out, &low, &high, &bits);
  if constexpr (kReach == Reach::kShared) {
    if (high <= c.shared_bytes && bytes <= c.shared_bytes - high && (bits & (align - 1)) == 0) {
      const uint64_t base = reinterpret_cast<uint64_t>(c.shared);
      for (uint32_t i = 0; i < kLanes; ++i) out[i] += base;
      return true;
    }
  } else if constexpr (kReach == Reach::kLocal) {
    if (high <= c.stack_bytes && bytes <= c.stack_bytes - high && (bits & (align - 1)) == 0) {
      const uint64_t base = reinterpret_cast<uint64_t>(c.local);
      for (uint32_t i = 0; i < kLanes; ++i) out[i] += base + uint64_t{i} * c.stack_bytes;
      return true;
    }
  } else {
    uint64_t& sectors = c.counters->global_sectors;
    const uint64_t span = high / 32 - low / 32 + 1;
    const uint64_t lanes = LaneCount(mask) * ((bytes + 31) / 32);
    (write ? c.counters->global_bytes_written : c.counters->global_bytes_read) +=
        LaneCount(mask) * bytes;
    if (high < kSharedWindow && (bits & (align - 1)) == 0 && high >= low) {
      sectors += span < lanes ? span : lanes;
      if (Allowed(c, low, high - low + bytes, write)) return true;
    } else {
      sectors += lanes;
    }
  }
  return SlowPointers(c, in, mask, kReach, bytes, align, write, out);
}

// Relaxed atomic accesses: blocks of one kernel run on several threads and may race as they may on
// a GPU.
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
