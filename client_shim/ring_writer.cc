#include "client_shim/ring_writer.h"

#include <sched.h>

#include "client_shim/futex.h"

namespace detshare::shim {

RingWriter::Record RingWriter::Reserve(const Heading& heading, uint32_t args_bytes,
                                       uint32_t payload_bytes) {
  const uint64_t bytes = RecordBytes(args_bytes, payload_bytes);
  if (bytes > kMaxRecordBytes || closed()) [[unlikely]]
    return {};
  uint64_t tail = header_.tail.load(std::memory_order_relaxed);
  uint64_t padding;
  uint32_t rounds = 0;
  for (;;) {
    const uint64_t to_end = ring_bytes_ - (tail & mask_);
    padding = to_end < bytes ? to_end : 0;
    // Acquire: the lines below `head` are zeroed before they are ours.
    const uint64_t head = header_.head.load(std::memory_order_acquire);
    if (tail + padding + bytes - head > ring_bytes_) [[unlikely]] {
      if (!WaitForRoom(head, &rounds)) return {};
      tail = header_.tail.load(std::memory_order_relaxed);
      continue;
    }
    // Relaxed: a record publishes itself, by its state.
    if (header_.tail.compare_exchange_weak(tail, tail + padding + bytes, std::memory_order_relaxed))
      break;
  }
  if (padding != 0) [[unlikely]] {
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
  // The reader stores reader_asleep and then looks at the ring once more; we publish and then look
  // at reader_asleep. The sequentially consistent operation between makes sure that one of us sees
  // the other.
#ifdef __SANITIZE_THREAD__
  if (header_.reader_asleep.fetch_add(0, std::memory_order_seq_cst) == 0) return;
#else
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (header_.reader_asleep.load(std::memory_order_relaxed) == 0) [[likely]]
    return;
#endif
  if (header_.reader_asleep.exchange(0, std::memory_order_seq_cst) != 0)
    FutexWake(&header_.reader_asleep, 1);
}

bool RingWriter::WaitForRoom(uint64_t seen, uint32_t* rounds) {
  WakeReader();
  const auto moved = [&] {
    return header_.head.load(std::memory_order_relaxed) != seen || closed();
  };
  if (++*rounds <= 64) {
    if (!SpinUntil(moved, 2)) sched_yield();
  } else if (!moved()) {
    const timespec nap{0, 50'000};
    nanosleep(&nap, nullptr);
  }
  return !closed();
}

}  // namespace detshare::shim
