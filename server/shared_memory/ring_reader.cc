#include "server/shared_memory/ring_reader.h"

#include <cstddef>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/base/futex.h"

namespace detshare {
namespace {

// The header of a record as it was at one moment. Its layout is that of RecordHeader after the
// state word.
struct HeaderCopy {
  uint32_t bytes;
  uint16_t op;
  uint16_t device;
  ContextId context;
  uint32_t reply_slot;
  uint16_t args_bytes;
  uint16_t reserved;
  uint32_t payload_bytes;
  uint32_t reserved2;
};
static_assert(sizeof(HeaderCopy) == sizeof(RecordHeader) - sizeof(uint32_t));

constexpr uint32_t RoundUp8(uint32_t bytes) { return (bytes + 7) & ~uint32_t{7}; }

std::atomic<uint32_t>* LineState(uint8_t* line) {
  return reinterpret_cast<std::atomic<uint32_t>*>(line);
}

}  // namespace

RingReader::RingReader(SessionHeader* header, uint8_t* ring, uint64_t ring_bytes,
                       uint32_t reply_count)
    : header_(header),
      ring_(ring),
      ring_bytes_(ring_bytes),
      reply_count_(reply_count),
      copy_(new uint64_t[kMaxRecordBytes / sizeof(uint64_t)]) {}

bool RingReader::Ready() const {
  const uint64_t offset = position_ & (ring_bytes_ - 1);
  return LineState(ring_ + offset)->load(std::memory_order_acquire) != 0;
}

uint16_t RingReader::NextWord(size_t offset) const {
  const auto word_of = [](const uint8_t* line, size_t at) {
    uint16_t word;
    std::memcpy(&word, line + sizeof(uint32_t) + at, sizeof(word));
    return word;
  };
  const uint8_t* line = ring_ + (position_ & (ring_bytes_ - 1));
  // Padding fills the ring's end. The record behind it is the first in the ring.
  if (word_of(line, offsetof(HeaderCopy, op)) == kOpPadding &&
      LineState(ring_)->load(std::memory_order_acquire) == kCommitted)
    line = ring_;
  return word_of(line, offset);
}

uint16_t RingReader::NextDevice() const { return NextWord(offsetof(HeaderCopy, device)); }
uint16_t RingReader::NextOp() const { return NextWord(offsetof(HeaderCopy, op)); }

void RingReader::LookAhead(absl::FunctionRef<void(uint16_t, uint32_t)> visit) {
  // At most one lap, because the reader zeroes what it has read.
  for (ahead_ = seen(); ahead_ - position_ < ring_bytes_;) {
    const uint64_t offset = ahead_ & (ring_bytes_ - 1);
    uint8_t* const line = ring_ + offset;
    // Acquire: as in Read().
    if (LineState(line)->load(std::memory_order_acquire) != kCommitted) return;
    HeaderCopy header;
    std::memcpy(&header, line + sizeof(uint32_t), sizeof(header));
    if (header.bytes < kRingLine || header.bytes % kRingLine != 0 ||
        header.bytes > ring_bytes_ - offset) {
      return;
    }
    ahead_ += header.bytes;
    if (header.op != kOpPadding) visit(header.op, header.reply_slot);
  }
}

RingReader::Result RingReader::Read(RingRecord* record) {
  if (!violation_.empty()) return Result::kViolation;
  // The number of padding records in one call is bounded, because the caller has other work even
  // while a client commits only padding.
  for (int padding = 0; padding < 16; ++padding) {
    const uint64_t offset = position_ & (ring_bytes_ - 1);
    uint8_t* const line = ring_ + offset;
    // Acquire: pairs with the client's commit, which publishes the record.
    const uint32_t state = LineState(line)->load(std::memory_order_acquire);
    if (state == 0) return Result::kEmpty;
    if (state != kCommitted) {
      return Violation(absl::StrCat("a line's first word is 0x", absl::Hex(state)));
    }
    HeaderCopy header;
    std::memcpy(&header, line + sizeof(uint32_t), sizeof(header));
    // The compiler must not read the shared words again after the checks.
    asm volatile("" : : "r"(&header) : "memory");

    if (header.bytes < kRingLine || header.bytes % kRingLine != 0) {
      return Violation(
          absl::StrCat("a record of ", header.bytes, " bytes is not made of whole lines"));
    }
    if (header.bytes > kMaxRecordBytes) {
      return Violation(absl::StrCat("a record of ", header.bytes, " bytes is too long"));
    }
    if (header.bytes > ring_bytes_ - offset) {
      return Violation(
          absl::StrCat("a record of ", header.bytes, " bytes crosses the end of the ring"));
    }
    if (header.op == kOpPadding) {
      Release(offset, header.bytes);
      continue;
    }
    if (header.reserved != 0 || header.reserved2 != 0) {
      return Violation("a record's reserved fields are not zero");
    }
    if (header.reply_slot != kNoReply && header.reply_slot >= reply_count_) {
      return Violation(absl::StrCat("reply slot ", header.reply_slot, " does not exist"));
    }
    const uint32_t args_room = RoundUp8(header.args_bytes);
    if (header.payload_bytes > kMaxPayloadBytes ||
        sizeof(RecordHeader) + args_room + header.payload_bytes > header.bytes) {
      return Violation(absl::StrCat("arguments of ", header.args_bytes, " and a payload of ",
                                    header.payload_bytes, " bytes do not fit a record of ",
                                    header.bytes));
    }
    uint8_t* const copy = reinterpret_cast<uint8_t*>(copy_.get());
    std::memcpy(copy, line + sizeof(RecordHeader), args_room + header.payload_bytes);
    Release(offset, header.bytes);

    record->op = header.op;
    record->device = header.device;
    record->context = header.context;
    record->reply_slot = header.reply_slot;
    record->args = {copy, header.args_bytes};
    record->payload = {copy + args_room, header.payload_bytes};
    return Result::kRecord;
  }
  return Result::kEmpty;
}

void RingReader::Release(uint64_t offset, uint32_t bytes) {
  for (uint32_t line = 0; line < bytes; line += kRingLine) {
    LineState(ring_ + offset + line)->store(0, std::memory_order_relaxed);
  }
  position_ += bytes;
  // Publishes the zeroed lines to the client's threads that will reserve them next.
  header_->head.store(position_, std::memory_order_release);
}

void RingReader::AnnounceSleep() {
  asleep_.store(true, std::memory_order_seq_cst);
  header_->reader_asleep.store(1, std::memory_order_seq_cst);
  // Either the client sees the 1 after its commit, or this thread sees the commit.
  std::atomic_thread_fence(std::memory_order_seq_cst);
}

void RingReader::CancelSleep() {
  asleep_.store(false, std::memory_order_relaxed);
  header_->reader_asleep.store(0, std::memory_order_relaxed);
}

bool RingReader::SleepNow(std::chrono::nanoseconds timeout) {
  constexpr std::chrono::seconds kNearlyNoLimit(1);
  int result = timeout == kNoLimit ? FutexWaitForEither(&header_->reader_asleep, 1, &woken_, 0)
                                   : FutexWait(&header_->reader_asleep, 1, timeout);
  if (timeout == kNoLimit && (result == ENOSYS || result == EPERM))
    result = FutexWait(&header_->reader_asleep, 1, kNearlyNoLimit);
  CancelSleep();
  return result != EFAULT;
}

void RingReader::Wake() {
  woken_.store(1, std::memory_order_seq_cst);
  if (!asleep_.load(std::memory_order_seq_cst)) return;
  FutexWake(&woken_);
  header_->reader_asleep.store(0, std::memory_order_seq_cst);
  FutexWake(&header_->reader_asleep);
}

RingReader::Result RingReader::Violation(std::string text) {
  violation_ = std::move(text);
  return Result::kViolation;
}

}  // namespace detshare
