// Virtual memory management for a client: what it can do and what it may not do.
#include "proto/wire/virtual_memory.h"

#include <catch2/catch.hpp>
#include <set>

#include "coroutine_runtime/status_cuda.h"
#include "proto/wire/copy.h"
#include "proto/wire/stream.h"
#include "server/session/shared_memory_objects.h"
#include "server/sessions/session_manager.h"
#include "tests/server/daemon_fixture.h"
#include "tests/server/instant_device.h"
#include "tests/server/soft_daemon.h"

namespace detshare {
namespace {

constexpr uint64_t kUnit = wire::kPhysicalUnit;

struct VirtualMemoryFixture {
  explicit VirtualMemoryFixture(int devices = 1) : daemon({}, devices), client(daemon.socket()) {
    REQUIRE(client.Open());
    client.CreateStream(1);
  }
  RingTestClient& ring() { return *client.ring; }

  uint64_t Reserve(uint64_t bytes, uint64_t wanted = 0, int* result = nullptr) {
    wire::cuMemAddressReserve_Reply reply{};
    const int status =
        ring().Call(Op::cuMemAddressReserve, wire::cuMemAddressReserve{bytes, 0, wanted}, &reply);
    if (result != nullptr) *result = status;
    return status == 0 ? reply.address : 0;
  }
  wire::PhysicalId Create(uint64_t bytes, int* result = nullptr) {
    wire::cuMemCreate_Reply reply{};
    const int status = ring().Call(Op::cuMemCreate, wire::cuMemCreate{bytes}, &reply);
    if (result != nullptr) *result = status;
    return status == 0 ? reply.memory : 0;
  }
  int Map(uint64_t address, uint64_t bytes, wire::PhysicalId memory) {
    return ring().Call(Op::cuMemMap, wire::cuMemMap{address, bytes, memory, 0});
  }
  int Unmap(uint64_t address, uint64_t bytes) {
    return ring().Call(Op::cuMemUnmap, wire::cuMemUnmap{address, bytes});
  }
  int SetAccess(uint64_t address, uint64_t bytes, uint32_t devices, uint32_t access) {
    return ring().Call(Op::cuMemSetAccess, wire::cuMemSetAccess{address, bytes, devices, access});
  }
  int Fill(uint64_t address, uint64_t bytes, StreamId stream = 1) {
    return ring().Call(Op::cuMemsetD2D32Async,
                       wire::cuMemsetD2D32Async{address, 0, bytes, 1, 7, 1, stream, 0});
  }
  wire::ShareToken Export(wire::PhysicalId memory, int* result) {
    wire::cuMemExportToShareableHandle_Reply reply{};
    *result = ring().Call(Op::cuMemExportToShareableHandle,
                          wire::cuMemExportToShareableHandle{memory, 0}, &reply);
    return reply.token;
  }

