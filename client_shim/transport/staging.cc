#include "client_shim/transport/staging.h"

#include <algorithm>

#include "client_shim/base/futex.h"

namespace detshare::shim {

Staging::Staging(std::byte* memory, uint64_t bytes, FenceAllocator& fences,
                 const std::atomic<uint32_t>& closed)
    : fences_(fences), closed_(closed) {
  const uint32_t small_count = std::clamp<uint64_t>(bytes / 4 / kSmallBytes, 1, 64);
  const uint64_t small_total = uint64_t{small_count} * kSmallBytes;
  const uint64_t rest = bytes > small_total ? bytes - small_total : 0;
  // Chunks of one MiB copy well. A small area gets smaller chunks, so that there are enough to
  // overlap copies.
  large_bytes_ = std::clamp<uint64_t>(rest / 8 / kSmallBytes * kSmallBytes, kSmallBytes, 1 << 20);
  const uint32_t large_count = std::min<uint64_t>(rest / large_bytes_, 64);
  Divide(small_, 0, kSmallBytes, bytes >= kSmallBytes ? small_count : 0, memory);
  Divide(large_, small_total, large_bytes_, large_count, memory);
}

void Staging::Divide(Class& chunks, uint64_t offset, uint64_t bytes, uint32_t count,
                     std::byte* memory) {
  for (uint32_t i = 0; i < count; ++i) {
    const OwnedFence fence = fences_.Take();
    if (fence.index == kNoFence) break;
    chunks.chunks[i] = {offset + i * bytes, bytes, memory + offset + i * bytes, fence.index,
                        fence.value};
    chunks.count = i + 1;
  }
  chunks.available.store(chunks.count == 64 ? ~uint64_t{0} : (uint64_t{1} << chunks.count) - 1,
                         std::memory_order_release);
}

StagingChunk* Staging::Try(Class& chunks) {
  if (chunks.count == 0) return nullptr;
  const uint32_t first = chunks.turn.load(std::memory_order_relaxed);
  for (uint32_t i = 0; i < chunks.count; ++i) {
    const uint32_t index = (first + i) % chunks.count;
    const uint64_t bit = uint64_t{1} << index;
    if ((chunks.available.load(std::memory_order_relaxed) & bit) == 0 ||
        (chunks.available.fetch_and(~bit, std::memory_order_acquire) & bit) == 0) {
      continue;
    }
    StagingChunk& chunk = chunks.chunks[index];
    if (fences_.Reached(chunk.fence, chunk.value)) {
      chunks.turn.store(index + 1, std::memory_order_relaxed);
      return &chunk;
    }
    Release(&chunk);
  }
  return nullptr;
}

StagingChunk* Staging::TryAcquire(bool large) {
  return Try(large && large_.count != 0 ? large_ : small_);
}

StagingChunk* Staging::Acquire(bool large) {
  StagingChunk* chunk = nullptr;
  const auto acquired = [&] {
    chunk = TryAcquire(large);
    return chunk != nullptr || closed_.load(std::memory_order_acquire) != 0;
  };
  while (!SpinUntil(acquired, 50)) {
    const timespec nap{0, 50'000};
    nanosleep(&nap, nullptr);
  }
  return chunk;
}

void Staging::Release(StagingChunk* chunk) {
  Class& chunks = chunk >= large_.chunks.data() && chunk < large_.chunks.data() + large_.count
                      ? large_
                      : small_;
  const StagingChunk* const base = chunks.chunks.data();
  chunks.available.fetch_or(uint64_t{1} << (chunk - base), std::memory_order_release);
}

}  // namespace detshare::shim
