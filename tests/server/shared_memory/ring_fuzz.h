// One run of the ring reader over arbitrary bytes. The deterministic test and libFuzzer share it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>

#include "server/shared_memory/ring_reader.h"
#include "tests/server/shared_memory/ring_memory.h"

namespace detshare {

struct RingFuzzOutcome {
  int records = 0;
  bool violation = false;
  bool sound = true;  // every record that the reader returned kept the reader's promises
};

// Puts `bytes` into the ring and reads until the reader stops. Changes the ring between reads as
// `churn` says.
inline RingFuzzOutcome FuzzRing(std::span<const uint8_t> bytes, uint64_t ring_bytes,
                                uint32_t churn) {
  RingMemory memory(ring_bytes);
  std::memcpy(memory.ring(), bytes.data(), std::min<uint64_t>(bytes.size(), ring_bytes));
  RingReader reader(memory.header(), memory.ring(), ring_bytes, RingMemory::kReplies);
  RingFuzzOutcome outcome;
  RingRecord record;
  uint64_t sum = 0;
  // Each read that is not empty consumes at least one line, and consumed lines are zero.
  for (uint64_t reads = 0; reads < 4 * ring_bytes / kRingLine; ++reads) {
    const uint64_t before = reader.position();
    const RingReader::Result result = reader.Read(&record);
    if (result == RingReader::Result::kViolation) {
      outcome.violation = true;
      outcome.sound &= !reader.violation().empty();
      break;
    }
    if (result == RingReader::Result::kEmpty) {
      if (reader.position() == before) break;
      continue;
    }
    ++outcome.records;
    outcome.sound &= record.args.size() + record.payload.size() <= kMaxRecordBytes &&
                     record.payload.size() <= kMaxPayloadBytes && record.op != kOpPadding &&
                     (record.reply_slot == kNoReply || record.reply_slot < RingMemory::kReplies) &&
                     reader.position() > before && reader.position() % kRingLine == 0 &&
                     memory.header()->head.load() == reader.position();
    // Reads every byte, so that a sanitizer sees accesses out of bounds.
    for (const uint8_t byte : record.args) sum += byte;
    for (const uint8_t byte : record.payload) sum += byte;
    if (churn != 0) {
      churn = churn * 1664525 + 1013904223;
      memory.header()->tail.store(churn * uint64_t{0x9E3779B97F4A7C15});
      memory.ring()[churn % ring_bytes] = static_cast<uint8_t>(churn >> 24);
    }
  }
  asm volatile("" : : "r"(sum));
  return outcome;
}

}  // namespace detshare
