// Where to map memory that devices are to reach: at an address that no such memory had before.
//
// A device may hold on to host memory for a while after it was unmapped (taking a registration back
// waits for everything that runs). Other memory that the kernel put at the same address could not
// be registered until then.
#pragma once

#include <atomic>
#include <cstdint>

namespace detshare {

// A hint for mmap: the kernel maps elsewhere when something is there. Any thread.
inline void* FreshAddress(uint64_t bytes) {
  // 4 TiB below where Linux begins to put mappings; after that many bytes it begins anew.
  constexpr uint64_t kBegin = 0x700000000000, kBytes = uint64_t{4} << 40;
  constexpr uint64_t kAlignment = 2 << 20;
  static std::atomic<uint64_t> used{0};  // relaxed: a number that nobody else gets
  const uint64_t whole = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  const uint64_t offset = used.fetch_add(whole, std::memory_order_relaxed) % kBytes;
  return reinterpret_cast<void*>(kBegin + offset);
}

}  // namespace detshare
