// The daemon's end of the submission ring (proto/ring_abi.h draws it).
//
// The reader does not trust the client: the shared memory may contain anything and may change at
// any moment. The reader reads a record's header once, checks the copy, copies the rest once into
// private memory, and returns that copy. It believes no other word that the client could have
// written, and keeps its own position privately.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "absl/functional/function_ref.h"
#include "proto/ring_abi.h"

namespace detshare {

// A private copy of one record, with checked sizes. Valid until the next Read().
struct RingRecord {
  uint16_t op = 0;
  uint16_t device = 0;
  ContextId context = 0;
  uint32_t reply_slot = kNoReply;    // below the session's reply count, or kNoReply
  std::span<const uint8_t> args;     // 8-byte aligned
  std::span<const uint8_t> payload;  // 8-byte aligned
};

// One thread at a time uses a reader. Any thread may call Wake().
class RingReader {
 public:
  enum class Result : uint8_t {
    kEmpty,
    kRecord,
    kViolation,  // violation() names the broken rule; the reader reads nothing more
  };

  // The client shares `header` and `ring`, and both outlive the reader. The sizes and counts are
  // the daemon's own.
  RingReader(SessionHeader* header, uint8_t* ring, uint64_t ring_bytes, uint32_t reply_count);

  // Copies and consumes the next committed record. The record's place in the ring is free again
  // when this returns.
  Result Read(RingRecord* record);

  // Bytes consumed since the session began.
  uint64_t position() const { return position_; }
  uint64_t ring_bytes() const { return ring_bytes_; }
  // Names the rule that the client broke. Empty while it has broken none.
  const std::string& violation() const { return violation_; }

  // Return the device and the operation that the next record names, those of padding (kOpPadding) if
  // only padding is committed, and arbitrary numbers if there is nothing. The client may still change
  // the record, so these serve only for guesses.
  uint16_t NextDevice() const;
  uint16_t NextOp() const;

  // Returns whether Read() would return something other than kEmpty.
  bool Ready() const;

  // Calls visit(op, reply_slot) for each committed record that neither Read() nor an earlier call has
  // seen, up to a malformed one. The numbers may be arbitrary, and the client may still change the
  // records, so these serve only for guesses.
  void LookAhead(absl::FunctionRef<void(uint16_t op, uint32_t reply_slot)> visit);
  // The position behind the last record that Read() or LookAhead() has seen.
  uint64_t seen() const { return std::max(position_, ahead_); }

  // Sleeps until the client commits a record, another thread calls Wake(), or `timeout` has passed.
  // Does not sleep if there is something to read or `awake()` returns true. Calls `awake` after it
  // has told the client that it sleeps, so work that was posted before a Wake() is not missed.
  // Returns false if the shared memory is gone. kNoLimit means no timeout (one second if the kernel
  // cannot wait for two words).
  static constexpr std::chrono::nanoseconds kNoLimit = std::chrono::nanoseconds::max();
  template <typename Awake>
  bool Sleep(std::chrono::nanoseconds timeout, Awake&& awake) {
    // Sequentially consistent: this thread sees what was posted before the Wake() whose mark it
    // takes back here.
    if (woken_.load(std::memory_order_relaxed) != 0 &&
        woken_.exchange(0, std::memory_order_seq_cst) != 0) {
      return true;
    }
    AnnounceSleep();
    // Either Wake() sees that this thread sleeps, or this thread sees its mark.
    if (Ready() || awake() || woken_.load(std::memory_order_seq_cst) != 0) {
      CancelSleep();
      return true;
    }
    return SleepNow(timeout);
  }

  // Ends the current or the next Sleep() of the reader's thread. Any thread may call it. A client
  // that writes the shared word cannot undo it if the sleep has no limit; otherwise it can delay
  // the end up to the timeout. Makes a system call only if the thread sleeps.
  void Wake();

 private:
  // `offset` is that of a field of the next record's header, behind the state.
  uint16_t NextWord(size_t offset) const;
  Result Violation(std::string text);
  void Release(uint64_t offset, uint32_t bytes);
  void AnnounceSleep();
  void CancelSleep();
  bool SleepNow(std::chrono::nanoseconds timeout);

  SessionHeader* const header_;
  uint8_t* const ring_;
  const uint64_t ring_bytes_;
  const uint32_t reply_count_;
  // A word of the daemon's own beside the shared one. Wake() stores 1, which tells the reader that
  // another thread has posted work; the reader stores 0 when it sees the 1.
  std::atomic<uint32_t> woken_{0};
  std::atomic<bool> asleep_{false};  // the daemon's own copy of header_->reader_asleep
  uint64_t position_ = 0;
  uint64_t ahead_ = 0;                // LookAhead() continues here, if position_ is not farther
  std::unique_ptr<uint64_t[]> copy_;  // kMaxRecordBytes
  std::string violation_;
};

}  // namespace detshare
