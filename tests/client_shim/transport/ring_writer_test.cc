#include "client_shim/transport/ring_writer.h"

#include <sched.h>

#include <catch2/catch.hpp>
#include <map>
#include <thread>

#include "tests/client_shim/transport/fake_region.h"

namespace detshare::shim {
namespace {

constexpr uint64_t kRing = 2 * kMaxRecordBytes;

struct Args {
  uint64_t thread;
  uint64_t number;
};

bool Write(RingWriter& ring, uint16_t op, const Args& args, uint32_t payload_bytes, uint8_t fill) {
  const RingWriter::Record record = ring.Reserve({op, 3, 4, kNoReply}, sizeof(Args), payload_bytes);
  if (!record) return false;
  memcpy(record.args, &args, sizeof(args));
  memset(record.payload, fill, payload_bytes);
  ring.Commit(record);
  return true;
}

TEST_CASE("A record is invisible until it is committed") {
  FakeRegion region(kRing);
  RingWriter ring(region.header(), region.ring(), region.ring_bytes());
  FakeRegion::Record read;
  const RingWriter::Record record = ring.Reserve({7, 0, 0, kNoReply}, sizeof(Args), 5);
  REQUIRE(record);
  CHECK_FALSE(region.Read(&read));
  const Args args{1, 2};
  memcpy(record.args, &args, sizeof(args));
  memcpy(record.payload, "hello", 5);
  ring.Commit(record);
  REQUIRE(region.Read(&read));
  CHECK(read.op == 7);
  CHECK(read.reply_slot == kNoReply);
  CHECK(memcmp(read.args.data(), &args, sizeof(args)) == 0);
  CHECK(memcmp(read.payload.data(), "hello", 5) == 0);
  CHECK_FALSE(region.Read(&read));
}

TEST_CASE("A record says which operation, device, context and reply slot it is for") {
  FakeRegion region(kRing);
  RingWriter ring(region.header(), region.ring(), region.ring_bytes());
  const RingWriter::Record record = ring.Reserve({7, 3, 4, 5}, 8, 9);
  REQUIRE(record);
  CHECK(record.header->op == 7);
  CHECK(record.header->device == 3);
  CHECK(record.header->context == 4);
  CHECK(record.header->reply_slot == 5);
  CHECK(record.header->args_bytes == 8);
  CHECK(record.header->payload_bytes == 9);
}

TEST_CASE("Records are read in the order of their reservations, not of their commits") {
  FakeRegion region(kRing);
  RingWriter ring(region.header(), region.ring(), region.ring_bytes());
  const RingWriter::Record first = ring.Reserve({1, 0, 0, kNoReply}, 8, 0);
  const RingWriter::Record second = ring.Reserve({2, 0, 0, kNoReply}, 8, 0);
  CHECK(first.position < second.position);
  ring.Commit(second);
  FakeRegion::Record read;
  CHECK_FALSE(region.Read(&read));
  ring.Commit(first);
  REQUIRE(region.Read(&read));
  CHECK(read.op == 1);
  REQUIRE(region.Read(&read));
  CHECK(read.op == 2);
}

TEST_CASE("Records of every size arrive whole, whatever the end of the ring cuts off") {
  FakeRegion region(kRing);
  RingWriter ring(region.header(), region.ring(), region.ring_bytes());
  uint32_t bytes = 1;
  for (uint64_t number = 0; number < 3000; ++number) {
    bytes = (bytes * 2654435761u + 12345u) % (kMaxPayloadBytes - 64);
    const auto fill = static_cast<uint8_t>(number);
    REQUIRE(Write(ring, 9, {0, number}, bytes, fill));
    FakeRegion::Record read;
    REQUIRE(region.Read(&read));
    Args args;
    memcpy(&args, read.args.data(), sizeof(args));
    CHECK(args.number == number);
    CHECK(read.payload == std::vector<std::byte>(bytes, std::byte{fill}));
  }
}

TEST_CASE("A record that is too long, or a closed session, gets no room") {
  FakeRegion region(kRing);
  RingWriter ring(region.header(), region.ring(), region.ring_bytes());
  CHECK_FALSE(ring.Reserve({1, 0, 0, kNoReply}, 8, kMaxRecordBytes));
  CHECK(ring.Reserve({1, 0, 0, kNoReply}, 8, kMaxPayloadBytes));
  region.header().closed.store(1);
  CHECK_FALSE(ring.Reserve({1, 0, 0, kNoReply}, 8, 0));
}

TEST_CASE("A wait for room in a full ring ends when the session is closed") {
  FakeRegion region(kRing);
  RingWriter ring(region.header(), region.ring(), region.ring_bytes());
  uint64_t written = 0;
  while (ring.tail() < kRing) REQUIRE(Write(ring, 1, {0, written++}, 32, 0));
  std::atomic<bool> refused{false};
  std::thread writer([&] { refused = !Write(ring, 1, {0, 0}, 32, 0); });
  region.header().closed.store(1, std::memory_order_release);
  writer.join();
  CHECK(refused);
}

TEST_CASE("A sleeping reader is woken once, by the commit and not by the reservation") {
  FakeRegion region(kRing);
  RingWriter ring(region.header(), region.ring(), region.ring_bytes());
  region.header().reader_asleep.store(1);
  const RingWriter::Record record = ring.Reserve({1, 0, 0, kNoReply}, 8, 0);
  CHECK(region.header().reader_asleep.load() == 1);
  CHECK(region.header().client_cpu.load() == 0);
  ring.Commit(record);
  CHECK(region.header().reader_asleep.load() == 0);
  // The reader learns where the client is.
  cpu_set_t cpus;
  REQUIRE(sched_getaffinity(0, sizeof cpus, &cpus) == 0);
  REQUIRE(region.header().client_cpu.load() >= 1);
  CHECK(CPU_ISSET(region.header().client_cpu.load() - 1, &cpus));
}

TEST_CASE("Every record of many threads arrives once, and each thread's in order") {
  FakeRegion region(kRing);
  RingWriter ring(region.header(), region.ring(), region.ring_bytes());
  constexpr uint64_t kThreads = 4, kRecords = 4000;
  std::vector<std::thread> writers;
  for (uint64_t thread = 0; thread < kThreads; ++thread) {
    writers.emplace_back([&ring, thread] {
      for (uint64_t number = 0; number < kRecords; ++number) {
        Write(ring, 5, {thread, number},
              static_cast<uint32_t>((number * 131 + thread * 977) % 3000),
              static_cast<uint8_t>(thread));
      }
    });
  }
  std::map<uint64_t, uint64_t> next;
  uint64_t wrong = 0, position = 0;
  for (uint64_t read_count = 0; read_count < kThreads * kRecords;) {
    FakeRegion::Record read;
    if (!region.Read(&read)) {
      std::this_thread::yield();
      continue;
    }
    ++read_count;
    Args args;
    memcpy(&args, read.args.data(), sizeof(args));
    if (args.number != next[args.thread]++) ++wrong;
    for (const std::byte byte : read.payload) wrong += byte != static_cast<std::byte>(args.thread);
    if (read_count > 1 && read.position <= position) ++wrong;
    position = read.position;
  }
  for (std::thread& writer : writers) writer.join();
  CHECK(wrong == 0);
  CHECK(region.header().head.load() == ring.tail());
}

TEST_CASE("A payload begins at a multiple of 8 bytes behind arguments of any length") {
  FakeRegion region(kRing);
  RingWriter ring(region.header(), region.ring(), region.ring_bytes());
  for (uint32_t bytes = 0; bytes <= 40; ++bytes) {
    const RingWriter::Record record = ring.Reserve({7, 0, 0, kNoReply}, bytes, 70);
    REQUIRE(record);
    memset(record.args, 1, bytes);
    memset(record.payload, 2, 70);
    ring.Commit(record);
    FakeRegion::Record read;
    REQUIRE(region.Read(&read));
    CHECK(read.args == std::vector<std::byte>(bytes, std::byte{1}));
    CHECK(read.payload == std::vector<std::byte>(70, std::byte{2}));
  }
}

TEST_CASE("The reserved fields of a record are zero, whatever its lines held before") {
  FakeRegion region(kRing);
  RingWriter ring(region.header(), region.ring(), region.ring_bytes());
  FakeRegion::Record read;
  // Each record begins where an earlier one had its payload.
  for (uint32_t bytes = 2000; ring.tail() < 3 * kRing; bytes += 64) {
    const RingWriter::Record record = ring.Reserve({7, 0, 0, kNoReply}, 8, bytes);
    REQUIRE(record);
    CHECK(record.header->reserved == 0);
    CHECK(record.header->reserved2 == 0);
    memset(record.payload, 0xFF, bytes);
    ring.Commit(record);
    REQUIRE(region.Read(&read));
  }
}

}  // namespace
}  // namespace detshare::shim
