// Chooses addresses for memory that devices access, so that no such memory was there before.
//
// A device may keep host memory registered for a while after it was unmapped, because removing a
// registration waits for everything that runs. Until then, new memory that the kernel puts at the
// same address cannot be registered.
#pragma once

#include <atomic>
#include <cstdint>

namespace detshare {

// The first address, 4 TiB below the one where Linux begins to put mappings. Changed before any thread
// asks for addresses.
inline uint64_t fresh_window_base = 0x700000000000;

// A hint for mmap; the kernel maps elsewhere if something is there. Threading: any thread.
inline void* FreshAddress(uint64_t bytes) {
  // After these it starts again.
  constexpr uint64_t kBytes = uint64_t{4} << 40;
  constexpr uint64_t kAlignment = 2 << 20;
  static std::atomic<uint64_t> used{0};  // relaxed: each caller only needs a number of its own
  const uint64_t whole = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  const uint64_t offset = used.fetch_add(whole, std::memory_order_relaxed) % kBytes;
  return reinterpret_cast<void*>(fresh_window_base + offset);
}

}  // namespace detshare
