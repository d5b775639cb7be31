#include "server/shared_memory/ring_reader.h"

#include <catch2/catch.hpp>
#include <cstring>
#include <thread>
#include <utility>
#include <vector>

#include "tests/server/shared_memory/ring_memory.h"

namespace detshare {
namespace {

constexpr uint64_t kRing = 256 * 1024;
using Result = RingReader::Result;

struct Fixture {
  RingMemory memory{kRing};
  RingReader reader{memory.header(), memory.ring(), kRing, RingMemory::kReplies};
  RingTestClient client{memory.header()};
  RingRecord record;
};

RawHeader Header(uint32_t bytes, uint16_t op = 1003) {
  RawHeader header;
  header.bytes = bytes;
  header.op = op;
  return header;
}

TEST_CASE("An empty ring gives no record") {
  Fixture f;
  CHECK(f.reader.Read(&f.record) == Result::kEmpty);
  CHECK_FALSE(f.reader.Ready());
}

TEST_CASE("A record arrives as it was written, and its lines are free again") {
  Fixture f;
  f.client.device = 3;
  f.client.context = 7;
  std::vector<uint8_t> payload(200);
  for (size_t i = 0; i < payload.size(); ++i) payload[i] = static_cast<uint8_t>(i + 1);
  const uint64_t args[2] = {11, 22};
  f.client.Submit(1003, args, sizeof(args), payload, 5);
  REQUIRE(f.reader.Read(&f.record) == Result::kRecord);
  CHECK(f.record.op == 1003);
  CHECK(f.record.device == 3);
  CHECK(f.record.context == 7);
  CHECK(f.record.reply_slot == 5);
  REQUIRE(f.record.args.size() == sizeof(args));
  CHECK(std::memcmp(f.record.args.data(), args, sizeof(args)) == 0);
  CHECK(std::vector<uint8_t>(f.record.payload.begin(), f.record.payload.end()) == payload);
  CHECK(f.reader.position() == f.client.tail());
  CHECK(f.memory.header()->head.load() == f.client.tail());
  for (uint64_t at = 0; at < f.client.tail(); at += kRingLine) {
    uint32_t word;
    std::memcpy(&word, f.memory.ring() + at, sizeof(word));
    CHECK(word == 0);
  }
  CHECK(f.reader.Read(&f.record) == Result::kEmpty);
}

TEST_CASE("A look ahead sees each committed record once, and reads none") {
  Fixture f;
  std::vector<std::pair<uint16_t, uint32_t>> seen;
  const auto look = [&] {
    f.reader.LookAhead([&](uint16_t op, uint32_t slot) { seen.emplace_back(op, slot); });
  };
  look();
  CHECK(seen.empty());
  f.client.Submit(1003, nullptr, 0, std::vector<uint8_t>(200), kNoReply);
  f.client.Submit(1004, nullptr, 0, {}, 5);
  look();
  look();
  CHECK(seen == std::vector<std::pair<uint16_t, uint32_t>>{{1003, kNoReply}, {1004, 5}});
  CHECK(f.reader.position() == 0);
  CHECK(f.reader.seen() == f.client.tail());
  REQUIRE(f.reader.Read(&f.record) == Result::kRecord);
  CHECK(f.record.op == 1003);
  REQUIRE(f.reader.Read(&f.record) == Result::kRecord);
  f.client.Submit(1005, nullptr, 0, {}, kNoReply);
  REQUIRE(f.reader.Read(&f.record) == Result::kRecord);
  look();
  CHECK(seen.size() == 2);
  CHECK(f.reader.seen() == f.client.tail());
}

TEST_CASE("A look ahead goes around the ring, and stops at a malformed record") {
  Fixture f;
  int seen = 0;
  const auto look = [&] { f.reader.LookAhead([&](uint16_t, uint32_t) { ++seen; }); };
  for (int i = 0; i < 100; ++i) {
    f.client.Submit(1003, nullptr, 0, std::vector<uint8_t>(10'000), kNoReply);
    look();
    CHECK(seen == i + 1);
    REQUIRE(f.reader.Read(&f.record) == Result::kRecord);
  }
  RawHeader header = Header(kRingLine + 1);
  f.client.SubmitRaw(header, {}, kRingLine);
  look();
  CHECK(seen == 100);
  CHECK(f.reader.Read(&f.record) == Result::kViolation);
}

TEST_CASE("The copy does not change when the client changes the ring afterwards") {
  Fixture f;
  const uint64_t value = 0x1122334455667788;
  f.client.Submit(1003, &value, sizeof(value), {}, kNoReply);
  REQUIRE(f.reader.Read(&f.record) == Result::kRecord);
  std::memset(f.memory.ring(), 0xFF, kRing);
  CHECK(std::memcmp(f.record.args.data(), &value, sizeof(value)) == 0);
}

TEST_CASE("Records of all sizes go around the ring many times") {
  Fixture f;
  uint32_t state = 1;
  for (int i = 0; i < 3000; ++i) {
    state = state * 1664525 + 1013904223;
    std::vector<uint8_t> payload((state >> 8) % (kMaxPayloadBytes / 4));
    if (i % 100 == 0) payload.resize(kMaxPayloadBytes);
    for (size_t k = 0; k < payload.size(); ++k) payload[k] = static_cast<uint8_t>(k * 7 + i);
    const uint64_t args = static_cast<uint64_t>(i);
    f.client.Submit(1003, &args, sizeof(args), payload, kNoReply);
    REQUIRE(f.reader.Read(&f.record) == Result::kRecord);
    REQUIRE(std::memcmp(f.record.args.data(), &args, sizeof(args)) == 0);
    REQUIRE(f.record.payload.size() == payload.size());
    REQUIRE((payload.empty() ||
             std::memcmp(f.record.payload.data(), payload.data(), payload.size()) == 0));
  }
  CHECK(f.reader.violation().empty());
}

TEST_CASE("The reader does not believe the client's own position") {
  Fixture f;
  f.memory.header()->tail.store(UINT64_MAX);
  f.memory.header()->head.store(12345);
  CHECK(f.reader.Read(&f.record) == Result::kEmpty);
  f.client.SubmitRaw(Header(kRingLine), {}, kRingLine);
  f.memory.header()->tail.store(0);
  CHECK(f.reader.Read(&f.record) == Result::kRecord);
  CHECK(f.memory.header()->head.load() == kRingLine);
}

TEST_CASE("Every malformed record is named and ends the reading") {
  Fixture f;
  std::string expected;
  SECTION("a state word that is neither free nor committed") {
    const uint32_t word = 7;
    std::memcpy(f.memory.ring(), &word, sizeof(word));
    expected = "first word";
  }
  SECTION("a length of nothing") {
    f.client.SubmitRaw(Header(0), {}, kRingLine);
    expected = "whole lines";
  }
  SECTION("a length that is no multiple of a line") {
    f.client.SubmitRaw(Header(65), {}, kRingLine);
    expected = "whole lines";
  }
  SECTION("a length beyond the longest record") {
    f.client.SubmitRaw(Header(kMaxRecordBytes + kRingLine), {}, kRingLine);
    expected = "too long";
  }
  SECTION("a length beyond 2^31") {
    f.client.SubmitRaw(Header(0xFFFFFFC0), {}, kRingLine);
    expected = "too long";
  }
  SECTION("padding that is too long") {
    f.client.SubmitRaw(Header(0xFFFFFFC0, kOpPadding), {}, kRingLine);
    expected = "too long";
  }
  SECTION("a length beyond the end of the ring") {
    const uint64_t args = 1;
    while (f.client.tail() < kRing - kRingLine) {
      f.client.Submit(1003, &args, sizeof(args), {}, kNoReply);
      REQUIRE(f.reader.Read(&f.record) == Result::kRecord);
    }
    f.client.SubmitRaw(Header(2 * kRingLine), {}, kRingLine);
    expected = "crosses the end";
  }
  SECTION("arguments beyond the record") {
    RawHeader header = Header(kRingLine);
    header.args_bytes = 33;
    f.client.SubmitRaw(header, {}, kRingLine);
    expected = "do not fit";
  }
  SECTION("a payload beyond the record") {
    RawHeader header = Header(kRingLine);
    header.args_bytes = 8;
    header.payload_bytes = 25;
    f.client.SubmitRaw(header, {}, kRingLine);
    expected = "do not fit";
  }
  SECTION("a payload whose length overflows") {
    RawHeader header = Header(kRingLine);
    header.payload_bytes = 0xFFFFFFF0;
    f.client.SubmitRaw(header, {}, kRingLine);
    expected = "do not fit";
  }
  SECTION("a reply slot that does not exist") {
    RawHeader header = Header(kRingLine);
    header.reply_slot = RingMemory::kReplies;
    f.client.SubmitRaw(header, {}, kRingLine);
    expected = "reply slot";
  }
  SECTION("reserved fields that are used") {
    RawHeader header = Header(kRingLine);
    header.reserved = 1;
    f.client.SubmitRaw(header, {}, kRingLine);
    expected = "reserved";
  }
  SECTION("the last reserved field that is used") {
    RawHeader header = Header(kRingLine);
    header.reserved2 = 1;
    f.client.SubmitRaw(header, {}, kRingLine);
    expected = "reserved";
  }
  SECTION("a payload that fits only without the gap behind the arguments") {
    RawHeader header = Header(kRingLine);
    header.args_bytes = 25;
    header.payload_bytes = 7;
    f.client.SubmitRaw(header, {}, kRingLine);
    expected = "do not fit";
  }
  SECTION("a payload that is longer than any") {
    const uint32_t bytes = kMaxRecordBytes;
    RawHeader header = Header(bytes);
    header.payload_bytes = bytes;
    f.client.SubmitRaw(header, {}, bytes);
    expected = "do not fit";
  }
  REQUIRE(f.reader.Read(&f.record) == Result::kViolation);
  CHECK_THAT(f.reader.violation(), Catch::Contains(expected));
  CHECK(f.reader.Read(&f.record) == Result::kViolation);
}

TEST_CASE("A client that only commits padding does not keep the reader busy") {
  Fixture f;
  for (int i = 0; i < 40; ++i) f.client.SubmitRaw(Header(kRingLine, kOpPadding), {}, kRingLine);
  CHECK(f.reader.Read(&f.record) == Result::kEmpty);
  CHECK(f.reader.position() < f.client.tail());
  CHECK(f.reader.Ready());
}

TEST_CASE("A sleeping reader is woken by a commit and by Wake()") {
  Fixture f;
  SECTION("by a commit") {
    const auto limit =
        GENERATE(std::chrono::nanoseconds(std::chrono::seconds(60)), RingReader::kNoLimit);
    std::thread writer([&] {
      while (f.memory.header()->reader_asleep.load() == 0) std::this_thread::yield();
      const uint64_t args = 1;
      f.client.Submit(1003, &args, sizeof(args), {}, kNoReply);
    });
    while (!f.reader.Ready()) CHECK(f.reader.Sleep(limit, [] { return false; }));
    writer.join();
    CHECK(f.reader.Read(&f.record) == Result::kRecord);
  }
  SECTION("by Wake()") {
    std::atomic<bool> posted{false};
    std::thread other([&] {
      while (f.memory.header()->reader_asleep.load() == 0) std::this_thread::yield();
      posted.store(true);
      f.reader.Wake();
    });
    while (!posted.load())
      CHECK(f.reader.Sleep(std::chrono::seconds(60), [&] { return posted.load(); }));
    other.join();
  }
  SECTION("by Wake() alone, though the client says all the time that the reader sleeps") {
    std::atomic<bool> posted{false}, woken{false};
    std::thread client([&] {
      while (!woken.load()) f.memory.header()->reader_asleep.store(1);
    });
    std::thread other([&] {
      posted.store(true);
      f.reader.Wake();
    });
    while (!posted.load())
      CHECK(f.reader.Sleep(RingReader::kNoLimit, [&] { return posted.load(); }));
    woken.store(true);
    other.join();
    client.join();
    f.memory.header()->reader_asleep.store(0);
  }
  SECTION("by a Wake() that came before") {
    f.reader.Wake();
    CHECK(f.reader.Sleep(RingReader::kNoLimit, [] { return false; }));
  }
  SECTION("not at all when something was posted before") {
    CHECK(f.reader.Sleep(std::chrono::hours(1), [] { return true; }));
  }
  CHECK(f.memory.header()->reader_asleep.load() == 0);
}

TEST_CASE("Arguments of any length and their payload arrive separately") {
  Fixture f;
  for (uint32_t bytes = 0; bytes <= 40; ++bytes) {
    const std::vector<uint8_t> args(bytes, 1), payload(70, 2);
    f.client.Submit(1003, args.data(), bytes, payload, kNoReply);
    REQUIRE(f.reader.Read(&f.record) == Result::kRecord);
    CHECK(std::vector<uint8_t>(f.record.args.begin(), f.record.args.end()) == args);
    CHECK(std::vector<uint8_t>(f.record.payload.begin(), f.record.payload.end()) == payload);
  }
}

TEST_CASE("The device of the next record is known before the record is read") {
  Fixture f;
  const uint64_t args = 1;
  for (const uint16_t device : {uint16_t{5}, uint16_t{0}, uint16_t{0xFFFF}}) {
    f.client.device = device;
    f.client.Submit(1003, &args, sizeof(args), {}, kNoReply);
    REQUIRE(f.reader.Ready());
    CHECK(f.reader.NextDevice() == device);
    REQUIRE(f.reader.Read(&f.record) == Result::kRecord);
  }
}

TEST_CASE("The operation of the next record is known, also behind the padding at the ring's end") {
  Fixture f;
  for (uint16_t i = 0; i < 100; ++i) {
    const uint16_t op = static_cast<uint16_t>(1000 + i);
    f.client.Submit(op, nullptr, 0, std::vector<uint8_t>(10'000), kNoReply);
    CHECK(f.reader.NextOp() == op);
    REQUIRE(f.reader.Read(&f.record) == Result::kRecord);
  }
  f.client.SubmitRaw(Header(kRingLine, kOpPadding), {}, kRingLine);
  CHECK(f.reader.NextOp() == kOpPadding);
}

}  // namespace
}  // namespace detshare
