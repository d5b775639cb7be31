// The session's staging area, through which bytes of ordinary host memory reach the GPU and come
// from it. Divided into chunks of two sizes; each has a fence that says when the GPU is done with
// it. The large ones begin where the daemon has the GPU reach the second part of the area, which it
// does when that is first used (server/shared_memory/shared_region.h): no chunk lies across.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "client_shim/transport/fence_allocator.h"
#include "proto/ring_abi.h"
#include "proto/wire/common.h"

namespace detshare::shim {

struct StagingChunk {
  uint64_t offset = 0;  // in the staging area
  uint64_t bytes = 0;
  std::byte* memory = nullptr;
  FenceIndex fence = kNoFence;
  uint64_t value = 0;  // reached when the GPU is done with what was submitted last

  // What a copy to or from the chunk signals. To be submitted before the chunk is released.
  wire::Signal NextSignal() { return {++value, fence, 0}; }
};

// Any thread, lock-free but for waiting.
class Staging {
 public:
  static constexpr uint32_t kSmallBytes = 64 * 1024;

  // `memory` is the whole area.
  Staging(std::byte* memory, uint64_t bytes, FenceAllocator& fences,
          const std::atomic<uint32_t>& closed);

  // A chunk that nobody uses, of kSmallBytes or large_bytes(). Waits; null when the session is
  // closed.
  StagingChunk* Acquire(bool large);
  // Null when none is free at the moment. For those who hold one already, and must not wait for
  // another.
  StagingChunk* TryAcquire(bool large);
  void Release(StagingChunk* chunk);

  uint64_t large_bytes() const { return large_bytes_; }

 private:
  struct Class {
    std::array<StagingChunk, 64> chunks;
    uint32_t count = 0;
    std::atomic<uint64_t> available{
        0};  // bit set: nobody holds it (the GPU may). Acquire and release order its users
    std::atomic<uint32_t> turn{0};  // where to look first, so that chunks are used in turn
  };
  void Divide(Class& chunks, uint64_t offset, uint64_t bytes, uint32_t count, std::byte* memory);
  StagingChunk* Try(Class& chunks);

  FenceAllocator& fences_;
  const std::atomic<uint32_t>& closed_;
  uint64_t large_bytes_ = 0;
  Class small_, large_;
};

}  // namespace detshare::shim
