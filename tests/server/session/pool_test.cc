// Memory pools, as clients name them.
#include <catch2/catch.hpp>

#include "coroutine_runtime/status_cuda.h"
#include "proto/wire/memory.h"
#include "proto/wire/stream.h"
#include "tests/server/daemon_fixture.h"
#include "tests/server/soft_daemon.h"

namespace detshare {
namespace {

constexpr uint32_t kReleaseThreshold = 4, kReservedCurrent = 5, kReservedHigh = 6;

struct PoolFixture {
  explicit PoolFixture(int devices = 1) : daemon({}, devices), client(daemon.socket()) {
    REQUIRE(client.Open());
    client.CreateStream(1);
  }
  RingTestClient& ring() { return *client.ring; }
  int Create(PoolId pool, uint64_t max = 0) {
    return ring().Call(Op::cuMemPoolCreate, wire::cuMemPoolCreate{max, pool, 0});
  }
  int Destroy(PoolId pool) {
    return ring().Call(Op::cuMemPoolDestroy, wire::cuMemPoolDestroy{pool, 0});
  }
  uint64_t Allocate(PoolId pool, uint64_t bytes, int want = 0) {
    wire::cuMemAllocAsync_Reply reply{};
    CHECK(ring().Call(Op::cuMemAllocAsync, wire::cuMemAllocAsync{bytes, 1, pool}, &reply) == want);
    return reply.address;
  }
  int Set(PoolId pool, uint32_t attribute, uint64_t value) {
    return ring().Call(Op::cuMemPoolSetAttribute,
                       wire::cuMemPoolSetAttribute{value, pool, attribute});
  }
  int Get(PoolId pool, uint32_t attribute, uint64_t* value) {
    wire::cuMemPoolGetAttribute_Reply reply{};
    const int result = ring().Call(Op::cuMemPoolGetAttribute,
                                   wire::cuMemPoolGetAttribute{pool, attribute}, &reply);
    *value = reply.value;
    return result;
  }
  uint64_t Reserved(PoolId pool) {
    uint64_t value = 0;
    CHECK(Get(pool, kReservedCurrent, &value) == 0);
    return value;
  }
  int Access(PoolId pool, uint32_t device, uint32_t access) {
    return ring().Call(Op::cuMemPoolSetAccess, wire::cuMemPoolSetAccess{pool, device, access, 0});
  }

