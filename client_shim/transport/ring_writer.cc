#include "client_shim/transport/ring_writer.h"

#include <sched.h>

#include <algorithm>

#include "client_shim/base/futex.h"

namespace detshare::shim {

RingWriter::Record RingWriter::Reserve(const Heading& heading, uint32_t args_bytes,
                                       uint32_t payload_bytes) {
  const uint64_t bytes = RecordBytes(args_bytes, payload_bytes);
  if (bytes > kMaxRecordBytes || closed()) [[unlikely]]
    return {};
  uint64_t tail = header_.tail.load(std::memory_order_relaxed);
  uint64_t needed;
  uint32_t rounds = 0;
  for (;;) {
    needed = Needed(tail, bytes);
    if (tail + needed - known_head_.load(std::memory_order_acquire) > ring_bytes_) [[unlikely]] {
      // Other threads may have moved the tail since, and the reader may have moved the head.
      tail = header_.tail.load(std::memory_order_relaxed);
      const uint64_t head = header_.head.load(std::memory_order_acquire);
      known_head_.store(head, std::memory_order_release);
      needed = Needed(tail, bytes);
      if (tail >= head && tail + needed - head > ring_bytes_ && !WaitForRoom(needed, &rounds))
        return {};
      tail = header_.tail.load(std::memory_order_relaxed);
      continue;
    }
    // Relaxed: a record publishes itself by its state.
    if (header_.tail.compare_exchange_weak(tail, tail + needed, std::memory_order_relaxed)) break;
  }
  if (const uint64_t padding = needed - bytes; padding != 0) [[unlikely]] {
    auto* filler = reinterpret_cast<RecordHeader*>(ring_ + (tail & mask_));
    filler->bytes = static_cast<uint32_t>(padding);
    filler->op = kOpPadding;
    filler->state.store(kCommitted, std::memory_order_release);
    tail += padding;
  }
  std::byte* const start = ring_ + (tail & mask_);
  auto* header = reinterpret_cast<RecordHeader*>(start);
  header->bytes = static_cast<uint32_t>(bytes);
  header->op = heading.op;
  header->device = heading.device;
  header->context = heading.context;
  header->reply_slot = heading.reply_slot;
  header->args_bytes = static_cast<uint16_t>(args_bytes);
  header->reserved = 0;
  header->payload_bytes = payload_bytes;
  header->reserved2 = 0;
  std::byte* const args = start + sizeof(RecordHeader);
  return {header, args, args + ((args_bytes + 7) & ~7u), tail};
}

void RingWriter::Commit(const Record& record) {
  // Release: publishes the record to the reader.
  record.header->state.store(kCommitted, std::memory_order_release);
  WakeReader();
}

void RingWriter::WakeReader() {
  // The reader stores reader_asleep and then looks at the ring once more. This thread publishes the
  // record and then looks at reader_asleep. The sequentially consistent operation in between
  // ensures that at least one of them sees the other's store.
#ifdef __SANITIZE_THREAD__
  if (header_.reader_asleep.fetch_add(0, std::memory_order_seq_cst) == 0) return;
#else
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (header_.reader_asleep.load(std::memory_order_relaxed) == 0) [[likely]]
    return;
#endif
  if (header_.reader_asleep.exchange(0, std::memory_order_seq_cst) != 0) {
    header_.client_cpu.store(static_cast<uint32_t>(sched_getcpu() + 1), std::memory_order_relaxed);
    FutexWake(&header_.reader_asleep, 1);
  }
}

bool RingWriter::WaitForRoom(uint64_t bytes, uint32_t* rounds) {
  WakeReader();
  // A full ring keeps the reader busy for long. A writer that polls for each freed line slows the
  // reader down. So a writer waits for a large part of the ring, and after a while only for the
  // room that it needs.
  constexpr uint32_t kMaxRounds = 100;
  const uint64_t wanted = ++*rounds < kMaxRounds ? std::max(bytes, ring_bytes_ / 8) : bytes;
  const auto room = [&] {
    const uint64_t head = header_.head.load(std::memory_order_relaxed);
    return header_.tail.load(std::memory_order_relaxed) + wanted - head <= ring_bytes_ || closed();
  };
  while (!room()) {
    const timespec nap{0, 20'000};
    nanosleep(&nap, nullptr);
    if (++*rounds >= kMaxRounds) break;
  }
  return !closed();
}

}  // namespace detshare::shim
