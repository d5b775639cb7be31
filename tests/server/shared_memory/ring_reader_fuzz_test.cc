// Deterministic random inputs for the ring reader, from noise to records with one wrong field.
#include <catch2/catch.hpp>
#include <random>
#include <vector>

#include "tests/server/shared_memory/ring_fuzz.h"

namespace detshare {
namespace {

constexpr uint64_t kRing = 2 * kMaxRecordBytes;

class Generator {
 public:
  explicit Generator(uint32_t seed) : random_(seed) {}
  uint32_t Below(uint32_t limit) { return static_cast<uint32_t>(random_() % limit); }
  uint32_t Any() { return static_cast<uint32_t>(random_()); }

  std::vector<uint8_t> Noise() {
    std::vector<uint8_t> bytes(kRing);
    Fill(bytes, 0, kRing);
    return bytes;
  }

  // Valid records one after the other, with `wrong` of their header fields replaced.
  std::vector<uint8_t> Records(int wrong) {
    std::vector<uint8_t> bytes(kRing, 0);
    uint64_t at = 0;
    while (at + kRingLine <= kRing) {
      const uint32_t args = Below(200);
      const uint32_t payload = Below(8) == 0 ? Below(kMaxPayloadBytes) : Below(500);
      uint32_t size = (32 + (args + 7) / 8 * 8 + payload + kRingLine - 1) / kRingLine * kRingLine;
      uint16_t op = static_cast<uint16_t>(1 + Below(3000));
      if (at + size > kRing) {
        size = static_cast<uint32_t>(kRing - at);
        op = kOpPadding;
      }
      uint32_t header[8] = {
          kCommitted, size,    op, Below(4), Below(3) == 0 ? Below(RingMemory::kReplies) : kNoReply,
          args,       payload, 0};
      if (op == kOpPadding && size > kMaxRecordBytes) break;
      Fill(bytes, at + sizeof(RecordHeader), size - sizeof(RecordHeader));
      std::memcpy(bytes.data() + at, header, sizeof(header));
      at += size;
    }
    for (int i = 0; i < wrong; ++i) {
      // Mostly in the first records, which are certainly read.
      const uint64_t line = Below(3) == 0 ? Below(kRing / kRingLine) : Below(16);
      const uint32_t interesting[] = {0,          1,          63,         64,         65,
                                      0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, kCommitted, Any()};
      const uint32_t value = interesting[Below(10)];
      std::memcpy(bytes.data() + line * kRingLine + 4 * Below(8), &value, sizeof(value));
    }
    return bytes;
  }

 private:
  // `count` is a multiple of 4.
  void Fill(std::vector<uint8_t>& bytes, uint64_t begin, uint64_t count) {
    for (uint64_t i = 0; i < count; i += sizeof(uint32_t)) {
      const uint32_t word = Any();
      std::memcpy(bytes.data() + begin + i, &word, sizeof(word));
    }
  }

  std::mt19937 random_;
};

TEST_CASE("All valid records are read") {
  for (uint32_t seed = 1; seed <= 50; ++seed) {
    const RingFuzzOutcome outcome = FuzzRing(Generator(seed).Records(0), kRing, 0);
    INFO("seed " << seed);
    CHECK(outcome.sound);
    CHECK_FALSE(outcome.violation);
    CHECK(outcome.records > 1);
  }
}

TEST_CASE("Random bytes never break the reader's promises") {
  for (uint32_t seed = 1; seed <= 300; ++seed) {
    Generator generator(seed);
    std::vector<uint8_t> bytes = generator.Noise();
    if (seed % 2 == 0) std::memcpy(bytes.data(), &kCommitted, sizeof(kCommitted));
    INFO("seed " << seed);
    CHECK(FuzzRing(bytes, kRing, seed).sound);
  }
}

TEST_CASE("Records with wrong fields never break the reader's promises") {
  int violations = 0;
  for (uint32_t seed = 1; seed <= 800; ++seed) {
    Generator generator(seed);
    const std::vector<uint8_t> bytes = generator.Records(1 + static_cast<int>(seed % 6));
    const RingFuzzOutcome outcome = FuzzRing(bytes, kRing, seed % 3 == 0 ? seed : 0);
    INFO("seed " << seed);
    CHECK(outcome.sound);
    violations += outcome.violation ? 1 : 0;
  }
  CHECK(violations > 100);
}

TEST_CASE("Truncated records never break the reader's promises") {
  for (uint32_t seed = 1; seed <= 300; ++seed) {
    Generator generator(seed);
    std::vector<uint8_t> bytes = generator.Records(0);
    bytes.resize(generator.Below(kRing));
    INFO("seed " << seed);
    CHECK(FuzzRing(bytes, kRing, 0).sound);
  }
}

}  // namespace
}  // namespace detshare
