// The daemon's end of the submission ring (proto/ring_abi.h draws it).
//
// The other side is hostile: whatever lies in the shared memory may be anything and may change at
// any moment. The reader looks at a record's header once, checks the copy, copies the rest once
// into private memory, and hands out that copy. It believes nothing else that the client could have
// written, its own position least of all.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "proto/ring_abi.h"

namespace detshare {

// A private copy of one record, whose sizes are sound. Valid until the next Read().
struct RingRecord {
  uint16_t op = 0;
  uint16_t device = 0;
  ContextId context = 0;
  uint32_t reply_slot = kNoReply;    // below the session's reply count, or kNoReply
  std::span<const uint8_t> args;     // 8-byte aligned
  std::span<const uint8_t> payload;  // 8-byte aligned
};

// Used by one thread at a time, but for Wake().
class RingReader {
 public:
  enum class Result : uint8_t {
    kEmpty,
    kRecord,
    kViolation,  // violation() says what; nothing more will be read
  };

  // `header` and `ring` are shared with the client and outlive the reader; sizes and counts are the
  // daemon's own.
  RingReader(SessionHeader* header, uint8_t* ring, uint64_t ring_bytes, uint32_t reply_count);

  // The next committed record, which is copied and consumed: its place in the ring is free again
  // when this returns.
  Result Read(RingRecord* record);

  // Bytes ever consumed.
  uint64_t position() const { return position_; }
  uint64_t ring_bytes() const { return ring_bytes_; }
  // Names the rule that the client broke. Empty while it broke none.
  const std::string& violation() const { return violation_; }

  // The device that the next record names; anything when there is none. The client may change its
  // mind, so this is for guesses only.
  uint16_t NextDevice() const;

  // Whether Read() would not answer kEmpty.
  bool Ready() const;

  // Sleeps until the client commits a record, Wake() is called, or `timeout` has passed; not at all
  // when there is something to read or `awake()` says so. `awake` is asked after the client has
  // been told, so what is posted before a Wake() is not missed. False when the shared memory is
  // gone. With kNoLimit there is no timeout (one second where the kernel cannot do better).
  static constexpr std::chrono::nanoseconds kNoLimit = std::chrono::nanoseconds::max();
  template <typename Awake>
  bool Sleep(std::chrono::nanoseconds timeout, Awake&& awake) {
    // Sequentially consistent: what was posted before the Wake() that is taken back here is seen.
    if (woken_.load(std::memory_order_relaxed) != 0 &&
        woken_.exchange(0, std::memory_order_seq_cst) != 0) {
      return true;
    }
    AnnounceSleep();
    if (Ready() || awake()) {
      CancelSleep();
      return true;
    }
    return SleepNow(timeout);
  }

  // Ends a Sleep() of the reader's thread, or the next one. Any thread. The client cannot undo it
  // where the sleep has no limit; where it has one, that is how late it can become.
  void Wake();

 private:
  Result Violation(std::string text);
  void Release(uint64_t offset, uint32_t bytes);
  void AnnounceSleep();
  void CancelSleep();
  bool SleepNow(std::chrono::nanoseconds timeout);

  SessionHeader* const header_;
  uint8_t* const ring_;
  const uint64_t ring_bytes_;
  const uint32_t reply_count_;
  // The daemon's own word beside the shared one: 1 after Wake(), until the reader sees it.
  std::atomic<uint32_t> woken_{0};
  uint64_t position_ = 0;
  std::unique_ptr<uint64_t[]> copy_;  // kMaxRecordBytes
  std::string violation_;
};

}  // namespace detshare
