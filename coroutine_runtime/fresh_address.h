// Chooses addresses for memory that devices access, so that no such memory was there before.
//
// A device may keep host memory registered for a while after it was unmapped, because removing a
// registration waits for everything that runs. Until then, new memory that the kernel puts at the
// same address cannot be registered.
#pragma once

#include <atomic>
#include <cstdint>

namespace detshare {

// A hint for mmap; the kernel maps elsewhere if something is there. Threading: any thread.
inline void* FreshAddress(uint64_t bytes) {
  // Starts 4 TiB below the address where Linux begins to put mappings. After 4 TiB it starts again.
  constexpr uint64_t kBegin = 0x700000000000, kBytes = uint64_t{4} << 40;
  constexpr uint64_t kAlignment = 2 << 20;
  static std::atomic<uint64_t> used{0};  // relaxed: each caller only needs a number of its own
  const uint64_t whole = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  const uint64_t offset = used.fetch_add(whole, std::memory_order_relaxed) % kBytes;
  return reinterpret_cast<void*>(kBegin + offset);
}

}  // namespace detshare
