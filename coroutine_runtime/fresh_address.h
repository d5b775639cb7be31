// Chooses addresses for memory that devices access, so that no such memory was there before.
//
// A device may keep host memory registered for a while after it was unmapped, because removing a
// registration waits for everything that runs. Until then, new memory that the kernel puts at the
// same address cannot be registered.
//
// The first address differs from process to process. Kernels of all sessions in the process can write to this
// memory, so it must not lie where a wrong pointer of a program is likely to point: natively that is a fault.
#pragma once

#include <sys/mman.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <random>

namespace detshare {

// The first address, 4 TiB below the one where Linux begins to put mappings. Changed before any thread
// asks for addresses.
inline uint64_t fresh_window_base = 0x700000000000;

// A hint for mmap; the kernel maps elsewhere if something is there. Threading: any thread.
inline void* FreshAddress(uint64_t bytes) {
  // After these it starts again.
  constexpr uint64_t kBytes = uint64_t{4} << 40;
  constexpr uint64_t kAlignment = 2 << 20;
  // The first is in the first eighth of the window, and not where the window begins.
  constexpr uint64_t kFirsts = kBytes / 8 / kAlignment;
  // Relaxed: each caller only needs a number of its own.
  static std::atomic<uint64_t> used{(1 + std::random_device{}() % (kFirsts - 1)) * kAlignment};
  const uint64_t whole = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  const uint64_t offset = used.fetch_add(whole, std::memory_order_relaxed) % kBytes;
  return reinterpret_cast<void*>(fresh_window_base + offset);
}

struct UnmapPages {
  size_t bytes;
  void operator()(void* pages) const { munmap(pages, bytes); }
};
using FreshPages = std::unique_ptr<void, UnmapPages>;

// Maps memory of this process at such an address, filled with zeroes. Returns null, with errno, if there is
// none. Threading: any thread.
inline FreshPages MapFreshPages(size_t bytes) {
  void* const pages =
      mmap(FreshAddress(bytes), bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  return FreshPages(pages == MAP_FAILED ? nullptr : pages, UnmapPages{bytes});
}

}  // namespace detshare
