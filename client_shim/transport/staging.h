// The session's staging area. The bytes of ordinary host memory pass through it to the GPU and
// back.
//
// The area is divided into chunks of two sizes. Each chunk has a fence that says when the GPU has
// finished with it. The large chunks begin at the second part of the area, which the daemon makes
// accessible to the GPU only at its first use (server/shared_memory/shared_region.h). So no chunk
// lies across that boundary.
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
  uint64_t value = 0;  // reached when the GPU has finished with the last submitted copy

  // The signal that a copy to or from the chunk gives. The caller submits it before it releases the
  // chunk.
  wire::Signal NextSignal() { return {++value, fence, 0}; }
};

// Any thread. Lock-free, except that Acquire waits.
class Staging {
 public:
  static constexpr uint32_t kSmallBytes = 64 * 1024;

  // `memory` is the whole area, of `bytes`. It and the other arguments outlive this object.
  Staging(std::byte* memory, uint64_t bytes, FenceAllocator& fences,
          const std::atomic<uint32_t>& closed);

  // Returns a free chunk of kSmallBytes or of large_bytes(), for the caller alone. Waits if there
  // is none. Returns null if the session is closed. In an area without large chunks, `large` gets a
  // small chunk.
  StagingChunk* Acquire(bool large);
  // The same without waiting: returns null if no chunk is free. For a caller that holds a chunk
  // already and must not wait for another.
  StagingChunk* TryAcquire(bool large);
  // Gives the chunk back. The GPU may still use it: its fence says until when.
  void Release(StagingChunk* chunk);

  uint64_t large_bytes() const { return large_bytes_; }

 private:
  struct Class {
    std::array<StagingChunk, 64> chunks;
    uint32_t count = 0;
    // A set bit: no thread holds the chunk, but the GPU may still use it. Acquire and release order
    // the chunk's users.
    std::atomic<uint64_t> available{0};
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
