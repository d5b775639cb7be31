#include "policy/temporal/temporal.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "policy/registry.h"
#include "tests/policy/virtual_device.h"

namespace detshare::policy {
namespace {

Tenant Named(std::string name) {
  Tenant tenant;
  tenant.name = std::move(name);
  return tenant;
}

Tenant Weighted(std::string name, double weight) {
  Tenant tenant = Named(std::move(name));
  tenant.weight = weight;
  return tenant;
}

const std::vector<Nanoseconds> kShort(1000, 20 * kMicrosecond);

TEST_CASE("Under policy temporal engines take turns of the same slice") {
  CHECK((*CreatePolicy("temporal", {{{"slice", "30ms"}}}))->EngineTurn() == 30 * kMillisecond);
  CHECK((*CreatePolicy("priority", {}))->EngineTurn() == 0);
}

TEST_CASE("Policy temporal gives every coroutine with work the same device time") {
  VirtualDevice device({132, 8}, *CreatePolicy("temporal", {}));
  for (const char* name : {"a", "b", "c"}) device.Open(Named(name), Steady(kShort));
  device.Run(3 * kSecond);
  for (size_t i = 0; i < 3; ++i) {
    CHECK(device[i].device_time > 985 * kMillisecond);
    CHECK(device[i].device_time < 1015 * kMillisecond);
    CHECK(device[i].longest_throttle < 42 * kMillisecond);
  }
  CHECK(device.max_running() == 1);
}

TEST_CASE("Policy temporal gives shares by weight, whatever the kernels' lengths") {
  constexpr Nanoseconds kSlice = 10 * kMillisecond, kTime = 4 * kSecond;
  const Nanoseconds lengths[] = {10 * kMicrosecond, kMillisecond, 50 * kMillisecond};
  for (const auto& [first, second] : {std::pair(1., 1.), std::pair(1., 3.), std::pair(2., 5.)}) {
    for (const Nanoseconds length : lengths) {
      for (const Nanoseconds other : lengths) {
        INFO(first << ":" << second << ", kernels of " << length << " and " << other << " ns");
        VirtualDevice device({132, 8}, *CreatePolicy("temporal", {}));
        device.Open(Weighted("a", first), Steady(std::vector<Nanoseconds>(100, length)));
        device.Open(Weighted("b", second), Steady(std::vector<Nanoseconds>(100, other)));
        device.Run(kTime);
        const double unit = static_cast<double>(kTime) / (first + second);
        const double bound = static_cast<double>(std::max(length, other) + 2 * kSlice);
        CHECK(std::abs(static_cast<double>(device[0].device_time) - first * unit) < bound);
        CHECK(std::abs(static_cast<double>(device[1].device_time) - second * unit) < bound);
        CHECK(device.max_running() == 1);
      }
    }
  }
}

TEST_CASE("Under policy temporal a tenant's coroutines share its turns") {
  VirtualDevice device({132, 8}, *CreatePolicy("temporal", {}));
  for (int i = 0; i < 3; ++i) device.Open(Named("many"), Steady(kShort));
  const size_t one = device.Open(Named("one"), Steady({50 * kMillisecond}));
  device.Run(6 * kSecond);
  CHECK(std::abs(device[one].device_time - 3 * kSecond) < 70 * kMillisecond);
  for (size_t i = 0; i < 3; ++i)
    CHECK(std::abs(device[i].device_time - kSecond) < 40 * kMillisecond);
  CHECK(device.max_running() == 1);
}

TEST_CASE("Under policy temporal a tenant that comes gets its share at once, and no more") {
  VirtualDevice device({132, 8}, *CreatePolicy("temporal", {}));
  device.Open(Named("steady"), Steady(kShort));
  // 300 ms of work, which takes twice as long at half of the device.
  const size_t comes = device.Open(
      Named("comes"),
      Periodic(kSecond, 2 * kSecond, std::vector<Nanoseconds>(3000, 100 * kMicrosecond)));
  device.Run(10 * kSecond);
  REQUIRE(device[comes].latencies.size() == 5);
  for (const Nanoseconds latency : device[comes].latencies) {
    CHECK(latency > 570 * kMillisecond);
    CHECK(latency < 630 * kMillisecond);
  }
}

TEST_CASE("Under policy temporal a tenant does not escape its debt by a pause") {
  VirtualDevice device({132, 8}, *CreatePolicy("temporal", {}));
  const size_t pauses = device.Open(Named("pauses"), [](Nanoseconds now) {
    return Burst{now + 30 * kMicrosecond, {50 * kMillisecond}};
  });
  const size_t steady = device.Open(Named("steady"), Steady(kShort));
  device.Run(10 * kSecond);
  CHECK(device[steady].device_time > 4900 * kMillisecond);
  CHECK(device[pauses].device_time > 4500 * kMillisecond);
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

TEST_CASE("Policy temporal bounds the holder of the turn and stops all others") {
  auto policy = *CreatePolicy("temporal", {{{"slice", "8ms"}}});
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
  CHECK(turn.grants[0].idle.window == 2 * kMillisecond);
  CHECK(turn.grants[0].budget == 8 * kMillisecond);
  CHECK(turn.grants[1].idle.window == 0);
  CHECK(turn.grants[1].contended.window == 0);
  CHECK(turn.ask_again_at == kSecond + 8 * kMillisecond);
  // No two coroutines have the same turn group.
  for (size_t i = 0; i < 3; ++i) CHECK(turn.grants[i].turn_group == views[i].id);

  // 3 ms have passed, and work of 2 ms is in flight.
  views[0].in_flight = 2 * kMillisecond;
  views[0].in_flight_since = snapshot.now;
  snapshot.now += 3 * kMillisecond;
  const Decision later = policy->Decide(snapshot);
  CHECK(later.grants[0].budget == 3 * kMillisecond);
  CHECK(later.ask_again_at == turn.ask_again_at);

  // The work in flight fills the rest of the turn.
  snapshot.now += 3 * kMillisecond;
  const Decision next = policy->Decide(snapshot);
  CHECK(next.grants[0].idle.window == 0);
  CHECK(next.grants[1].idle.window == 2 * kMillisecond);
  CHECK(next.grants[1].budget == 8 * kMillisecond);

  // That work takes 12 ms longer than estimated, and is complete 1 ms before the policy is asked.
  // So 1 ms of the next turn is over.
  snapshot.now += 15 * kMillisecond;
  views[0].in_flight = 0;
  views[0].in_flight_since = snapshot.now - kMillisecond;
  const Decision after = policy->Decide(snapshot);
  CHECK(after.grants[1].idle.window == 2 * kMillisecond);
  CHECK(after.grants[1].budget == 7 * kMillisecond);
  CHECK(after.ask_again_at == snapshot.now + 7 * kMillisecond);

  // The first tenant had 20 ms, so the second one has two turns in a row.
  snapshot.now += 7 * kMillisecond;
  const Decision again = policy->Decide(snapshot);
  CHECK(again.grants[0].idle.window == 0);
  CHECK(again.grants[1].budget == 8 * kMillisecond);

  // The only one with work needs no turns.
  views[1].has_work = false;
  const Decision single = policy->Decide(snapshot);
  CHECK(single.grants[0].idle.window == 2 * kMillisecond);
  CHECK(single.grants[0].budget == kForever);
  CHECK(single.ask_again_at == kForever);

  // Without work, all may begin.
  views[0].has_work = false;
  const Decision none = policy->Decide(snapshot);
  for (const Grant& grant : none.grants) CHECK(grant.idle.window == 2 * kMillisecond);
}

TEST_CASE(
    "Under policy temporal a turn counts although its holder's last turn is in the hardware") {
  auto policy = *CreatePolicy("temporal", {{{"slice", "8ms"}}});
  const Tenant tenants[] = {Named("a"), Named("b")};
  std::vector<CoroutineView> views(2);
  for (size_t i = 0; i < 2; ++i) {
    views[i].id = i + 1;
    views[i].tenant = &tenants[i];
    views[i].has_work = true;
  }
  Snapshot snapshot;
  const auto decide_after = [&](Nanoseconds time) {
    snapshot.now += time;
    snapshot.coroutines = views;
    return policy->Decide(snapshot);
  };
  decide_after(kSecond);
  // The turn goes to the second tenant while work of the first one is in the hardware. The second
  // one has no work soon after, so the turn returns.
  views[0].in_flight = kMillisecond;
  CHECK(decide_after(8 * kMillisecond).grants[1].idle.window != 0);
  views[1].has_work = false;
  CHECK(decide_after(kMillisecond).grants[0].idle.window != 0);
  views[1].has_work = true;
  const Decision turn = decide_after(3 * kMillisecond);
  CHECK(turn.grants[0].budget == 4 * kMillisecond);
  CHECK(turn.ask_again_at == snapshot.now + 5 * kMillisecond);
}

TEST_CASE("Under policy temporal the weights of tenants without work do not shorten turns") {
  auto policy = *CreatePolicy("temporal", {{{"slice", "8ms"}}});
  const Tenant tenants[] = {Weighted("a", 1), Weighted("b", 1), Weighted("idle", 8)};
  std::vector<CoroutineView> views(3);
  for (size_t i = 0; i < 3; ++i) {
    views[i].id = i + 1;
    views[i].tenant = &tenants[i];
    views[i].has_work = i != 2;
  }
  Snapshot snapshot;
  snapshot.now = kSecond;
  snapshot.coroutines = views;
  CHECK(policy->Decide(snapshot).grants[0].budget == 8 * kMillisecond);
}

}  // namespace
}  // namespace detshare::policy
