// The part of a session's shared memory that the ring reader sees, in private memory.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "proto/ring_abi.h"
#include "tests/server/shared_memory/ring_test_client.h"

namespace detshare {

class RingMemory {
 public:
  static constexpr uint32_t kReplies = 8;

  explicit RingMemory(uint64_t ring_bytes)
      : memory_(static_cast<uint8_t*>(std::aligned_alloc(kPageBytes, kPageBytes + ring_bytes)),
                &std::free) {
    std::memset(memory_.get(), 0, kPageBytes + ring_bytes);
    header()->ring_offset = kPageBytes;
    header()->ring_bytes = ring_bytes;
  }
  SessionHeader* header() { return reinterpret_cast<SessionHeader*>(memory_.get()); }
  uint8_t* ring() { return memory_.get() + kPageBytes; }

 private:
  std::unique_ptr<uint8_t, decltype(&std::free)> memory_;
};

}  // namespace detshare