  TestDaemon daemon;
  TestClient client;
};

int Import(TestClient& client, const wire::ShareToken& token,
           wire::cuMemImportFromShareableHandle_Reply* reply) {
  return client.ring->Call(Op::cuMemImportFromShareableHandle,
                           wire::cuMemImportFromShareableHandle{token}, reply);
}

TEST_CASE("Mapped memory can be used where access was given, until it is unmapped") {
  VirtualMemoryFixture f;
  const uint64_t range = f.Reserve(4 * kUnit);
  REQUIRE(range != 0);
  const wire::PhysicalId memory = f.Create(2 * kUnit);
  REQUIRE(memory != 0);
  REQUIRE(f.Map(range, 2 * kUnit, memory) == 0);
  REQUIRE(f.Map(range + 2 * kUnit, kUnit, memory) == 0);
  CHECK(f.Fill(range, 16) == kCudaErrorInvalidValue);
  REQUIRE(f.SetAccess(range, 3 * kUnit, 1, 3) == 0);
  CHECK(f.Fill(range, 16) == 0);
  CHECK(*reinterpret_cast<uint8_t*>(range + 2 * kUnit + 15) == 7);
  REQUIRE(f.SetAccess(range, 2 * kUnit, 1, 1) == 0);
  CHECK(f.Fill(range, 16) == kCudaErrorInvalidValue);
  // Memory that is for reading is a source and no destination.
  const auto copy = [&](uint64_t to, uint64_t from) {
    return f.ring().Call(Op::cuMemcpyAsync, f.client.CopyOf({to, wire::kAddress, 0},
                                                            {from, wire::kAddress, 0}, 16, 1));
  };
  CHECK(copy(range + 2 * kUnit, range) == 0);
  CHECK(copy(range, range + 2 * kUnit) == kCudaErrorInvalidValue);
  // The handle may be released first.
  CHECK(f.ring().Call(Op::cuMemRelease, wire::cuMemRelease{memory, 0}) == 0);
  CHECK(f.ring().Call(Op::cuMemRelease, wire::cuMemRelease{memory, 0}) == kCudaErrorInvalidValue);
  CHECK(f.Fill(range + 2 * kUnit, 16) == 0);
  CHECK(f.Unmap(range, 3 * kUnit) == 0);
  CHECK(f.Fill(range + 2 * kUnit, 16) == kCudaErrorInvalidValue);
  CHECK(f.ring().Call(Op::cuMemAddressFree, wire::cuMemAddressFree{range, 4 * kUnit}) == 0);
}

TEST_CASE("Invalid calls of virtual memory are refused and change nothing") {
  VirtualMemoryFixture f;
  int result = 0;
  for (const uint64_t bytes : {uint64_t{0}, kUnit + 1, uint64_t{1} << 60, UINT64_MAX}) {
    f.Reserve(bytes, 0, &result);
    CHECK(result != 0);
    f.Create(bytes, &result);
    CHECK(result != 0);
  }
  wire::cuMemAddressReserve_Reply reserved{};
  CHECK(f.ring().Call(Op::cuMemAddressReserve, wire::cuMemAddressReserve{kUnit, 3 * kUnit, 0},
                      &reserved) == kCudaErrorInvalidValue);
  CHECK(f.ring().Call(Op::cuMemAddressReserve,
                      wire::cuMemAddressReserve{kUnit, uint64_t{1} << 63, 0}, &reserved) != 0);
  const uint64_t range = f.Reserve(4 * kUnit, UINT64_MAX - 1);
  REQUIRE(range != 0);
  const wire::PhysicalId memory = f.Create(2 * kUnit);

  CHECK(f.Map(range, kUnit, 0) == kCudaErrorInvalidValue);
  CHECK(f.Map(range, kUnit, memory + 1) == kCudaErrorInvalidValue);
  CHECK(f.Map(range, 0, memory) == kCudaErrorInvalidValue);
  CHECK(f.Map(range + 1, kUnit, memory) == kCudaErrorInvalidValue);
  CHECK(f.Map(range, 3 * kUnit, memory) == kCudaErrorInvalidValue);
  CHECK(f.Map(range + 3 * kUnit, 2 * kUnit, memory) == kCudaErrorInvalidValue);
  CHECK(f.Map(range - kUnit, 2 * kUnit, memory) == kCudaErrorInvalidValue);
  CHECK(f.Map(0, kUnit, memory) == kCudaErrorInvalidValue);
  CHECK(f.Map(UINT64_MAX - kUnit + 1, kUnit, memory) == kCudaErrorInvalidValue);
  // Past the end of a range that lies below another one.
  const uint64_t below = f.Reserve(2 * kUnit);
  REQUIRE(below < range);
  CHECK(f.Map(below + kUnit, 2 * kUnit, memory) == kCudaErrorInvalidValue);
  // Memory of an ordinary allocation, and a range that no session has.
  const uint64_t ordinary = f.client.Allocate(kUnit);
  CHECK(f.Map(ordinary, kUnit, memory) == kCudaErrorInvalidValue);
  CHECK(f.SetAccess(ordinary, kUnit, 1, 1) == kCudaErrorInvalidValue);
  CHECK(f.Unmap(ordinary, kUnit) == kCudaErrorInvalidValue);
  CHECK(f.Fill(ordinary, 16) == 0);

  REQUIRE(f.Map(range, kUnit, memory) == 0);
  REQUIRE(f.Map(range + 2 * kUnit, 2 * kUnit, memory) == 0);
  CHECK(f.Map(range, kUnit, memory) == kCudaErrorInvalidValue);
  CHECK(f.Map(range + kUnit, 2 * kUnit, memory) == kCudaErrorInvalidValue);
  CHECK(f.SetAccess(range, 2 * kUnit, 1, 3) == kCudaErrorInvalidValue);
  CHECK(f.SetAccess(range, 4 * kUnit, 1, 3) == kCudaErrorInvalidValue);
  CHECK(f.SetAccess(range, kUnit, 1, 2) == kCudaErrorInvalidValue);
  CHECK(f.SetAccess(range, kUnit, 2, 12) == kCudaErrorInvalidValue);
  CHECK(f.SetAccess(range, UINT64_MAX & ~(kUnit - 1), 1, 3) == kCudaErrorInvalidValue);
  CHECK(f.Unmap(range + 2 * kUnit, kUnit) == kCudaErrorInvalidValue);
  CHECK(f.Unmap(range, 4 * kUnit) == kCudaErrorInvalidValue);
  CHECK(f.Unmap(range, 0) == kCudaErrorInvalidValue);
  CHECK(f.ring().Call(Op::cuMemAddressFree, wire::cuMemAddressFree{range, 4 * kUnit}) ==
        kCudaErrorInvalidValue);
  REQUIRE(f.Unmap(range, kUnit) == 0);
  REQUIRE(f.Unmap(range + 2 * kUnit, 2 * kUnit) == 0);
  CHECK(f.ring().Call(Op::cuMemAddressFree, wire::cuMemAddressFree{range, kUnit}) ==
        kCudaErrorInvalidValue);
  CHECK(f.ring().Call(Op::cuMemAddressFree, wire::cuMemAddressFree{range, 4 * kUnit}) == 0);
  CHECK(f.ring().header().sticky_error.load() == 0);
}

TEST_CASE("Memory that is unmapped stays until the work is complete, and nothing uses it anew") {
  const SoftDaemon daemon;
  TestClient client(daemon.socket());
  REQUIRE(client.Open());
  client.CreateStream(1);
  RingTestClient& ring = *client.ring;
  wire::cuMemAddressReserve_Reply reserved{};
  REQUIRE(ring.Call(Op::cuMemAddressReserve, wire::cuMemAddressReserve{kUnit, 0, 0}, &reserved) ==
          0);
  wire::cuMemCreate_Reply made{};
  REQUIRE(ring.Call(Op::cuMemCreate, wire::cuMemCreate{kUnit}, &made) == 0);
  const auto map = [&] {
    return ring.Call(Op::cuMemMap, wire::cuMemMap{reserved.address, kUnit, made.memory, 0});
  };
  const auto set_access = [&] {
    return ring.Call(Op::cuMemSetAccess, wire::cuMemSetAccess{reserved.address, kUnit, 1, 3});
  };
  REQUIRE(map() == 0);
  REQUIRE(set_access() == 0);
  // The stream fills the memory when a host function has returned.
  ring.Send(Op::cuLaunchHostFunc, wire::cuLaunchHostFunc{1, 1, 1, {1, 0, 0}});
  ring.Send(Op::cuMemsetD2D32Async,
            wire::cuMemsetD2D32Async{reserved.address, 0, 16, 1, 7, 1, 1, 0});
  const wire::cuMemUnmap unmap{reserved.address, kUnit};
  ring.slot(1).state.store(kReplyPending);
  ring.Submit(static_cast<uint16_t>(Op::cuMemUnmap), &unmap, sizeof(unmap), {}, 1);
  CHECK(set_access() == kCudaErrorInvalidValue);
  CHECK(map() == kCudaErrorInvalidValue);
  CHECK(ring.slot(1).state.load() == kReplyPending);
  ring.fence(1).store(1);
  CHECK(ring.Await(1) == 0);
  CHECK(ring.header().sticky_error.load() == 0);
  CHECK(map() == 0);
}

TEST_CASE("Memory that one process exports can be mapped by another of the same user") {
  VirtualMemoryFixture f;
  TestClient other(f.daemon.socket());
  REQUIRE(other.Open());
  other.CreateStream(1);
  const wire::PhysicalId memory = f.Create(kUnit);
  const uint64_t range = f.Reserve(kUnit);
  REQUIRE(f.Map(range, kUnit, memory) == 0);
  REQUIRE(f.SetAccess(range, kUnit, 1, 3) == 0);
  REQUIRE(f.Fill(range, kUnit) == 0);
  int result = -1;
  const wire::ShareToken token = f.Export(memory, &result);
  REQUIRE(result == 0);

  wire::cuMemImportFromShareableHandle_Reply imported{};
  REQUIRE(Import(other, token, &imported) == 0);
  CHECK(imported.bytes == kUnit);
  CHECK(imported.device == 0);
  // The exporting session ends. The memory does not.
  f.client.Close();
  wire::cuMemAddressReserve_Reply reserved{};
  REQUIRE(other.ring->Call(Op::cuMemAddressReserve, wire::cuMemAddressReserve{kUnit, 0, 0},
                           &reserved) == 0);
  REQUIRE(other.ring->Call(Op::cuMemMap,
                           wire::cuMemMap{reserved.address, kUnit, imported.memory, 0}) == 0);
  REQUIRE(other.ring->Call(Op::cuMemSetAccess,
                           wire::cuMemSetAccess{reserved.address, kUnit, 1, 3}) == 0);
  CHECK(*reinterpret_cast<uint8_t*>(reserved.address + kUnit - 1) == 7);
}

TEST_CASE("An invented token, or one whose memory is gone, opens nothing") {
  VirtualMemoryFixture f;
  wire::cuMemImportFromShareableHandle_Reply imported{};
  wire::ShareToken token{};
  CHECK(Import(f.client, token, &imported) == kCudaErrorInvalidValue);
  int result = -1;
  f.Export(77, &result);
  CHECK(result == kCudaErrorInvalidValue);
  const wire::PhysicalId memory = f.Create(kUnit);
  token = f.Export(memory, &result);
  REQUIRE(result == 0);
  wire::ShareToken guessed = token;
  guessed.bytes[15] ^= 1;
  CHECK(Import(f.client, guessed, &imported) == kCudaErrorInvalidValue);
  CHECK(f.ring().Call(Op::cuMemRelease, wire::cuMemRelease{memory, 0}) == 0);
  CHECK(Import(f.client, token, &imported) == kCudaErrorInvalidValue);
}

TEST_CASE("A session that exports memory again and again uses one token for it") {
  VirtualMemoryFixture f;
  const wire::PhysicalId memory = f.Create(kUnit);
  int result = -1;
  const wire::ShareToken first = f.Export(memory, &result);
  REQUIRE(result == 0);
  const wire::ShareToken second = f.Export(memory, &result);
  REQUIRE(result == 0);
  CHECK(std::equal(std::begin(first.bytes), std::end(first.bytes), second.bytes));
  // A handle that was imported names the same memory.
  wire::cuMemImportFromShareableHandle_Reply imported{};
  REQUIRE(Import(f.client, first, &imported) == 0);
  const wire::ShareToken third = f.Export(imported.memory, &result);
  REQUIRE(result == 0);
  CHECK(std::equal(std::begin(first.bytes), std::end(first.bytes), third.bytes));
}

TEST_CASE("A full table of tokens refuses memory until some of it ends") {
  SharedMemoryObjects objects(/*max_tokens=*/100);
  std::vector<std::shared_ptr<PhysicalMemory>> memories;
  const auto share = [&] {
    memories.push_back(std::make_shared<InstantMemory>(kUnit));
    return objects.Export(1000, {memories.back(), nullptr, 0, kUnit}).status();
  };
  for (int i = 0; i < 100; ++i) REQUIRE(share().ok());
  CHECK(CudaResultOf(share()) == kCudaErrorOutOfMemory);
  CHECK(objects.Export(1000, {memories.front(), nullptr, 0, kUnit}).ok());
  memories.clear();
  CHECK(share().ok());
}

TEST_CASE("Tokens are for one user only, and all different") {
  SharedMemoryObjects objects;
  const auto memory = std::make_shared<InstantMemory>(200 * kUnit);
  std::set<ShareTokenValue> tokens;
  for (uint64_t i = 0; i < 200; ++i) {
    const auto token = objects.Export(1000, {memory, nullptr, i * kUnit, kUnit});
    REQUIRE(token.ok());
    CHECK(tokens.insert(*token).second);
  }
  CHECK(objects.Import(1000, *tokens.begin())->memory == memory);
  CHECK_FALSE(objects.Import(1001, *tokens.begin()).ok());
  CHECK_FALSE(objects.Import(0, *tokens.begin()).ok());
}

TEST_CASE("A second device gets its own access to memory of the first") {
  VirtualMemoryFixture f(2);
  const wire::PhysicalId memory = f.Create(kUnit);
  const uint64_t range = f.Reserve(kUnit);
  REQUIRE(f.Map(range, kUnit, memory) == 0);
  REQUIRE(f.SetAccess(range, kUnit, 1, 3) == 0);
  const uint64_t allocated = f.client.Allocate(4096);
  f.ring().device = 1;
  f.ring().context = 2;
  f.ring().Send(Op::cuStreamCreateWithPriority, wire::cuStreamCreateWithPriority{2, 2, 0, 0});
  CHECK(f.Fill(allocated, 16, 2) == 0);  // memory of an ordinary allocation needs no access
  CHECK(f.Fill(range, 16, 2) == kCudaErrorInvalidValue);
  REQUIRE(f.SetAccess(range, kUnit, 2, 12) == 0);
  CHECK(f.Fill(range, 16, 2) == 0);
  CHECK(f.Unmap(range, kUnit) == 0);
  CHECK(f.Fill(range, 16, 2) == kCudaErrorInvalidValue);
}

TEST_CASE("Physical memory counts as its session's until the last mapping of it ends") {
  VirtualMemoryFixture f;
  const auto counted = [&] {
    return f.daemon.daemon->manager().Sessions().at(0).counters.device_memory;
  };
  const uint64_t range = f.Reserve(kUnit);
  const wire::PhysicalId memory = f.Create(kUnit);
  CHECK(counted() == kUnit);
  REQUIRE(f.Map(range, kUnit, memory) == 0);
  CHECK(f.ring().Call(Op::cuMemRelease, wire::cuMemRelease{memory, 0}) == 0);
  CHECK(counted() == kUnit);
  CHECK(f.Unmap(range, kUnit) == 0);
  CHECK(counted() == 0);
}

}  // namespace
}  // namespace detshare
