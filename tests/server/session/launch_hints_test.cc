// Hints of launches, as clients name them.
#include "proto/wire/launch_hints.h"

#include <catch2/catch.hpp>
#include <cstring>
#include <limits>

#include "coroutine_runtime/status_cuda.h"
#include "proto/wire/context.h"
#include "proto/wire/event.h"
#include "tests/server/daemon_fixture.h"

namespace detshare {
namespace {

struct LaunchHintsFixture {
  LaunchHintsFixture() : daemon({}, 1), client(daemon.socket()) {
    REQUIRE(client.Open());
    client.CreateStream(1);
    memory = client.Allocate(4096);
    kernel = client.GetKernel(client.Load(), "add");
    REQUIRE(kernel != 0);
  }
  int Launch(const wire::LaunchHints& hints, size_t bytes = sizeof(wire::LaunchHints)) {
    wire::cuLaunchKernelEx launch = client.LaunchOf(kernel, 1);
    launch.flags = wire::kLaunchHasHints;
    std::vector<uint8_t> payload(16 + bytes);
    const uint64_t parameters[2] = {memory, 1};
    std::memcpy(payload.data(), parameters, sizeof(parameters));
    std::memcpy(payload.data() + 16, &hints, bytes);
    return client.ring->Call(Op::cuLaunchKernelEx, launch, payload);
  }
  uint64_t Sum() {
    CHECK(client.Synchronize(1) == 0);
    return SumAt(memory);
  }

  TestDaemon daemon;
  TestClient client;
  uint64_t memory = 0;
  KernelId kernel = 0;
};

TEST_CASE("A launch with every hint runs") {
  LaunchHintsFixture f;
  wire::LaunchHints hints{};
  hints.given = 127;
  hints.preferred_cluster[0] = hints.preferred_cluster[1] = hints.preferred_cluster[2] = 1;
  hints.carveout = -1;
  hints.window_address = f.memory;
  hints.window_bytes = 4096;
  hints.window_hit_ratio = 0.5f;
  CHECK(f.Launch(hints) == 0);
  CHECK(f.Launch({}) == 0);
  CHECK(f.Sum() == 2);
}

TEST_CASE("An access window outside the session's memory is dropped") {
  LaunchHintsFixture f;
  wire::LaunchHints hints{};
  hints.given = wire::kHintAccessWindow;
  hints.window_address = f.memory + (uint64_t{1} << 40);
  hints.window_bytes = UINT64_MAX;
  CHECK(f.Launch(hints) == 0);
  CHECK(f.Sum() == 1);
}

TEST_CASE("Hints that CUDA does not have are refused, and nothing runs") {
  LaunchHintsFixture f;
  const auto refused = [&](auto change) {
    wire::LaunchHints hints{};
    change(hints);
    return f.Launch(hints) == kCudaErrorInvalidValue;
  };
  CHECK(refused([](auto& hints) { hints.given = 128; }));
  CHECK(refused([](auto& hints) {
    hints.given = wire::kHintClusterScheduling;
    hints.cluster_scheduling = 3;
  }));
  CHECK(refused([](auto& hints) { hints.given = wire::kHintPreferredCluster; }));
  CHECK(refused([](auto& hints) {
    hints.given = wire::kHintSyncDomain;
    hints.sync_domain = 2;
  }));
  CHECK(refused([](auto& hints) {
    hints.given = wire::kHintSyncDomainMap;
    hints.sync_domain_remote = 256;
  }));
  CHECK(refused([](auto& hints) {
    hints.given = wire::kHintCarveout;
    hints.carveout = 101;
  }));
  CHECK(refused([](auto& hints) {
    hints.given = wire::kHintAccessWindow;
    hints.window_hit_ratio = std::numeric_limits<float>::quiet_NaN();
  }));
  CHECK(refused([](auto& hints) {
    hints.given = wire::kHintAccessWindow;
    hints.window_miss = 2;
  }));
  CHECK(f.Sum() == 0);
}

TEST_CASE("A launch that announces hints without having them is refused") {
  LaunchHintsFixture f;
  CHECK(f.Launch({}, sizeof(wire::LaunchHints) - 1) == kCudaErrorInvalidValue);
  CHECK(f.Launch({}, 0) == kCudaErrorInvalidValue);
}

TEST_CASE("An event that was recorded without a fence can be queried") {
  LaunchHintsFixture f;
  RingTestClient& ring = *f.client.ring;
  ring.Send(Op::cuEventCreate, wire::cuEventCreate{1, 1, 0, 0});
  CHECK(ring.Call(Op::cuEventQuery, wire::cuEventQuery{1, 0}) == 0);
  ring.Send(Op::cuEventRecordWithFlags, wire::cuEventRecordWithFlags{1, 1, {0, kNoFence, 0}});
  CHECK(ring.Call(Op::cuEventQuery, wire::cuEventQuery{1, 0}) == 0);
  CHECK(ring.Call(Op::cuEventQuery, wire::cuEventQuery{2, 0}) == kCudaErrorInvalidHandle);
  CHECK(ring.Call(Op::cuCtxResetPersistingL2Cache, wire::cuCtxResetPersistingL2Cache{}) == 0);
}

}  // namespace
}  // namespace detshare
