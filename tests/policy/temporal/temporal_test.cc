#include "policy/temporal/temporal.h"

#include <catch2/catch.hpp>

#include "policy/registry.h"
#include "tests/policy/virtual_device.h"

namespace detshare::policy {
namespace {

Tenant Named(std::string name) {
  Tenant tenant;
  tenant.name = std::move(name);
  return tenant;
}

const std::vector<Nanoseconds> kShort(1000, 20 * kMicrosecond);

TEST_CASE("Policy temporal gives every coroutine with work the same device time") {
  VirtualDevice device({132, 8}, *CreatePolicy("temporal", {}));
  for (const char* name : {"a", "b", "c"}) device.Open(Named(name), Steady(kShort));
  device.Run(3 * kSecond);
  for (size_t i = 0; i < 3; ++i) {
    CHECK(device[i].device_time > 990 * kMillisecond);
    CHECK(device[i].device_time < 1010 * kMillisecond);
    CHECK(device[i].longest_throttle < 5 * kMillisecond);
  }
}

TEST_CASE("Policy temporal goes to the next coroutine when the turn's holder has no work") {
  VirtualDevice device({132, 8}, *CreatePolicy("temporal", {{{"slice", "10ms"}}}));
  const size_t seldom =
      device.Open(Named("seldom"), Periodic(0, 10 * kMillisecond, {kMillisecond}));
  const size_t steady = device.Open(Named("steady"), Steady(kShort));
  device.Run(kSecond);
  CHECK(device[steady].device_time > 890 * kMillisecond);
  CHECK(device[seldom].device_time >= 98 * kMillisecond);
}

TEST_CASE("Policy temporal lets a request wait for the others' slices") {
  VirtualDevice device({132, 8}, *CreatePolicy("temporal", {{{"slice", "2ms"}}}));
  const size_t request =
      device.Open(Named("request"), Arrivals(20 * kMillisecond, {kMillisecond}, 7));
  device.Open(Named("a"), Steady(kShort));
  device.Open(Named("b"), Steady(kShort));
  device.Run(5 * kSecond);
  CHECK(Quantile(device[request].latencies, 0.5) > 2 * kMillisecond);
  CHECK(Quantile(device[request].latencies, 0.99) < 9 * kMillisecond);
}

TEST_CASE("Policy temporal bounds the holder of the turn by its slice and stops all others") {
  auto policy = *CreatePolicy("temporal", {{{"slice", "80ms"}}});
  const Tenant tenants[] = {Named("a"), Named("b"), Named("idle")};
  std::vector<CoroutineView> views(3);
  for (size_t i = 0; i < 3; ++i) {
    views[i].id = i + 1;
    views[i].tenant = &tenants[i];
    views[i].has_work = i != 2;
  }
  Snapshot snapshot;
  snapshot.now = kSecond;
  snapshot.coroutines = views;
  const Decision turn = policy->Decide(snapshot);
  CHECK(turn.grants[0].idle.window == 20 * kMillisecond);
  CHECK(turn.grants[0].budget == 80 * kMillisecond);
  CHECK(turn.grants[1].idle.window == 0);
  CHECK(turn.grants[1].contended.window == 0);
  CHECK(turn.ask_again_at == kSecond + 80 * kMillisecond);
  // Its own turn comes before a throttled coroutine may give an operation.
  CHECK(turn.grants[1].idle.max_throttle == 320 * kMillisecond);

  // Part of the slice is used.
  views[0].device_time = 30 * kMillisecond;
  snapshot.now += 40 * kMillisecond;
  const Decision later = policy->Decide(snapshot);
  CHECK(later.grants[0].budget == 50 * kMillisecond);
  CHECK(later.ask_again_at == turn.ask_again_at);

  // All of it is used.
  views[0].device_time = 80 * kMillisecond;
  const Decision next = policy->Decide(snapshot);
  CHECK(next.grants[0].idle.window == 0);
  CHECK(next.grants[1].idle.window == 20 * kMillisecond);
  CHECK(next.ask_again_at == snapshot.now + 80 * kMillisecond);

  // One that is alone with work needs no turns.
  views[0].has_work = false;
  const Decision single = policy->Decide(snapshot);
  CHECK(single.grants[1].idle.window == 20 * kMillisecond);
  CHECK(single.grants[1].budget == kForever);
  CHECK(single.ask_again_at == kForever);
}

}  // namespace
}  // namespace detshare::policy
