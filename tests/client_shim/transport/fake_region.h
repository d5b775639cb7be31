// Session memory without a daemon: the part that the ring and its helpers need, and a reader. A
// test steps the reader by hand or runs it on a thread.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>
#include <vector>

#include "proto/ring_abi.h"

namespace detshare::shim {

class FakeRegion {
 public:
  explicit FakeRegion(uint64_t ring_bytes, uint32_t reply_count = 8, uint32_t fence_count = 256,
                      uint64_t staging_bytes = 1 << 20)
      : ring_bytes_(ring_bytes),
        ring_(Pages(ring_bytes)),
        staging_(Pages(staging_bytes)),
        staging_bytes_(staging_bytes) {
    header_ = new (Pages(sizeof(SessionHeader))) SessionHeader{};
    replies_ = reinterpret_cast<ReplySlot*>(Pages(reply_count * sizeof(ReplySlot)));
    fences_ = reinterpret_cast<Fence*>(Pages(fence_count * sizeof(Fence)));
    reply_count_ = reply_count;
    fence_count_ = fence_count;
  }
  ~FakeRegion() {
    for (const auto& [memory, bytes] : pages_) munmap(memory, bytes);
  }
  FakeRegion(const FakeRegion&) = delete;
  FakeRegion& operator=(const FakeRegion&) = delete;

  SessionHeader& header() { return *header_; }
  std::byte* ring() { return ring_; }
  uint64_t ring_bytes() const { return ring_bytes_; }
  ReplySlot* replies() { return replies_; }
  uint32_t reply_count() const { return reply_count_; }
  Fence* fences() { return fences_; }
  uint32_t fence_count() const { return fence_count_; }
  std::byte* staging() { return staging_; }
  uint64_t staging_bytes() const { return staging_bytes_; }

  struct Record {
    uint16_t op = 0;
    uint32_t reply_slot = 0;
    uint64_t position = 0;
    std::vector<std::byte> args, payload;
  };

  // Consumes the next committed record and skips padding. Returns false if there is none.
  bool Read(Record* record) {
    for (;;) {
      const uint64_t head = header_->head.load(std::memory_order_relaxed);
      std::byte* const start = ring_ + head % ring_bytes_;
      auto* from = reinterpret_cast<RecordHeader*>(start);
      if (from->state.load(std::memory_order_acquire) != kCommitted) return false;
      const uint32_t bytes = from->bytes;
      const bool padding = from->op == kOpPadding;
      if (!padding) {
        record->op = from->op;
        record->reply_slot = from->reply_slot;
        record->position = head;
        const std::byte* args = start + sizeof(RecordHeader);
        record->args.assign(args, args + from->args_bytes);
        const std::byte* payload = args + ((from->args_bytes + 7) & ~7u);
        record->payload.assign(payload, payload + from->payload_bytes);
      }
      for (uint32_t line = 0; line < bytes; line += kRingLine) {
        reinterpret_cast<std::atomic<uint32_t>*>(start + line)->store(0, std::memory_order_relaxed);
      }
      header_->head.store(head + bytes, std::memory_order_release);
      if (!padding) return true;
    }
  }

 private:
  std::byte* Pages(uint64_t bytes) {
    void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    pages_.emplace_back(memory, bytes);
    return static_cast<std::byte*>(memory);
  }

  std::vector<std::pair<void*, uint64_t>> pages_;
  uint64_t ring_bytes_;
  std::byte* ring_;
  std::byte* staging_;
  uint64_t staging_bytes_;
  SessionHeader* header_ = nullptr;
  ReplySlot* replies_ = nullptr;
  Fence* fences_ = nullptr;
  uint32_t reply_count_ = 0, fence_count_ = 0;
};

}  // namespace detshare::shim
