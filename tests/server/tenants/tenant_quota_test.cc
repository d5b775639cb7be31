// The limits of tenants. Every way to get memory counts, and a refusal gives the reason.
#include <catch2/catch.hpp>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "coroutine_runtime/status_cuda.h"
#include "proto/telemetry.grpc.pb.h"
#include "proto/wire/array.h"
#include "proto/wire/graph.h"
#include "proto/wire/ipc.h"
#include "proto/wire/virtual_memory.h"
#include "server/sessions/session_manager.h"
#include "server/tenants/tenant_accounts.h"
#include "tests/server/daemon_fixture.h"
#include "tests/server/grpc_stubs.h"
#include "tests/server/instant_device.h"
#include "tests/server/instant_images.h"
#include "tests/server/session/graph_payload_builder.h"
#include "tests/units.h"

namespace detshare {
namespace {

using Catch::Contains;

constexpr uint64_t kGranule = 2 * kMiB;

// A daemon in which tenant "small" may have 16 MiB of each device, 4 MiB of pinned memory and two
// sessions.
struct Limited : TestDaemon {
  explicit Limited(int devices = 1)
      : TestDaemon(
            [](Daemon::Options& options) {
              options.server.tenant_quotas["small"] = {16 * kMiB, 4 * kMiB, 2};
            },
            devices) {}
  proto::TenantUse UseOf(const std::string& tenant) {
    TestClient onlooker(socket());
    grpc::ClientContext context;
    proto::Status status;
    REQUIRE(AdminOf(onlooker)->GetStatus(&context, {}, &status).ok());
    for (const proto::TenantUse& use : status.tenants()) {
      if (use.name() == tenant) return use;
    }
    return {};
  }
  grpc::Status Set(const proto::TenantSetting& setting) {
    TestClient operator_(socket());
    grpc::ClientContext context;
    proto::TenantSetting in_force;
    return AdminOf(operator_)->SetTenant(&context, setting, &in_force);
  }
  grpc::Status SetMemory(uint64_t bytes) {
    proto::TenantSetting setting;
    setting.set_name("small");
    setting.set_memory(bytes);
    return Set(setting);
  }
};

// A program of that tenant.
struct Program : TestClient {
  explicit Program(TestDaemon& daemon, const std::string& tenant = "small")
      : TestClient(daemon.socket()) {
    this->tenant = tenant;
    REQUIRE(Open());
    CreateStream(1);
  }
  int Free(uint64_t address) { return ring->Call(Op::cuMemFree_v2, wire::cuMemFree_v2{address}); }
  int AllocateAsync(uint64_t bytes) {
    wire::cuMemAllocAsync_Reply body{};
    return ring->Call(Op::cuMemAllocAsync, wire::cuMemAllocAsync{bytes, 1, 1}, &body);
  }
  int CreatePhysical(uint64_t bytes, wire::PhysicalId* id = nullptr) {
    wire::cuMemCreate_Reply body{};
    const int result = ring->Call(Op::cuMemCreate, wire::cuMemCreate{bytes}, &body);
    if (id != nullptr) *id = body.memory;
    return result;
  }
  int Pin(uint64_t bytes, uint64_t* address = nullptr) {
    wire::cuMemHostAlloc_Reply body{};
    const int result = ring->Call(Op::cuMemHostAlloc, wire::cuMemHostAlloc{bytes, 0, 0}, &body);
    if (address != nullptr) *address = body.address;
    return result;
  }
  int Unpin(uint64_t address) {
    return ring->Call(Op::cuMemFreeHost, wire::cuMemFreeHost{address});
  }
  wire::cuMemGetInfo_v2_Reply Info() {
    wire::cuMemGetInfo_v2_Reply body{};
    CHECK(ring->Call(Op::cuMemGetInfo_v2, wire::cuMemGetInfo_v2{}, &body) == 0);
    return body;
  }
};

TEST_CASE("All sessions of a tenant together get as much device memory as it may have") {
  Limited daemon;
  Program a(daemon), b(daemon), other(daemon, "large");
  int result = 0;
  const uint64_t first = a.Allocate(10 * kMiB, &result);
  REQUIRE(result == 0);
  b.Allocate(8 * kMiB, &result);
  CHECK(result == kCudaErrorOutOfMemory);
  b.Allocate(6 * kMiB, &result);
  CHECK(result == 0);
  a.Allocate(1, &result);
  CHECK(result == kCudaErrorOutOfMemory);
  other.Allocate(100 * kMiB, &result);
  CHECK(result == 0);
  CHECK(daemon.UseOf("small").memory_used(0) == 16 * kMiB);
  CHECK(daemon.UseOf("small").memory_limit() == 16 * kMiB);
  CHECK(daemon.UseOf("small").refusals() == 2);

  // Freed memory can be had again: by the session that keeps it, and by the others after that
  // session ends.
  CHECK(a.Free(first) == 0);
  a.Allocate(4 * kMiB, &result);
  CHECK(result == 0);
  CHECK(daemon.UseOf("small").memory_used(0) <= 16 * kMiB);
}

TEST_CASE("Free memory that a session keeps makes room for its own requests") {
  Limited daemon;
  Program a(daemon);
  for (int i = 0; i < 10; ++i) {
    int result = 0;
    const uint64_t address = a.Allocate((i % 2 == 0 ? 16 : 12) * kMiB, &result);
    REQUIRE(result == 0);
    REQUIRE(a.Free(address) == 0);
  }
  CHECK(daemon.UseOf("small").refusals() == 0);
}

TEST_CASE("Every way to get device memory counts, and gives back what it took") {
  InstantImages images;
  Limited daemon;
  daemon.devices[0]->image_device = &images;
  {
    Program a(daemon);
    REQUIRE(a.CreatePhysical(4 * kMiB) == 0);
    CHECK(daemon.UseOf("small").memory_used(0) == 4 * kMiB);
    CHECK(a.CreatePhysical(14 * kMiB) == kCudaErrorOutOfMemory);
    REQUIRE(a.AllocateAsync(4 * kMiB) == 0);
    CHECK(daemon.UseOf("small").memory_used(0) == 8 * kMiB);
    CHECK(a.AllocateAsync(10 * kMiB) == kCudaErrorOutOfMemory);

    // An array of 4-byte texels.
    wire::cuArray3DCreate_v2 array{};
    array.width = 1024;
    array.height = 1024;
    array.format = 32;  // CU_AD_FORMAT_FLOAT
    array.channels = 1;
    array.levels = 1;
    wire::cuArray3DCreate_v2_Reply made{};
    REQUIRE(a.ring->Call(Op::cuArray3DCreate_v2, array, &made) == 0);
    CHECK(daemon.UseOf("small").memory_used(0) == 12 * kMiB);
    array.height = 2048;
    CHECK(a.ring->Call(Op::cuArray3DCreate_v2, array, &made) == kCudaErrorOutOfMemory);

    // Variables of code.
    CHECK(a.Load("code\n.global .align 8 .b8 table[2097152];\n") != 0);
    CHECK(daemon.UseOf("small").memory_used(0) == 14 * kMiB);
    CHECK(a.Load("code\n.global .f64 matrix[1024][1024];\n") == 0);
    a.Close();
  }
  // The session ends after its client has gone.
  for (int i = 0; i < 2000 && daemon.UseOf("small").sessions_used() != 0; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  CHECK(daemon.UseOf("small").memory_used(0) == 0);
  CHECK(daemon.UseOf("small").pinned_used() == 0);
}

TEST_CASE("Memory that other sessions open counts once, as long as any session has it") {
  Limited daemon;
  auto maker = std::make_unique<Program>(daemon);
  Program opener(daemon, "large");
  wire::PhysicalId memory = 0;
  REQUIRE(maker->CreatePhysical(8 * kMiB, &memory) == 0);
  wire::cuMemExportToShareableHandle_Reply token{};
  REQUIRE(maker->ring->Call(Op::cuMemExportToShareableHandle,
                            wire::cuMemExportToShareableHandle{memory, 0}, &token) == 0);
  int result = 0;
  const uint64_t address = maker->Allocate(4 * kMiB, &result);
  REQUIRE(result == 0);
  wire::cuIpcGetMemHandle_Reply shown{};
  REQUIRE(maker->ring->Call(Op::cuIpcGetMemHandle, wire::cuIpcGetMemHandle{address}, &shown) == 0);
  CHECK(daemon.UseOf("small").memory_used(0) == 12 * kMiB);

  wire::cuMemImportFromShareableHandle_Reply imported{};
  REQUIRE(opener.ring->Call(Op::cuMemImportFromShareableHandle,
                            wire::cuMemImportFromShareableHandle{token.token}, &imported) == 0);
  wire::cuIpcOpenMemHandle_v2_Reply opened{};
  REQUIRE(opener.ring->Call(Op::cuIpcOpenMemHandle_v2,
                            wire::cuIpcOpenMemHandle_v2{shown.token, 1, 0}, &opened) == 0);
  CHECK(daemon.UseOf("small").memory_used(0) == 12 * kMiB);
  CHECK(daemon.UseOf("large").memory_used(0) == 0);

  // A tenant cannot exceed its limit by leaving memory with another tenant's session.
  maker->Close();
  maker.reset();
  for (int i = 0; i < 2000 && daemon.UseOf("small").sessions_used() != 0; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  CHECK(daemon.UseOf("small").memory_used(0) == 12 * kMiB);
  Program again(daemon);
  again.Allocate(6 * kMiB, &result);
  CHECK(result == kCudaErrorOutOfMemory);
  REQUIRE(opener.ring->Call(Op::cuMemRelease, wire::cuMemRelease{imported.memory, 0}) == 0);
  REQUIRE(opener.ring->Call(Op::cuIpcCloseMemHandle, wire::cuIpcCloseMemHandle{opened.address}) ==
          0);
  CHECK(daemon.UseOf("small").memory_used(0) == 0);
}

TEST_CASE("A tenant sees its own memory, and nothing of its neighbours") {
  Limited daemon(2);
  Program a(daemon), b(daemon), other(daemon, "large");
  CHECK(a.grant.devices(0).total_memory() == 16 * kMiB);
  CHECK(other.grant.devices(0).total_memory() == 1 << 30);
  CHECK(a.Info().total == 16 * kMiB);
  CHECK(a.Info().free == 16 * kMiB);
  b.Allocate(6 * kMiB);
  other.Allocate(64 * kMiB);
  daemon.devices[0]->used = 900 * kMiB;
  CHECK(a.Info().total == 16 * kMiB);
  CHECK(a.Info().free == 10 * kMiB);
  CHECK(other.Info().free == 124 * kMiB);

  const auto telemetry = proto::Telemetry::NewStub(a.channel());
  grpc::ClientContext context;
  proto::TelemetryRequest request;
  proto::TelemetryReply reply;
  REQUIRE(telemetry->Read(&context, request, &reply).ok());
  REQUIRE(reply.devices_size() == 2);
  CHECK(reply.devices(0).total_memory() == 16 * kMiB);
  CHECK(reply.devices(0).free_memory() == 10 * kMiB);
  CHECK(reply.devices(1).free_memory() == 16 * kMiB);
}

TEST_CASE("A limit changes at once; a limit below the used memory refuses only more memory") {
  Limited daemon;
  Program a(daemon);
  int result = 0;
  const uint64_t address = a.Allocate(12 * kMiB, &result);
  REQUIRE(result == 0);
  REQUIRE(daemon.SetMemory(4 * kMiB).ok());
  CHECK(a.Info().total == 4 * kMiB);
  CHECK(a.Info().free == 0);
  a.Allocate(1, &result);
  CHECK(result == kCudaErrorOutOfMemory);
  // It keeps the memory that it has.
  CHECK(a.ring->Call(Op::cuMemsetD2D32Async,
                     wire::cuMemsetD2D32Async{address, 0, 16, 1, 7, 1, 1, 0}) == 0);
  CHECK(a.Free(address) == 0);
  a.Allocate(4 * kMiB, &result);
  CHECK(result == 0);
  REQUIRE(daemon.SetMemory(0).ok());
  a.Allocate(100 * kMiB, &result);
  CHECK(result == 0);
  CHECK(a.Info().total == 1 << 30);
}

TEST_CASE("The client and operators learn once which limit has refused something") {
  Limited daemon;
  TestClient client(daemon.socket()), other(daemon.socket());
  client.tenant = "small";
  REQUIRE(client.Open());
  REQUIRE(other.Open());
  CHECK(client.grant.limited());
  CHECK_FALSE(other.grant.limited());
  for (int i = 0; i < 3; ++i) CHECK(client.Allocate(20 * kMiB) == 0);
  // More than the device has is no limit of a tenant.
  CHECK(other.Allocate(uint64_t{1} << 44) == 0);
  daemon.daemon->manager().EndAll(kCudaErrorSystemNotReady, "over", std::chrono::seconds(1));
  REQUIRE(client.AwaitEnd().has_value());
  REQUIRE(other.AwaitEnd().has_value());
  REQUIRE(client.notices.size() == 1);
  CHECK_THAT(client.notices[0],
             Contains("tenant small: 20.00 MiB more of memory of device 0 do not fit its limit"));
  CHECK(other.notices.empty());
  int events = 0;
  for (const DaemonEvent& event : daemon.daemon->manager().events().Latest(100).events) {
    if (event.kind != DaemonEvent::Kind::kLimit) continue;
    ++events;
    CHECK(event.session == client.session());
    CHECK(event.text == client.notices[0]);
  }
  CHECK(events == 1);
}

TEST_CASE("Pinned memory has a limit, and unused files are dropped for it") {
  Limited daemon;
  Program a(daemon), b(daemon);
  uint64_t first = 0, second = 0;
  REQUIRE(a.Pin(3 * kMiB, &first) == 0);
  CHECK(b.Pin(2 * kMiB) == kCudaErrorOutOfMemory);
  REQUIRE(b.Pin(1 * kMiB, &second) == 0);
  CHECK(daemon.UseOf("small").pinned_used() == 4 * kMiB);
  REQUIRE(a.Unpin(first) == 0);
  CHECK(a.Pin(2 * kMiB) == 0);  // another size than the kept memory
  CHECK(daemon.UseOf("small").pinned_used() == 3 * kMiB);
  REQUIRE(b.Unpin(second) == 0);
}

TEST_CASE("One session more than a tenant may have is refused with the reason") {
  Limited daemon;
  Program a(daemon);
  auto b = std::make_unique<Program>(daemon);
  TestClient third(daemon.socket());
  third.tenant = "small";
  REQUIRE_FALSE(third.Open());
  CHECK(third.status().error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED);
  CHECK_THAT(third.status().error_message(),
             Contains("tenant small is at its limit of sessions (2 of 2 in use)"));
  CHECK_THAT(third.status().error_message(), Contains("detsharectl tenant set small --sessions"));
  Program other(daemon, "large");
  b->Close();
  b.reset();
  for (int i = 0; i < 2000 && daemon.UseOf("small").sessions_used() != 1; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  Program fourth(daemon);
}

TEST_CASE("The number of the daemon's sessions is bounded, whichever tenants they have") {
  TestDaemon daemon([](Daemon::Options& options) { options.server.max_sessions = 2; });
  Program a(daemon, "one"), b(daemon, "two");
  TestClient third(daemon.socket());
  REQUIRE_FALSE(third.Open());
  CHECK(third.status().error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED);
  CHECK_THAT(third.status().error_message(), Contains("max_sessions"));
}

TEST_CASE("Tenants without their own limits have the default ones") {
  TestDaemon daemon([](Daemon::Options& options) {
    options.server.default_quota = {4 * kMiB, 0, 1};
    options.server.tenant_quotas["free"] = {};
  });
  Program a(daemon, "anybody"), b(daemon, "free"), c(daemon, "free");
  int result = 0;
  a.Allocate(6 * kMiB, &result);
  CHECK(result == kCudaErrorOutOfMemory);
  b.Allocate(6 * kMiB, &result);
  CHECK(result == 0);
  TestClient second(daemon.socket());
  second.tenant = "anybody";
  CHECK_FALSE(second.Open());
}

TEST_CASE("Invalid sizes are refused and take nothing") {
  Limited daemon;
  Program a(daemon);
  int result = 0;
  for (const uint64_t bytes : {UINT64_MAX, UINT64_MAX - kGranule + 2, uint64_t{1} << 63}) {
    a.Allocate(bytes, &result);
    CHECK(result != 0);
    CHECK(a.AllocateAsync(bytes) != 0);
    CHECK(a.CreatePhysical(bytes & ~(kGranule - 1)) != 0);
    CHECK(a.Pin(bytes) != 0);
  }
  CHECK(a.Load("code .global .b8 huge[18446744073709551615][4];") == 0);
  CHECK(daemon.UseOf("small").memory_used(0) == 0);
  CHECK(daemon.UseOf("small").pinned_used() == 0);

  proto::TenantSetting setting;
  setting.set_name("small");
  setting.set_memory(UINT64_MAX);
  CHECK(daemon.Set(setting).error_code() == grpc::StatusCode::INVALID_ARGUMENT);
  setting.set_memory(0);
  setting.set_sessions(UINT64_MAX);
  CHECK(daemon.Set(setting).error_code() == grpc::StatusCode::INVALID_ARGUMENT);
  CHECK(daemon.UseOf("small").memory_limit() == 16 * kMiB);
}

TEST_CASE("Threads that take and give never have more than the quota together") {
  TenantAccounts accounts(1);
  accounts.Set("t", {1000, 0, 0});
  const std::shared_ptr<TenantAccount> account = accounts.Of("t");
  const std::shared_ptr<Quota> quota = TenantAccount::Memory(account, 0);
  std::atomic<uint64_t> max{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (uint64_t i = 0; i < 20000; ++i) {
        const auto charge = Quota::TryTake(quota, 300 + (i + static_cast<uint64_t>(t)) % 200);
        if (!charge.has_value()) continue;
        const uint64_t used = quota->used();
        if (used > max.load()) max.store(used);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(max.load() <= 1000);
  CHECK(quota->used() == 0);
}

TEST_CASE("A tenant's own limits stay when the defaults change, and end when they are taken back") {
  TenantAccounts accounts(2);
  accounts.SetDefault({100, 200, 3, 1});
  accounts.Set("own", {1000, 2000, 30, 2});
  const std::shared_ptr<TenantAccount> own = accounts.Of("own"), other = accounts.Of("other");
  CHECK(own->limits() == TenantQuota{1000, 2000, 30, 2});
  CHECK(other->limits() == TenantQuota{100, 200, 3, 1});
  accounts.SetDefault({0, 500, 0, 0});
  CHECK(own->limits() == TenantQuota{1000, 2000, 30, 2});
  CHECK(other->limits() == TenantQuota{0, 500, 0, 0});
  // Each device has the limit for itself.
  const auto charge = Quota::TryTake(TenantAccount::Memory(own, 1), 900);
  REQUIRE(charge.has_value());
  CHECK(own->memory_used(0) == 0);
  CHECK(own->memory_used(1) == 900);
  CHECK(Quota::TryTake(TenantAccount::Memory(own, 0), 900).has_value());
  accounts.Set("own", {0, 1, 0, 0});
  CHECK(own->limits() == TenantQuota{0, 1, 0, 0});
  CHECK_FALSE(Quota::TryTake(TenantAccount::Pinned(own), 2).has_value());
  accounts.Unset("own");
  CHECK(own->limits() == TenantQuota{0, 500, 0, 0});
  accounts.SetDefault({0, 600, 0, 0});
  CHECK(own->limits() == TenantQuota{0, 600, 0, 0});
}

TEST_CASE("Refusals of a tenant with limits of its own count on when its last program has ended") {
  TenantAccounts accounts(/*devices=*/1);
  const auto refuse = [&](const std::string& tenant) {
    const std::shared_ptr<TenantAccount> account = accounts.Of(tenant);
    CHECK_FALSE(Quota::Take(TenantAccount::Memory(account, 0), 2 * kMiB).ok());
    return account->refusals();
  };
  TenantQuota limits;
  limits.memory = kMiB;
  accounts.SetDefault(limits);
  {
    const std::shared_ptr<TenantAccount> account = accounts.Of("small");
    CHECK(refuse("small") == 1);
    accounts.Set("small", limits);
    CHECK(refuse("small") == 2);
  }
  CHECK(accounts.Of("small")->refusals() == 2);
  limits.pinned_memory = kMiB;
  accounts.Set("small", limits);
  CHECK(refuse("small") == 3);
  // The number of other tenants has no bound, so nothing is left of their accounts.
  CHECK(refuse("other") == 1);
  CHECK(refuse("other") == 1);
  accounts.Unset("small");
  CHECK(refuse("small") == 1);
}

TEST_CASE("Code and graphs of all sessions of a tenant count, until their sessions end") {
  Limited daemon;
  const std::shared_ptr<TenantAccount> account =
      daemon.daemon->manager().tenant_accounts().Of("small");
  const std::shared_ptr<Quota> kept = TenantAccount::Kept(account);
  kept->set_limit(5 * kMiB);
  const std::string image = "code" + std::string(2 * kMiB - 4, 'c');
  {
    Program one(daemon), two(daemon);
    const LibraryId library = one.Load(image);
    CHECK(library != 0);
    CHECK(two.Load(image) != 0);
    CHECK(kept->used() == 4 * kMiB);
    CHECK(one.Load(image) == 0);
    CHECK(two.Load(image) == 0);
    // Another tenant has its own room.
    CHECK(Program(daemon, "other").Load(image) != 0);
    CHECK(one.ring->Call(Op::cuLibraryUnload, wire::cuLibraryUnload{library, 0}) == 0);
    CHECK(kept->used() == 2 * kMiB);
    GraphBuilder graph;
    graph.Node(wire::kNodeEmpty);
    const auto instantiate = [&](GraphId id) {
      return one
          .Call(Op::cuGraphInstantiateWithParams, wire::cuGraphInstantiateWithParams{id, 1, 0, 1},
                graph.Build())
          .second.result();
    };
    CHECK(instantiate(1) == 0);
    CHECK(kept->used() > 2 * kMiB);
    kept->set_limit(kept->used());
    CHECK(instantiate(2) == kCudaErrorOutOfMemory);
    CHECK(one.ring->Call(Op::cuGraphExecDestroy, wire::cuGraphExecDestroy{1, 0}) == 0);
    CHECK(kept->used() == 2 * kMiB);
  }
  CHECK(Eventually([&] { return kept->used() == 0; }));
}

}  // namespace
}  // namespace detshare