  TestDaemon daemon;
  TestClient client;
};

TEST_CASE("A pool reports what it has reserved, and releases it when it is trimmed") {
  PoolFixture f;
  REQUIRE(f.Create(2) == 0);
  REQUIRE(f.Set(2, kReleaseThreshold, UINT64_MAX) == 0);
  const uint64_t address = f.Allocate(2, 1 << 20);
  const uint64_t reserved = f.Reserved(2);
  CHECK(reserved >= 1 << 20);
  CHECK(f.ring().Call(Op::cuMemFreeAsync, wire::cuMemFreeAsync{address, 1, 0}) == 0);
  CHECK(f.client.Synchronize(1) == 0);
  CHECK(f.Reserved(2) == reserved);
  CHECK(f.ring().Call(Op::cuMemPoolTrimTo, wire::cuMemPoolTrimTo{0, 2, 0}) == 0);
  CHECK(f.Reserved(2) == 0);
  uint64_t high = 0;
  CHECK(f.Get(2, kReservedHigh, &high) == 0);
  CHECK(high == reserved);
  CHECK(f.Set(2, kReservedHigh, 0) == 0);
  CHECK(f.Get(2, kReservedHigh, &high) == 0);
  CHECK(high == 0);
  CHECK(f.Destroy(2) == 0);
}

TEST_CASE("Unknown pools and unknown attributes of pools are refused") {
  PoolFixture f;
  uint64_t value = 0;
  CHECK(f.Create(0) == kCudaErrorInvalidValue);
  CHECK(f.Create(wire::kDefaultPool) == kCudaErrorInvalidValue);
  CHECK(f.Create(5) == 0);
  CHECK(f.Create(5) == kCudaErrorInvalidValue);
  for (const PoolId pool : {0u, 4u, 0xFFFFFFFFu}) {
    f.Allocate(pool, 100, kCudaErrorInvalidValue);
    CHECK(f.Destroy(pool) == kCudaErrorInvalidValue);
    CHECK(f.Set(pool, kReleaseThreshold, 1) == kCudaErrorInvalidValue);
    CHECK(f.Set(pool, kReservedHigh, 0) == kCudaErrorInvalidValue);
    CHECK(f.Get(pool, kReservedCurrent, &value) == kCudaErrorInvalidValue);
    CHECK(f.ring().Call(Op::cuMemPoolTrimTo, wire::cuMemPoolTrimTo{0, pool, 0}) ==
          kCudaErrorInvalidValue);
  }
  CHECK(f.Destroy(wire::kDefaultPool) == kCudaErrorInvalidValue);
  for (const uint32_t attribute : {0u, 1u, 3u, 5u, 7u, 8u, 0xFFFFFFFFu})
    CHECK(f.Set(5, attribute, 0) == kCudaErrorInvalidValue);
  CHECK(f.Set(5, kReservedHigh, 1) == kCudaErrorInvalidValue);
  for (const uint32_t attribute : {0u, 1u, 4u, 7u, 8u, 0xFFFFFFFFu})
    CHECK(f.Get(5, attribute, &value) == kCudaErrorInvalidValue);
  CHECK(f.Access(5, 0, 3) == kCudaErrorInvalidDevice);
  CHECK(f.Access(5, 77, 3) == kCudaErrorInvalidDevice);
  // A limit belongs to one pool.
  REQUIRE(f.Create(6, 4096) == 0);
  f.Allocate(6, UINT64_MAX, kCudaErrorOutOfMemory);
  f.Allocate(6, 8 << 20, kCudaErrorOutOfMemory);
  CHECK(f.Allocate(5, 8 << 20) != 0);
}

TEST_CASE("Another device gets access to a pool, and loses it") {
  PoolFixture f(2);
  REQUIRE(f.Create(2) == 0);
  const uint64_t before = f.Allocate(2, 1 << 20);
  CHECK(f.Access(2, 1, 3) == 0);
  CHECK(f.Access(2, 1, 3) == 0);
  const uint64_t after = f.Allocate(2, 1 << 20);
  CHECK((before != 0 && after != 0));
  for (const uint32_t access : {1u, 2u, 4u, 0xFFFFFFFFu})
    CHECK(f.Access(2, 1, access) == kCudaErrorInvalidValue);
  CHECK(f.Access(3, 1, 3) == kCudaErrorInvalidValue);
  CHECK(f.Access(2, 1, 0) == 0);
  CHECK(f.Access(2, 1, 0) == 0);
  CHECK(f.Access(3, 1, 0) == kCudaErrorInvalidValue);
}

TEST_CASE("Access to a pool ends when the other device's work is complete") {
  const SoftDaemon daemon({}, 2);
  TestClient client(daemon.socket());
  REQUIRE(client.Open());
  RingTestClient& ring = *client.ring;
  const auto on = [&](uint16_t device) {
    ring.device = device;
    ring.context = device + 1;
  };
  client.CreateStream(1);
  REQUIRE(ring.Call(Op::cuMemPoolCreate, wire::cuMemPoolCreate{0, 2, 0}) == 0);
  wire::cuMemAllocAsync_Reply memory{};
  REQUIRE(ring.Call(Op::cuMemAllocAsync, wire::cuMemAllocAsync{4096, 1, 2}, &memory) == 0);
  REQUIRE(ring.Call(Op::cuMemPoolSetAccess, wire::cuMemPoolSetAccess{2, 1, 3, 0}) == 0);
  // The second device fills the memory when a host function has returned.
  on(1);
  ring.Send(Op::cuStreamCreateWithPriority, wire::cuStreamCreateWithPriority{2, 2, 0, 0});
  ring.Send(Op::cuLaunchHostFunc, wire::cuLaunchHostFunc{2, 1, 1, {1, 0, 0}});
  ring.Send(Op::cuMemsetD2D32Async, wire::cuMemsetD2D32Async{memory.address, 0, 16, 1, 7, 1, 2, 0});
  on(0);
  const wire::cuMemPoolSetAccess none{2, 1, 0, 0};
  ring.slot(1).state.store(kReplyPending);
  ring.Submit(static_cast<uint16_t>(Op::cuMemPoolSetAccess), &none, sizeof(none), {}, 1);
  CHECK(ring.Call(Op::cuMemPoolTrimTo, wire::cuMemPoolTrimTo{0, 2, 0}) == 0);
  CHECK(ring.slot(1).state.load() == kReplyPending);
  ring.fence(1).store(1);
  CHECK(ring.Await(1) == 0);
  CHECK(*reinterpret_cast<uint8_t*>(memory.address) == 7);
  CHECK(ring.header().sticky_error.load() == 0);
}

TEST_CASE("The number of a client's pools is bounded") {
  PoolFixture f;
  PoolId pool = 2;
  int result = 0;
  while (result == 0 && pool < 5000) result = f.Create(pool++);
  CHECK(result == kCudaErrorOutOfMemory);
}

}  // namespace
}  // namespace detshare
