// The client's end of the submission ring (proto/ring_abi.h): any number of threads, no lock.
//
//   Record record = ring.Reserve(...);       // a compare-and-swap on `tail`; waits only while the
//   ring is full if (!record) return <session is over>;
//   ... write record.args and record.payload ...
//   ring.Commit(record);                     // publishes the record, wakes the reader when it
//   sleeps
//
// Records are read in the order of their reservations. Nothing that may take long stands between
// Reserve and Commit, since the reader waits there.
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
    uint64_t position =
        0;  // in bytes ever reserved, where the record begins: records are read in this order
    explicit operator bool() const { return header != nullptr; }
  };
  struct Heading {
    uint16_t op = 0;
    uint16_t device = 0;
    ContextId context = 0;
    uint32_t reply_slot = kNoReply;
  };

  // `ring` has ring_bytes, a power of two of at least 2 * kMaxRecordBytes. Both outlive the writer.
  RingWriter(SessionHeader& header, std::byte* ring, uint64_t ring_bytes)
      : header_(header), ring_(ring), ring_bytes_(ring_bytes), mask_(ring_bytes - 1) {}

  // Room for a record, its header written but for the state. Null when the session is closed, or
  // the record is longer than kMaxRecordBytes.
  Record Reserve(const Heading& heading, uint32_t args_bytes, uint32_t payload_bytes);
  void Commit(const Record& record);

  // The bytes reserved so far: what CallRequest.after names.
  uint64_t tail() const { return header_.tail.load(std::memory_order_acquire); }
  // The bytes that the reader has consumed.
  uint64_t head() const { return header_.head.load(std::memory_order_acquire); }
  bool closed() const { return header_.closed.load(std::memory_order_acquire) != 0; }

  // How long a record becomes.
  static constexpr uint64_t RecordBytes(uint32_t args_bytes, uint32_t payload_bytes) {
    const uint64_t bytes =
        sizeof(RecordHeader) + ((uint64_t{args_bytes} + 7) & ~uint64_t{7}) + payload_bytes;
    return (bytes + kRingLine - 1) & ~uint64_t{kRingLine - 1};
  }

 private:
  // The bytes behind `tail` that a record of `bytes` takes, with the padding before it.
  uint64_t Needed(uint64_t tail, uint64_t bytes) const {
    const uint64_t to_end = ring_bytes_ - (tail & mask_);
    return to_end < bytes ? to_end + bytes : bytes;
  }
  // Waits until `bytes` are free, or for a while. False when the session is closed.
  bool WaitForRoom(uint64_t bytes, uint32_t* rounds);
  void WakeReader();

  SessionHeader& header_;
  std::byte* const ring_;
  const uint64_t ring_bytes_;
  const uint64_t mask_;
  // A value that `head` had: asked anew only when the ring seems full, since the reader writes it
  // with every record. Release, acquire: who sees it sees the lines below it zeroed.
  std::atomic<uint64_t> known_head_{0};
};

}  // namespace detshare::shim
