// Sessions that together have more memory than the card.
#include <catch2/catch.hpp>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "proto/wire/ipc.h"
#include "proto/wire/stream.h"
#include "proto/wire/virtual_memory.h"
#include "tests/server/daemon_fixture.h"
#include "tests/server/grpc_stubs.h"
#include "tests/server/instant_device.h"
#include "tests/server/soft_daemon.h"
#include "tests/units.h"

namespace detshare {
namespace {

using wire::kAddress;
using wire::kStaging;

constexpr uint64_t kCard = 64 * kMiB;
constexpr policy::Nanoseconds kResidence = 5 * policy::kMillisecond;

uint64_t Mixed(uint64_t word, uint64_t seed, uint64_t index) {
  return (word ^ seed) * 6364136223846793005 + index;
}

// A daemon whose card has 64 MiB.
struct Swapping : TestDaemon {
  explicit Swapping(uint64_t swap_bytes = 1 << 30, policy::Nanoseconds idle_after = 0)
      : TestDaemon([&](Daemon::Options& options) {
          options.server.swap_bytes = swap_bytes;
          options.server.eviction.residence = kResidence;
          options.server.eviction.idle_after = idle_after;
          options.server.eviction.min_bytes = 0;
        }) {
    devices[0]->mutable_properties().total_memory = kCard;
    // mix(u64* a, u64 words, u64 seed): a[i] = Mixed(a[i], seed, i)
    devices[0]->recipes.push_back(
        {"mix", 24, [](InstantSpace&, const LaunchShape&, const std::byte* parameters) {
           uint64_t values[3];
           std::memcpy(values, parameters, sizeof(values));
           auto* const words = reinterpret_cast<uint64_t*>(values[0]);
           for (uint64_t i = 0; i < values[1]; ++i) words[i] = Mixed(words[i], values[2], i);
         }});
  }

  proto::Status Status() {
    TestClient onlooker(socket());
    grpc::ClientContext context;
    proto::Status status;
    REQUIRE(AdminOf(onlooker)->GetStatus(&context, proto::GetStatusRequest(), &status).ok());
    return status;
  }
  uint64_t OutOf(const TestClient& client) {
    const proto::Status status = Status();
    for (const proto::SessionStatus& session : status.sessions()) {
      if (session.session() == client.grant.session()) return session.swap().out();
    }
    return 0;
  }
};

// A program: its memory and the memory's expected contents.
struct Program {
  explicit Program(TestDaemon& daemon) : client(daemon.socket()) {
    REQUIRE(client.Open());
    client.CreateStream(1);
    mix = client.GetKernel(client.Load(), "mix");
  }
  int Allocate(uint64_t bytes) {
    int result = -1;
    const uint64_t address = client.Allocate(bytes, &result);
    if (result != 0) return result;
    addresses.push_back(address);
    expected.emplace_back(bytes / sizeof(uint64_t), 0);
    return 0;
  }
  // Makes one launch on each piece of memory. Returns false if the session ended.
  bool Work(uint64_t seed) {
    for (size_t i = 0; i < addresses.size(); ++i) {
      const uint64_t parameters[3] = {addresses[i], expected[i].size(), seed};
      client.ring->Send(Op::cuLaunchKernelEx, client.LaunchOf(mix, 1),
                        {reinterpret_cast<const uint8_t*>(parameters), sizeof(parameters)});
      for (uint64_t k = 0; k < expected[i].size(); ++k)
        expected[i][k] = Mixed(expected[i][k], seed, k);
    }
    return client.Synchronize(1) == 0;
  }
  // Reads everything through the staging area and compares it.
  bool Right() {
    constexpr uint64_t chunk = 64 << 10;
    for (size_t i = 0; i < addresses.size(); ++i) {
      const auto* const want = reinterpret_cast<const uint8_t*>(expected[i].data());
      const uint64_t bytes = expected[i].size() * sizeof(uint64_t);
      for (uint64_t done = 0; done < bytes; done += chunk) {
        const uint64_t part = std::min(chunk, bytes - done);
        client.ring->Send(
            Op::cuMemcpyAsync,
            client.CopyOf({0, kStaging, 0}, {addresses[i] + done, kAddress, 0}, part, 1));
        if (client.Synchronize(1) != 0) return false;
        if (std::memcmp(client.ring->staging(), want + done, part) != 0) return false;
      }
    }
    return true;
  }

