#include "server/sessions/load_board.h"

#include <catch2/catch.hpp>
#include <random>
#include <vector>

#include "tests/coroutine_runtime/engine_peers.h"

namespace detshare {
namespace {

using policy::DeviceLoad;
using policy::PlacementRequest;

constexpr uint64_t kMemory = 100;

// Two processes that see each other.
struct Pair {
  EnginePage pages[2];
  EnginePeers peers[2];
  LoadBoard first{&pages[0], &peers[0]}, second{&pages[1], &peers[1]};
  Pair() {
    for (int i = 0; i < 2; ++i) AddPeer(peers[i], 1, pages[1 - i]);
  }
};

PlacementRequest Session(policy::TenantClass tenant_class, double memory_bound, double load) {
  PlacementRequest session;
  session.tenant.tenant_class = tenant_class;
  session.memory_bound = memory_bound;
  session.load = load;
  return session;
}

TEST_CASE("A process knows which sessions another one has on each device") {
  Pair pair;
  pair.first.Publish({{{Session(policy::TenantClass::kLatency, 0.25, 0.5),
                        Session(policy::TenantClass::kBatch, -1, -1)},
                       /*promised=*/30,
                       /*placed_at=*/7},
                      {}});
  std::vector<DeviceLoad> devices(2, DeviceLoad{kMemory});
  devices[1].placed_at = 3;
  CHECK(pair.second.AddOthers(&devices) == std::vector<uint64_t>{30, 0});
  REQUIRE(devices[0].sessions.size() == 2);
  CHECK(devices[0].sessions[0].HasObjective());
  CHECK(devices[0].sessions[0].memory_bound == 0.25);
  CHECK(devices[0].sessions[0].load == 0.5);
  CHECK_FALSE(devices[0].sessions[1].HasObjective());
  CHECK(devices[0].sessions[1].memory_bound < 0);
  CHECK(devices[0].sessions[1].load < 0);
  CHECK(devices[0].placed_at == 7);
  CHECK(devices[1].sessions.empty());
  CHECK(devices[1].placed_at == 3);

  pair.first.Publish({{}, {}});
  std::vector<DeviceLoad> later(2, DeviceLoad{kMemory});
  pair.second.AddOthers(&later);
  CHECK(later[0].sessions.empty());
}

TEST_CASE("A process alone publishes nothing and sees nobody") {
  LoadBoard alone(nullptr, nullptr);
  CHECK_FALSE(alone.shared());
  alone.Publish({{{Session(policy::TenantClass::kBatch, 0, 0)}}});
  std::vector<DeviceLoad> devices(1, DeviceLoad{kMemory});
  CHECK(alone.AddOthers(&devices) == std::vector<uint64_t>{0});
  CHECK(devices[0].sessions.empty());
}

TEST_CASE("More sessions and devices than the page has room for are left out") {
  Pair pair;
  LoadBoard::Load many;
  many.sessions.assign(1000, Session(policy::TenantClass::kBatch, 0, 0));
  pair.first.Publish(std::vector<LoadBoard::Load>(100, many));
  std::vector<DeviceLoad> devices(100, DeviceLoad{kMemory});
  pair.second.AddOthers(&devices);
  CHECK(devices[0].sessions.size() == LoadWords::kMaxSessions);
  CHECK(devices[99].sessions.empty());
}

TEST_CASE("Whatever another process writes, loads stay within their bounds") {
  Pair pair;
  std::mt19937_64 random(11);
  for (int round = 0; round < 1000; ++round) {
    auto* const words = reinterpret_cast<std::atomic<uint64_t>*>(&pair.pages[0].devices[0].load);
    for (size_t i = 0; i < sizeof(LoadWords) / sizeof(uint64_t); ++i)
      words[i] = random() >> (random() % 64);
    std::vector<DeviceLoad> devices(1, DeviceLoad{kMemory});
    CHECK(pair.second.AddOthers(&devices)[0] <= kMemory);
    for (const PlacementRequest& there : devices[0].sessions) {
      CHECK(there.memory_bound <= 1);
      CHECK(there.load <= 1);
    }
  }
}

}  // namespace
}  // namespace detshare
