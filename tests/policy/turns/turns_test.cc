#include "policy/turns/turns.h"

#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "policy/registry.h"
#include "tests/policy/virtual_device.h"

namespace detshare::policy {
namespace {

constexpr DeviceShape kPreempting{132, 8, 10 * kMicrosecond};

Tenant Named(std::string name, TenantClass tenant_class = TenantClass::kUnset) {
  Tenant tenant;
  tenant.name = std::move(name);
  tenant.tenant_class = tenant_class;
  return tenant;
}

Tenant Exclusive(std::string name, TenantClass tenant_class = TenantClass::kUnset) {
  Tenant tenant = Named(std::move(name), tenant_class);
  tenant.exclusive = true;
  return tenant;
}

const std::vector<Nanoseconds> kShort(200, 20 * kMicrosecond);

// The device throws if an exclusive tenant's operations run beside those of another tenant.

TEST_CASE("Under every policy an exclusive tenant runs alone and gets its share") {
  for (const std::string& name : PolicyNames()) {
    INFO(name);
    VirtualDevice device({132, 8}, *CreatePolicy(name, {}));
    const size_t exclusive = device.Open(Exclusive("exclusive", TenantClass::kBatch),
                                         Steady({20 * kMillisecond, kMillisecond}));
    for (const char* other : {"a", "b"})
      device.Open(Named(other, TenantClass::kBatch), Steady(kShort));
    device.Run(3 * kSecond);
    // Its weight is a third of all.
    CHECK(std::abs(device[exclusive].device_time - kSecond) < 80 * kMillisecond);
    for (const size_t other : {1, 2})
      CHECK(std::abs(device[other].device_time - kSecond) < 150 * kMillisecond);
  }
}

TEST_CASE("The other tenants share the device in space within their turn") {
  VirtualDevice device({132, 8}, *CreatePolicy("fair", {}));
  device.Open(Exclusive("exclusive"), Steady(kShort));
  const size_t a = device.Open(Named("a"), Steady(kShort));
  const size_t b = device.Open(Named("b"), Steady(kShort));
  device.Run(kSecond);
  CHECK(device.max_running() == 2);
  for (const size_t other : {a, b}) {
    const auto& begun = device[other].begun;
    const auto partial = std::count_if(begun.begin(), begun.end(),
                                       [](const auto& one) { return !one.second.whole(); });
    CHECK(partial > static_cast<ptrdiff_t>(begun.size()) / 2);
  }
  const auto& begun = device[0].begun;
  CHECK(
      std::all_of(begun.begin(), begun.end(), [](const auto& one) { return one.second.whole(); }));
}

TEST_CASE("Several coroutines of an exclusive tenant run beside each other") {
  VirtualDevice device({132, 8}, *CreatePolicy("fair", {}));
  device.Open(Exclusive("exclusive"), Steady(kShort));
  device.Open(Exclusive("exclusive"), Steady(kShort));
  device.Open(Named("a"), Steady(kShort));
  device.Run(kSecond);
  CHECK(device.max_running() == 2);
  CHECK(std::abs(device[2].device_time - kSecond / 2) < 40 * kMillisecond);
}

TEST_CASE("An exclusive tenant without work costs the others nothing") {
  for (const char* name : {"fair", "priority", "auto", "static"}) {
    INFO(name);
    VirtualDevice device({132, 8}, *CreatePolicy(name, {}));
    device.Open(Exclusive("idle"), [](Nanoseconds) { return Burst{}; });
    const size_t a = device.Open(Named("a", TenantClass::kBatch), Steady(kShort));
    const size_t b = device.Open(Named("b", TenantClass::kBatch), Steady(kShort));
    device.Run(kSecond);
    CHECK(device[a].device_time + device[b].device_time > 990 * kMillisecond);
  }
}

TEST_CASE("Urgent work that preempts interrupts an exclusive tenant's turn") {
  for (const char* name : {"priority", "tpot-first"}) {
    INFO(name);
    VirtualDevice device(kPreempting, *CreatePolicy(name, {}));
    const size_t batch =
        device.Open(Exclusive("batch", TenantClass::kBatch), Steady({50 * kMillisecond}));
    const size_t urgent =
        device.Open(Named("urgent", TenantClass::kLatency),
                    Periodic(0, 10 * kMillisecond, std::vector<Nanoseconds>(20, 50000)));
    device.Run(kSecond);
    REQUIRE(device[urgent].latencies.size() > 90);
    CHECK(Quantile(device[urgent].latencies, 1) < 1500 * kMicrosecond);
    CHECK(device[batch].device_time > 800 * kMillisecond);
  }
}

TEST_CASE("Ordinary work does not throttle an exclusive tenant that is urgent") {
  VirtualDevice device(kPreempting, *CreatePolicy("priority", {}));
  const size_t urgent =
      device.Open(Exclusive("urgent", TenantClass::kLatency),
                  Periodic(0, 10 * kMillisecond, std::vector<Nanoseconds>(20, 50000)));
  device.Open(Named("batch", TenantClass::kBatch), Steady({50 * kMillisecond}));
  device.Run(kSecond);
  REQUIRE(device[urgent].latencies.size() > 90);
  CHECK(Quantile(device[urgent].latencies, 1) < 1500 * kMicrosecond);
}

TEST_CASE("Two urgent tenants of which one is exclusive take turns") {
  VirtualDevice device(kPreempting, *CreatePolicy("priority", {}));
  device.Open(Exclusive("a", TenantClass::kLatency), Steady(kShort));
  device.Open(Named("b", TenantClass::kLatency), Steady(kShort));
  device.Run(kSecond);
  CHECK(device.max_running() == 1);
  for (const size_t i : {0, 1})
    CHECK(std::abs(device[i].device_time - kSecond / 2) < 40 * kMillisecond);
}

TEST_CASE("Without coroutines of exclusive tenants a policy decides as by itself") {
  auto policy = *CreatePolicy("fair", {});
  const Tenant tenants[] = {Named("a"), Exclusive("elsewhere")};
  CHECK(policy->TakesTurns(tenants));
  CHECK_FALSE(policy->TakesTurns({}));
  std::vector<CoroutineView> views(2);
  for (size_t i = 0; i < 2; ++i) {
    views[i].id = i + 1;
    views[i].tenant = &tenants[0];
    views[i].has_work = true;
  }
  const SmRange whole;
  Snapshot snapshot;
  snapshot.now = 1;
  snapshot.device = {132, 8};
  snapshot.partitions = {&whole, 1};
  snapshot.tenants = tenants;
  snapshot.coroutines = views;
  for (const Grant& grant : policy->Decide(snapshot).grants) {
    CHECK(grant.turn_group == 0);
    CHECK(grant.idle.window > 0);
  }
}

// What a policy is asked about two coroutines with work, each of its own tenant, on a device without
// preemption.
struct TwoAtWork {
  const std::array<Tenant, 2> tenants;
  const SmRange whole;
  std::vector<CoroutineView> views{2};
  Snapshot snapshot;