  TestClient client;
  KernelId mix = 0;
  std::vector<uint64_t> addresses;
  std::vector<std::vector<uint64_t>> expected;
};

TEST_CASE(
    "Idle memory moves to the host when another session needs the card, and returns unchanged") {
  Swapping daemon;
  Program a(daemon), b(daemon);
  REQUIRE(a.Allocate(30 * kMiB) == 0);
  REQUIRE(a.Allocate(10 * kMiB) == 0);
  REQUIRE(a.Allocate(1000) == 0);
  REQUIRE(a.Work(1));
  CHECK(daemon.OutOf(a.client) == 0);

  REQUIRE(b.Allocate(50 * kMiB) == 0);
  REQUIRE(b.Work(2));
  CHECK(daemon.OutOf(a.client) >= 28 * kMiB);
  CHECK(daemon.Status().swap_used() == daemon.OutOf(a.client));
  CHECK(daemon.Status().swap_limit() == 1 << 30);

  CHECK(a.Right());
  CHECK(daemon.OutOf(a.client) == 0);
  CHECK(daemon.OutOf(b.client) > 0);
  REQUIRE(a.Work(3));
  CHECK(b.Right());
  CHECK(a.Right());
}

TEST_CASE("Three sessions that exceed the card twice keep their contents, whichever works next") {
  Swapping daemon;
  std::vector<std::unique_ptr<Program>> programs;
  for (int i = 0; i < 3; ++i) {
    programs.push_back(std::make_unique<Program>(daemon));
    REQUIRE(programs.back()->Allocate(24 * kMiB) == 0);
    REQUIRE(programs.back()->Allocate(16 * kMiB) == 0);
    REQUIRE(programs.back()->Allocate(64 << 10) == 0);
  }
  std::mt19937 random(20);
  for (uint64_t round = 0; round < 12; ++round) {
    Program& program = *programs[random() % 3];
    REQUIRE(program.Work(round));
    if (random() % 3 == 0) CHECK(program.Right());
  }
  for (auto& program : programs) CHECK(program->Right());
}

TEST_CASE("Sessions that work at the same time take turns") {
  Swapping daemon(1 << 30, 10 * policy::kMillisecond);
  Program a(daemon), b(daemon);
  REQUIRE(a.Allocate(40 * kMiB) == 0);
  REQUIRE(b.Allocate(40 * kMiB) == 0);
  const auto run = [](Program& program, bool* well) {
    *well = true;
    for (uint64_t round = 0; round < 8 && *well; ++round) *well = program.Work(round);
  };
  bool well[2] = {false, false};
  std::thread other(run, std::ref(a), &well[0]);
  run(b, &well[1]);
  other.join();
  CHECK(well[0]);
  CHECK(well[1]);
  CHECK(a.Right());
  CHECK(b.Right());
}

TEST_CASE("Idle memory makes room for physical memory, too, which then stays") {
  Swapping daemon;
  Program a(daemon), b(daemon);
  REQUIRE(a.Allocate(40 * kMiB) == 0);
  REQUIRE(a.Work(1));
  wire::cuMemCreate_Reply made{}, more{};
  REQUIRE(b.client.ring->Call(Op::cuMemCreate, wire::cuMemCreate{40 * kMiB}, &made) == 0);
  CHECK(daemon.OutOf(a.client) == 40 * kMiB);
  CHECK(b.client.ring->Call(Op::cuMemCreate, wire::cuMemCreate{40 * kMiB}, &more) ==
        kCudaErrorOutOfMemory);
  // It waits for the card until that memory is released.
  bool right = false;
  std::thread owner([&] { right = a.Right(); });
  CHECK(b.client.ring->Call(Op::cuMemRelease, wire::cuMemRelease{made.memory, 0}) == 0);
  owner.join();
  CHECK(right);
  CHECK(daemon.OutOf(a.client) == 0);
}

TEST_CASE("Memory for which no session can make room is refused") {
  Swapping daemon;
  Program a(daemon), b(daemon);
  REQUIRE(a.Allocate(40 * kMiB) == 0);
  CHECK(a.Allocate(40 * kMiB) == kCudaErrorOutOfMemory);
  CHECK(b.Allocate(100 * kMiB) == kCudaErrorOutOfMemory);
  CHECK(daemon.OutOf(a.client) == 0);
  REQUIRE(a.Work(1));
  CHECK(a.Right());
}

TEST_CASE("Without host memory nothing leaves the card") {
  Swapping daemon(0);
  Program a(daemon), b(daemon);
  REQUIRE(a.Allocate(40 * kMiB) == 0);
  CHECK(b.Allocate(40 * kMiB) == kCudaErrorOutOfMemory);
  CHECK(b.Allocate(20 * kMiB) == 0);
}

TEST_CASE("The host holds no more than it is allowed to") {
  Swapping daemon(64 * kMiB);  // half of it is for exchanges
  Program a(daemon), b(daemon);
  for (int i = 0; i < 5; ++i) REQUIRE(a.Allocate(8 * kMiB) == 0);
  REQUIRE(a.Work(1));
  CHECK(b.Allocate(64 * kMiB) == kCudaErrorOutOfMemory);
  CHECK(b.Allocate(40 * kMiB) == 0);
  CHECK(daemon.OutOf(a.client) == 16 * kMiB);
  CHECK(a.Right());
  REQUIRE(b.Work(2));
  CHECK(a.Right());
  CHECK(b.Right());
}

TEST_CASE("Memory that other processes may reach stays on the card") {
  Swapping daemon;
  Program a(daemon), b(daemon);
  REQUIRE(a.Allocate(40 * kMiB) == 0);
  wire::cuIpcGetMemHandle_Reply reply{};
  REQUIRE(a.client.ring->Call(Op::cuIpcGetMemHandle, wire::cuIpcGetMemHandle{a.addresses[0]},
                              &reply) == 0);
  CHECK(b.Allocate(40 * kMiB) == kCudaErrorOutOfMemory);
  REQUIRE(a.Allocate(20 * kMiB) == 0);
  CHECK(b.Allocate(20 * kMiB) == 0);
  CHECK(daemon.OutOf(a.client) == 20 * kMiB);
  REQUIRE(a.Work(1));
  CHECK(a.Right());
}

TEST_CASE("A session whose work does not end keeps its memory on the card") {
  const SoftDaemon daemon([](Daemon::Options& options) {
    options.server.swap_bytes = 1 << 30;
    options.server.eviction.residence = kResidence;
    options.server.eviction.min_bytes = 0;
  });
  TestClient a(daemon.socket()), b(daemon.socket());
  for (TestClient* client : {&a, &b}) {
    REQUIRE(client->Open());
    client->CreateStream(1);
  }
  const uint64_t memory = a.Allocate(40 * kMiB);
  REQUIRE(memory != 0);
  // The memory is filled when a host function has returned.
  a.ring->Send(Op::cuLaunchHostFunc, wire::cuLaunchHostFunc{1, 1, 1, {1, 0, 0}});
  a.ring->Send(Op::cuMemsetD2D32Async, wire::cuMemsetD2D32Async{memory, 0, 16, 1, 7, 1, 1, 0});
  // The reply comes when the work has been submitted.
  REQUIRE(a.Allocate(4096) != 0);
  int result = 0;
  b.Allocate(40 * kMiB, &result);
  CHECK(result == kCudaErrorOutOfMemory);
  a.ring->fence(1).store(1);
  CHECK(a.Synchronize(1) == 0);
  CHECK(*reinterpret_cast<uint8_t*>(memory) == 7);
}

TEST_CASE("Memory returns to a card that cannot use all of its free memory") {
  Swapping daemon;
  Program a(daemon), b(daemon);
  for (const uint64_t bytes : {30 * kMiB, 10 * kMiB}) REQUIRE(a.Allocate(bytes) == 0);
  REQUIRE(a.Work(1));
  for (const uint64_t bytes : {30 * kMiB, 10 * kMiB, 10 * kMiB}) REQUIRE(b.Allocate(bytes) == 0);
  REQUIRE(b.Work(2));
  REQUIRE(daemon.OutOf(a.client) != 0);
  daemon.devices[0]->unusable = 5 * kMiB;
  CHECK(a.Right());
  CHECK(daemon.OutOf(a.client) == 0);
  CHECK(b.Right());
}

TEST_CASE("Memory that is out is freed when its client dies") {
  Swapping daemon;
  Program b(daemon);
  {
    Program a(daemon);
    REQUIRE(a.Allocate(40 * kMiB) == 0);
    REQUIRE(a.Work(1));
    REQUIRE(b.Allocate(40 * kMiB) == 0);
    CHECK(daemon.Status().swap_used() == 40 * kMiB);
  }
  CHECK(Eventually([&] { return daemon.Status().swap_used() == 0; }));
  REQUIRE(b.Work(2));
  CHECK(b.Right());
}

TEST_CASE("Clients that die while memory moves leave nothing behind") {
  Swapping daemon;
  Program b(daemon);
  REQUIRE(b.Allocate(40 * kMiB) == 0);
  REQUIRE(b.Work(7));
  for (int round = 0; round < 6; ++round) {
    auto a = std::make_unique<Program>(daemon);
    REQUIRE(a->Allocate(40 * kMiB) == 0);
    // No thread waits for its work, so it may be in the middle of anything when it dies.
    const uint64_t parameters[3] = {a->addresses[0], 1000, 1};
    const auto launch = [](Program& program, const uint64_t(&values)[3]) {
      program.client.ring->Send(Op::cuLaunchKernelEx, program.client.LaunchOf(program.mix, 1),
                                {reinterpret_cast<const uint8_t*>(values), sizeof(values)});
    };
    const uint64_t others[3] = {b.addresses[0], 0, 0};
    launch(b, others);
    if (round % 2 == 0) launch(*a, parameters);
    a.reset();
  }
  CHECK(b.Right());
  CHECK(Eventually([&] { return daemon.Status().sessions_size() == 1; }));
  CHECK(Eventually([&] { return daemon.OutOf(b.client) == daemon.Status().swap_used(); }));
}

TEST_CASE("Freeing, querying and allocating work while memory is out") {
  Swapping daemon;
  Program a(daemon), b(daemon);
  REQUIRE(a.Allocate(20 * kMiB) == 0);
  REQUIRE(a.Allocate(20 * kMiB) == 0);
  REQUIRE(a.Work(1));
  REQUIRE(b.Allocate(40 * kMiB) == 0);
  CHECK(daemon.OutOf(a.client) == 20 * kMiB);
  // A session sees its own memory as if it were on the card.
  wire::cuMemGetInfo_v2_Reply info{};
  CHECK(a.client.ring->Call(Op::cuMemGetInfo_v2, wire::cuMemGetInfo_v2{0}, &info) == 0);
  CHECK(info.total == kCard);
  CHECK(info.free <= kCard - 40 * kMiB);

  REQUIRE(b.Work(2));
  CHECK(daemon.OutOf(a.client) > 0);
  CHECK(a.client.ring->Call(Op::cuMemFree_v2, wire::cuMemFree_v2{a.addresses[0]}) == 0);
  CHECK(a.client.ring->Call(Op::cuMemFree_v2, wire::cuMemFree_v2{a.addresses[0]}) ==
        kCudaErrorInvalidValue);
  const uint64_t first = a.addresses[0];
  a.addresses.erase(a.addresses.begin());
  a.expected.erase(a.expected.begin());
  REQUIRE(a.Allocate(20 * kMiB) == 0);
  CHECK(a.addresses.back() == first);
  CHECK(a.Right());
  CHECK(b.Right());
}

TEST_CASE("A session that breaks the protocol while its memory is out ends, and the others go on") {
  Swapping daemon;
  Program b(daemon);
  Program a(daemon);
  REQUIRE(a.Allocate(40 * kMiB) == 0);
  REQUIRE(b.Allocate(40 * kMiB) == 0);
  REQUIRE(daemon.OutOf(a.client) > 0);
  RawHeader wrong;
  wrong.bytes = 3;
  a.client.ring->SubmitRaw(wrong, {}, 64);
  CHECK(a.client.AwaitEnd().has_value());
  REQUIRE(b.Work(1));
  CHECK(b.Right());
}

}  // namespace
}  // namespace detshare
