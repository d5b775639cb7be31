// The client's end of the submission ring (proto/ring_abi.h). Any number of threads may write at a
// time, without a lock.
//
//   Record record = ring.Reserve(...);   // one compare-and-swap on `tail`; waits if it is full
//   if (!record) return <session is over>;
//   ... write record.args and record.payload ...
//   ring.Commit(record);                 // publishes the record and wakes the reader if it sleeps
//
// The daemon reads records in the order of their reservations. It waits for a reserved record until
// that record is committed, so nothing that may take long stands between Reserve and Commit.
#pragma once

#include <cstddef>
#include <cstdint>

#include "proto/ring_abi.h"

namespace detshare::shim {

class RingWriter {
 public:
  struct Record {
    RecordHeader* header = nullptr;
    std::byte* args = nullptr;
    std::byte* payload = nullptr;
    // The record's beginning, in bytes ever reserved. The daemon reads records in this order.
    uint64_t position = 0;
    explicit operator bool() const { return header != nullptr; }
  };
  // The caller's fields of a record's header.
  struct Heading {
    uint16_t op = 0;
    uint16_t device = 0;
    ContextId context = 0;
    uint32_t reply_slot = kNoReply;
  };

  // `ring` has ring_bytes, a power of two of at least 2 * kMaxRecordBytes. Both outlive the writer.
  RingWriter(SessionHeader& header, std::byte* ring, uint64_t ring_bytes)
      : header_(header), ring_(ring), ring_bytes_(ring_bytes), mask_(ring_bytes - 1) {}

  // Reserves room for a record and writes its header, except for the state. Waits while the ring is
  // full. Returns null if the session is closed, or if the record is longer than kMaxRecordBytes.
  Record Reserve(const Heading& heading, uint32_t args_bytes, uint32_t payload_bytes);
  // Publishes the record to the daemon (release) and wakes the daemon if it sleeps.
  void Commit(const Record& record);

  // The bytes reserved so far. CallRequest.after names this position.
  uint64_t tail() const { return header_.tail.load(std::memory_order_acquire); }
  // The bytes that the daemon has consumed.
  uint64_t head() const { return header_.head.load(std::memory_order_acquire); }
  // Whether the session has ended.
  bool closed() const { return header_.closed.load(std::memory_order_acquire) != 0; }

  // The length of a record in the ring, in bytes.
  static constexpr uint64_t RecordBytes(uint32_t args_bytes, uint32_t payload_bytes) {
    const uint64_t bytes =
        sizeof(RecordHeader) + ((uint64_t{args_bytes} + 7) & ~uint64_t{7}) + payload_bytes;
    return (bytes + kRingLine - 1) & ~uint64_t{kRingLine - 1};
  }

  // Ends the reader's sleep, if it sleeps. A store of this thread before the call is then visible to
  // it, as a record is.
  void WakeReader();

 private:
  // The bytes behind `tail` that a record of `bytes` takes, including the padding before it.
  uint64_t Needed(uint64_t tail, uint64_t bytes) const {
    const uint64_t to_end = ring_bytes_ - (tail & mask_);
    return to_end < bytes ? to_end + bytes : bytes;
  }
  // Waits until `bytes` are free, or for a while. Returns false if the session is closed.
  bool WaitForRoom(uint64_t bytes, uint32_t* rounds);

  SessionHeader& header_;
  std::byte* const ring_;
  const uint64_t ring_bytes_;
  const uint64_t mask_;
  // A value that `head` had. The reader writes `head` with every record, so writers load it only
  // when the ring seems full. The release store is paired with an acquire load: a thread that sees
  // the value sees the lines below it zeroed.
  std::atomic<uint64_t> known_head_{0};
};

}  // namespace detshare::shim
