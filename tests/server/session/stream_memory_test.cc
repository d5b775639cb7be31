// Operations of streams on memory, as clients name them.
#include <catch2/catch.hpp>
#include <cstring>
#include <limits>

#include "coroutine_runtime/status_cuda.h"
#include "proto/wire/stream_memory_op.h"
#include "server/sessions/session_manager.h"
#include "tests/server/daemon_fixture.h"

namespace detshare {
namespace {

enum : uint32_t { kWait32 = 1, kWrite32 = 2, kFlush = 3, kWait64 = 4, kWrite64 = 5, kBarrier = 6 };

struct StreamMemoryFixture {
  StreamMemoryFixture() : daemon({}, 1), neighbour(daemon.socket()), client(daemon.socket()) {
    REQUIRE(neighbour.Open());
    secret = neighbour.Allocate(4096);
    REQUIRE(client.Open());
    client.CreateStream(1);
    memory = client.Allocate(4096);
  }
  int Call(const std::vector<wire::StreamMemoryOp>& operations, int64_t count = -1,
           StreamId stream = 1) {
    const auto* bytes = reinterpret_cast<const uint8_t*>(operations.data());
    return client.ring->Call(
        Op::cuStreamBatchMemOp_v2,
        wire::cuStreamBatchMemOp_v2{stream,
                                    static_cast<uint32_t>(count < 0 ? operations.size() : count)},
        std::span(bytes, operations.size() * sizeof(operations[0])));
  }

  TestDaemon daemon;
  TestClient neighbour, client;
  uint64_t secret = 0, memory = 0;
};

TEST_CASE("A batch of operations on memory is carried out") {
  StreamMemoryFixture f;
  CHECK(f.Call({{kWrite32, 0, f.memory, 7, 0},
                {kBarrier, 1, 0, 0, 0},
                {kWait32, 1, f.memory, 7, 0},
                {kWrite64, 0, f.memory + 8, 0x123456789ABCDEF0, 0}}) == 0);
  CHECK(f.client.Synchronize(1) == 0);
  CHECK(*reinterpret_cast<uint32_t*>(f.memory) == 7);
  CHECK(*reinterpret_cast<uint64_t*>(f.memory + 8) == 0x123456789ABCDEF0);
  CHECK(f.Call({}) == 0);
}

TEST_CASE("Operations on words outside the session's memory are refused") {
  StreamMemoryFixture f;
  for (const uint32_t operation : {kWait32, kWrite32, kWait64, kWrite64}) {
    for (const uint64_t address : {f.secret, uint64_t{0}, f.memory + 1,
                                   f.memory + (uint64_t{1} << 36), uint64_t{UINT64_MAX - 7}}) {
      CHECK(f.Call({{operation, 0, address, 1, 0}}) == kCudaErrorInvalidValue);
    }
  }
  // Half a word past the end of a mapping.
  CHECK(f.Call({{kWrite64, 0, f.memory + (2 << 20) - 4, 1, 0}}) == kCudaErrorInvalidValue);
}

TEST_CASE("Operations that do not exist, and flags that no operation has, are refused") {
  StreamMemoryFixture f;
  for (const uint32_t operation : {0u, 7u, 8u, 0xFFFFFFFFu})
    CHECK(f.Call({{operation, 0, f.memory, 1, 0}}) == kCudaErrorInvalidValue);
  CHECK(f.Call({{kWait32, 4, f.memory, 1, 0}}) == kCudaErrorInvalidValue);
  CHECK(f.Call({{kWrite32, 1, f.memory, 1, 0}}) == kCudaErrorInvalidValue);
  CHECK(f.Call({{kBarrier, 2, 0, 0, 0}}) == kCudaErrorInvalidValue);
  CHECK(f.Call({{kFlush, 1, 0, 0, 0}}) == kCudaErrorInvalidValue);
}

TEST_CASE("A flush of remote writes is not supported where the device has none") {
  StreamMemoryFixture f;
  CHECK(f.Call({{kFlush, 0, 0, 0, 0}}) == kCudaErrorNotSupported);
  CHECK(f.Call({{kWait32, 1u << 30, f.memory, 0, 0}}) == kCudaErrorNotSupported);
}

TEST_CASE("Waits that no word could end are refused") {
  StreamMemoryFixture f;
  CHECK(f.Call({{kWait32, 2, f.memory, 0, 0}}) == kCudaErrorInvalidValue);
  CHECK(f.Call({{kWait64, 2, f.memory, 0, 0}}) == kCudaErrorInvalidValue);
  CHECK(f.Call({{kWait32, 3, f.memory, 0xFFFFFFFF, 0}}) == kCudaErrorInvalidValue);
  CHECK(f.Call({{kWait64, 3, f.memory, UINT64_MAX, 0}}) == kCudaErrorInvalidValue);
  // The upper half of a 64-bit word may still end the wait.
  CHECK(f.Call({{kWait64, 3, f.memory, 0xFFFFFFFF, 0}}) == 0);
}

TEST_CASE("A count that exceeds the payload is refused") {
  StreamMemoryFixture f;
  const wire::StreamMemoryOp write{kWrite32, 0, f.memory, 1, 0};
  CHECK(f.Call({write}, 2) == kCudaErrorInvalidValue);
  CHECK(f.Call({write}, 0xFFFFFFFF) == kCudaErrorInvalidValue);
  CHECK(f.Call(std::vector<wire::StreamMemoryOp>(256, write)) == kCudaErrorInvalidValue);
  CHECK(f.Call(std::vector<wire::StreamMemoryOp>(255, write)) == 0);
  CHECK(f.Call({write}, 1, 99) == kCudaErrorInvalidHandle);
}

TEST_CASE("A session ends although its streams wait for words that nobody will write") {
  StreamMemoryFixture f;
  f.client.CreateStream(2);
  for (const StreamId stream : {StreamId{1}, StreamId{2}})
    REQUIRE(f.Call({{kWait32, 0, f.memory, 7, 0}, {kWrite32, 0, f.memory + 8, 1, 0}}, -1, stream) ==
            0);
  f.client.Close();
  CHECK(Eventually([&] { return f.daemon.daemon->manager().Sessions().size() == 1; }));
}

}  // namespace
}  // namespace detshare
