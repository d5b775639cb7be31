// Records from a ring that holds any bytes (ring_reader.h). The input: four bytes, of which the
// changes to the ring between the reads follow (0: none), then the beginning of the ring.
#include <algorithm>
#include <cstring>

#include "server/shared_memory/ring_reader.h"
#include "tests/fuzzing/check.h"
#include "tests/server/shared_memory/ring_memory.h"

namespace detshare {
namespace {

constexpr uint64_t kRingBytes = 2 * kMaxRecordBytes;

// `bytes` of the record that was read are as they were in the ring at `offset`, where the first
// word of each line is zero again.
void CheckCopy(const uint8_t* ring, uint64_t offset, std::span<const uint8_t> bytes) {
  for (size_t i = 0; i < bytes.size(); ++i) {
    const bool freed = (offset + i) % kRingLine < sizeof(uint32_t);
    FUZZ_CHECK(ring[offset + i] == (freed ? 0 : bytes[i]));
  }
}

void CheckRecord(const RingRecord& record, const uint8_t* ring, uint64_t begin, uint64_t end) {
  FUZZ_CHECK(record.op != kOpPadding);
  FUZZ_CHECK(record.reply_slot == kNoReply || record.reply_slot < RingMemory::kReplies);
  FUZZ_CHECK(record.payload.size() <= kMaxPayloadBytes);
  const uint64_t args_room = (record.args.size() + 7) / 8 * 8;
  const uint64_t used = sizeof(RecordHeader) + args_room + record.payload.size();
  const uint64_t consumed = end - begin;
  FUZZ_CHECK(used <= consumed && used <= kMaxRecordBytes);
  // Padding may lie in front of the record, or room behind its payload: then it is not known where
  // it began.
  if (consumed - used >= kRingLine) return;
  const uint64_t at = begin % kRingBytes + sizeof(RecordHeader);
  CheckCopy(ring, at, record.args);
  CheckCopy(ring, at + args_room, record.payload);
}

void ReadAll(std::span<const uint8_t> bytes, uint32_t churn) {
  RingMemory memory(kRingBytes);
  std::memcpy(memory.ring(), bytes.data(), std::min<uint64_t>(bytes.size(), kRingBytes));
  RingReader reader(memory.header(), memory.ring(), kRingBytes, RingMemory::kReplies);
  RingRecord record;
  // Each read that is not empty consumes a line at least, and lines that are consumed are zero.
  for (uint64_t reads = 0; reads < 4 * kRingBytes / kRingLine; ++reads) {
    const uint64_t before = reader.position();
    const bool ready = reader.Ready();
    reader.LookAhead([](uint16_t op, uint32_t) { FUZZ_CHECK(op != kOpPadding); });
    FUZZ_CHECK(reader.seen() >= before && reader.seen() - before < 2 * kRingBytes);
    const RingReader::Result result = reader.Read(&record);
    FUZZ_CHECK(ready == (result != RingReader::Result::kEmpty || reader.position() != before));
    FUZZ_CHECK((result == RingReader::Result::kViolation) == !reader.violation().empty());
    FUZZ_CHECK(reader.position() % kRingLine == 0);
    FUZZ_CHECK(memory.header()->head.load() == reader.position());
    if (result == RingReader::Result::kViolation) {
      FUZZ_CHECK(reader.Read(&record) == RingReader::Result::kViolation);
      return;
    }
    if (result == RingReader::Result::kEmpty) {
      if (reader.position() == before) return;
      continue;
    }
    FUZZ_CHECK(reader.position() > before);
    CheckRecord(record, memory.ring(), before, reader.position());
    if (churn == 0) continue;
    churn = churn * 1664525 + 1013904223;
    memory.header()->tail.store(churn * uint64_t{0x9E3779B97F4A7C15});
    memory.ring()[churn % kRingBytes] = static_cast<uint8_t>(churn >> 24);
  }
}

}  // namespace
}  // namespace detshare

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  uint32_t churn = 0;
  if (size < sizeof(churn)) return 0;
  std::memcpy(&churn, data, sizeof(churn));
  detshare::ReadAll({data + sizeof(churn), size - sizeof(churn)}, churn);
  return 0;
}