  TwoAtWork(Tenant first, Tenant second) : tenants{std::move(first), std::move(second)} {
    for (size_t i = 0; i < 2; ++i) {
      views[i].id = i + 1;
      views[i].tenant = &tenants[i];
      views[i].has_work = true;
    }
    snapshot.now = 1;
    snapshot.device = {132, 8};
    snapshot.partitions = {&whole, 1};
    snapshot.tenants = tenants;
    snapshot.coroutines = views;
  }
};

TEST_CASE("Work that waits for its turn goes behind all other work") {
  auto policy = *CreatePolicy("priority", {});
  const TwoAtWork two(Exclusive("exclusive", TenantClass::kBatch),
                      Named("latency", TenantClass::kLatency));
  const Decision decision = policy->Decide(two.snapshot);
  REQUIRE(decision.grants[0].idle.window > 0);
  REQUIRE(decision.grants[1].idle.window == 0);
  CHECK(decision.grants[1].rank == kRanks - 1);
  CHECK(decision.grants[0].rank < kRanks - 1);
}

TEST_CASE("Work beyond its turn gets another operation when it takes much longer than it should") {
  auto policy = *CreatePolicy("temporal", {});
  TwoAtWork two(Named("a"), Named("b"));
  REQUIRE(policy->Decide(two.snapshot).grants[0].idle.window > 0);
  // The turn of the first one is over.
  two.snapshot.now += kSecond;
  const auto throttled_for = [&](Nanoseconds in_flight) {
    two.views[0].in_flight = in_flight;
    two.snapshot.now += kMillisecond;
    const Limits limits = policy->Decide(two.snapshot).grants[0].idle;
    REQUIRE(limits.window == 0);
    return limits.max_throttle;
  };
  CHECK(throttled_for(0) == 10 * kSecond);
  CHECK(throttled_for(kMillisecond) == 100 * kMillisecond);
  CHECK(throttled_for(kSecond) == 4 * kSecond);
  CHECK(throttled_for(kForever) == 10 * kSecond);
}

TEST_CASE("Work that waits for its turn does not run in the tail of a request either") {
  auto policy = *CreatePolicy("priority", {});
  const TwoAtWork two(Exclusive("exclusive", TenantClass::kLatency),
                      Named("batch", TenantClass::kBatch));
  const Decision decision = policy->Decide(two.snapshot);
  REQUIRE(decision.grants[0].idle.window > 0);
  CHECK(decision.grants[1].idle.window == 0);
  CHECK(decision.grants[1].contended.window == 0);
  CHECK(TailLimits(decision.grants[1]).window == 0);
}

// Gives everybody half of the device.
class Halves final : public Policy {
 public:
  std::vector<SmRange> Partitions(const DeviceShape&, absl::Span<const Tenant>) const override {
    return {{0, 64}};
  }
  Decision Decide(const Snapshot& snapshot) override {
    Decision decision;
    decision.grants.resize(snapshot.coroutines.size());
    for (Grant& grant : decision.grants) grant.idle.partition = grant.contended.partition = 1;
    return decision;
  }
};

TEST_CASE("An exclusive tenant always has the same SMs, whatever the policy gives it") {
  const auto policy = WithExclusiveTurns(std::make_unique<Halves>());
  std::vector<Tenant> tenants = {Exclusive("exclusive"), Exclusive("half"), Named("other")};
  tenants[1].sm_percent = 50;
  const SmRange partitions[] = {{}, {0, 64}};
  Snapshot snapshot;
  snapshot.device = {132, 8};
  snapshot.partitions = partitions;
  snapshot.tenants = tenants;
  for (size_t count = 1; count <= tenants.size(); ++count) {
    std::vector<CoroutineView> views(count);
    for (size_t i = 0; i < count; ++i) {
      views[i].id = i + 1;
      views[i].tenant = &tenants[i];
      views[i].has_work = true;
    }
    snapshot.now += kMillisecond;
    snapshot.coroutines = views;
    const Decision decision = policy->Decide(snapshot);
    for (size_t i = 0; i < count; ++i) CHECK(decision.grants[i].idle.partition == (i == 0 ? 0 : 1));
  }
}

TEST_CASE("A tenant has one share of the turns beside an exclusive one, however many coroutines") {
  VirtualDevice device({132, 8}, *CreatePolicy("fair", {}));
  const size_t exclusive = device.Open(Exclusive("exclusive"), Steady(kShort));
  for (int i = 0; i < 3; ++i) device.Open(Named("a"), Steady(kShort));
  device.Run(kSecond);
  CHECK(std::abs(device[exclusive].device_time - kSecond / 2) < 40 * kMillisecond);
}

// A generator whose sequence is the same everywhere.
struct Random {
  uint64_t state;
  uint64_t Below(uint64_t bound) {
    uint64_t z = (state += 0x9E3779B97F4A7C15ull);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    return (z ^ (z >> 31)) % bound;
  }
};

TEST_CASE("Random programs of exclusive tenants run alone, and none starves beside ordinary work") {
  const std::vector<std::string> policies = PolicyNames();
  for (uint64_t seed = 1; seed <= 30; ++seed) {
    Random random{seed};
    const std::string name = policies[random.Below(policies.size())];
    INFO("seed " << seed << ", policy " << name);
    const bool preempting = random.Below(2) == 0;
    VirtualDevice device(preempting ? kPreempting : DeviceShape{132, 8}, *CreatePolicy(name, {}));
    std::vector<Tenant> tenants;
    for (uint64_t i = 0; i < 2 + random.Below(4); ++i) {
      Tenant tenant = Named("t" + std::to_string(i), static_cast<TenantClass>(random.Below(3)));
      tenant.exclusive = i == 0 || random.Below(3) == 0;
      tenant.weight = 1 + static_cast<double>(random.Below(4));
      if (random.Below(4) == 0) tenant.slo_latency = kMillisecond << random.Below(8);
      if (random.Below(4) == 0) tenant.slo_tpot = 30 * kMillisecond;
      if (random.Below(4) == 0) tenant.max_sms = 64;
      tenants.push_back(tenant);
    }
    const uint64_t coroutines = 2 + random.Below(6);
    for (uint64_t i = 0; i < coroutines; ++i) {
      const Tenant& tenant = tenants[i < tenants.size() ? i : random.Below(tenants.size())];
      std::vector<Nanoseconds> operations(1 + random.Below(60));
      for (Nanoseconds& operation : operations)
        operation = 5000 + static_cast<Nanoseconds>(random.Below(10000ull << random.Below(10)));
      const uint64_t kind = random.Below(3);
      device.Open(tenant, kind == 0   ? Steady(operations)
                          : kind == 1 ? Arrivals(20 * kMillisecond, operations, seed + i)
                                      : Periodic(0, 30 * kMillisecond, operations));
    }
    CHECK_NOTHROW(device.Run(kSecond));
    // Urgent work that preempts and never pauses leaves the others nothing.
    for (uint64_t i = 0; i < coroutines && !preempting; ++i) CHECK(device[i].device_time > 0);
  }
}

}  // namespace
}  // namespace detshare::policy
