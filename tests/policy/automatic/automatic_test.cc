#include "policy/automatic/automatic.h"

#include <catch2/catch.hpp>

#include "policy/partition_pool.h"
#include "policy/registry.h"
#include "tests/policy/device_shapes.h"
#include "tests/policy/virtual_device.h"

namespace detshare::policy {
namespace {

Tenant Named(std::string name) {
  Tenant tenant;
  tenant.name = std::move(name);
  return tenant;
}

// The grant of a tenant without a class, beside a batch tenant, if its program behaves like this.
Grant GrantOf(Policy& policy, const CoroutineView& learned, const Tenant& tenant = Named("x")) {
  Tenant batch = Named("batch");
  batch.tenant_class = TenantClass::kBatch;
  std::vector<SmRange> partitions = {SmRange{}};
  std::vector<CoroutineView> views(2, learned);
  views[0].id = 1;
  views[0].tenant = &tenant;
  views[1] = {};
  views[1].id = 2;
  views[1].tenant = &batch;
  Snapshot snapshot;
  snapshot.now = kSecond;
  snapshot.device = {132, 8};
  snapshot.partitions = partitions;
  snapshot.coroutines = views;
  return policy.Decide(snapshot).grants[0];
}

int RankOf(Policy& policy, const CoroutineView& learned, const Tenant& tenant = Named("x")) {
  return GrantOf(policy, learned, tenant).rank;
}

CoroutineView Learned(Nanoseconds device_time, Nanoseconds burst, Nanoseconds gap) {
  CoroutineView view;
  view.device_time = device_time;
  view.typical_burst = burst;
  view.typical_gap = gap;
  return view;
}

constexpr int kLatency = 0, kUnset = 5, kBatch = 6;

TEST_CASE("Policy auto treats short bursts with pauses as latency and steady work as batch") {
  auto policy = *CreatePolicy("auto", {});
  const auto rank = [](const CoroutineView& view) {
    return RankOf(**CreatePolicy("auto", {}), view);
  };
  CHECK(rank(Learned(kSecond, kMillisecond, 5 * kMillisecond)) == kLatency);
  CHECK(rank(Learned(50 * kMillisecond, kMillisecond, 5 * kMillisecond)) == kUnset);
  // Steady work, long bursts, and pauses that come from the program's own slowness.
  const int batch = rank(Learned(kSecond, 57 * kMillisecond, kMillisecond));
  CHECK(batch == kBatch);
  CHECK(rank(Learned(kSecond, 200 * kMillisecond, 200 * kMillisecond)) == batch);
  CHECK(rank(Learned(kSecond, 100 * kMicrosecond, 100 * kMicrosecond)) == batch);
}

TEST_CASE(
    "Policy auto sees after some bursts that users wait for results, however short they are") {
  const auto rank_after = [](int bursts, Nanoseconds gap) {
    auto policy = *CreatePolicy("auto", {});
    CoroutineView view = Learned(kMillisecond, 30 * kMicrosecond, gap);
    int rank = kUnset;
    for (int burst = 0; burst < bursts; ++burst) {
      for (const bool has_work : {true, false}) {
        view.has_work = has_work;
        view.changed_at += kMillisecond;
        RankOf(*policy, view);
        rank = RankOf(*policy, view);  // nothing has changed
      }
    }
    return rank;
  };
  CHECK(rank_after(31, kMillisecond) == kUnset);
  CHECK(rank_after(32, kMillisecond) == kLatency);
  CHECK(rank_after(100, 100 * kMicrosecond) == kUnset);
}

TEST_CASE("Policy auto keeps its class near the border") {
  auto policy = *CreatePolicy("auto", {});
  const CoroutineView border = Learned(kSecond, 10 * kMillisecond, 4 * kMillisecond);
  CHECK(RankOf(*policy, border) != kLatency);
  CHECK(RankOf(*policy, Learned(kSecond, 10 * kMillisecond, 6 * kMillisecond)) == kLatency);
  CHECK(RankOf(*policy, border) == kLatency);
  CHECK(RankOf(*policy, Learned(kSecond, 10 * kMillisecond, kMillisecond)) != kLatency);
  CHECK(RankOf(*policy, border) != kLatency);
}

TEST_CASE("Policy auto keeps its class while bursts are up to twice as long as the longest") {
  auto policy = *CreatePolicy("auto", {});
  const auto rank = [&](Nanoseconds burst) {
    return RankOf(*policy, Learned(kSecond, burst, 100 * kMillisecond));
  };
  CHECK(rank(51 * kMillisecond) != kLatency);
  CHECK(rank(50 * kMillisecond) == kLatency);
  CHECK(rank(100 * kMillisecond) == kLatency);
  CHECK(rank(101 * kMillisecond) != kLatency);
  CHECK(rank(51 * kMillisecond) != kLatency);
}

TEST_CASE("Policy auto trusts the operator and objectives more than its observations") {
  auto policy = *CreatePolicy("auto", {});
  const CoroutineView bursty = Learned(kSecond, kMillisecond, 5 * kMillisecond);
  Tenant batch = Named("x");
  batch.tenant_class = TenantClass::kBatch;
  CHECK(RankOf(*policy, bursty, batch) != kLatency);
  Tenant slo = Named("x");
  slo.slo_latency = 5 * kMillisecond;
  CHECK(RankOf(*policy, Learned(kSecond, 57 * kMillisecond, 0), slo) == kLatency);
  CoroutineView tokens = Learned(kSecond, 20 * kMillisecond, 0);
  tokens.tokens.tokens = 100;
  tokens.tokens.last_at = kSecond;
  CHECK(RankOf(*policy, tokens) == 3);
}

TEST_CASE("Policy auto finds the programs to protect") {
  const auto run = [](const char* name) {
    VirtualDevice device({132, 8}, *CreatePolicy(name, {}));
    const size_t inference =
        device.Open(Named("inference"), Arrivals(5 * kMillisecond, {1310 * kMicrosecond}, 1));
    const size_t training =
        device.Open(Named("training"), Steady(std::vector<Nanoseconds>(1900, 30 * kMicrosecond)));
    device.Run(20 * kSecond);
    return std::pair(Quantile(device[inference].latencies, 0.9),
                     static_cast<double>(device[training].device_time) / (20 * kSecond));
  };
  const auto [latency, speed] = run("auto");
  const auto [unguarded, unguarded_speed] = run("whole");
  CHECK(speed > 0.65);
  CHECK(latency * 2 < unguarded);
}

TEST_CASE("Under policy auto, a short SLO waits for few operations of a tenant with a long one") {
  VirtualDevice device(kPreemptingH200, *CreatePolicy("auto", {}));
  const auto latency = [](const char* name, Nanoseconds slo) {
    Tenant tenant = Named(name);
    tenant.tenant_class = TenantClass::kLatency;
    tenant.slo_latency = slo;
    return tenant;
  };
  const size_t fast = device.Open(latency("fast", 2 * kMillisecond),
                                  Arrivals(5 * kMillisecond, {1310 * kMicrosecond}, 1));
  const size_t slow =
      device.Open(latency("slow", 20 * kMillisecond),
                  Arrivals(5 * kMillisecond, std::vector<Nanoseconds>(24, 165 * kMicrosecond), 2));
  const size_t training =
      device.Open(Named("training"), Steady(std::vector<Nanoseconds>(1900, 30 * kMicrosecond)));
  device.Run(10 * kSecond);
  // Four operations of the other tenant are before a request, at most.
  CHECK(Quantile(device[fast].latencies, 0.99) < 1310 * kMicrosecond + 4 * 165 * kMicrosecond);
  CHECK(Quantile(device[slow].latencies, 0.9) < 8 * kMillisecond);
  CHECK(device[training].device_time > 2 * kSecond);
}

TEST_CASE("Policy auto divides a device of batch by weight") {
  VirtualDevice device({132, 8}, *CreatePolicy("auto", {}));
  for (const double weight : {1., 3.}) {
    Tenant tenant = Named("t" + std::to_string(weight));
    tenant.tenant_class = TenantClass::kBatch;
    tenant.weight = weight;
    device.Open(tenant, Steady(std::vector<Nanoseconds>(1000, 20 * kMicrosecond)));
  }
  device.Run(4 * kSecond);
  CHECK(static_cast<double>(device[1].device_time) / device[0].device_time ==
        Approx(3).margin(0.2));
}

TEST_CASE("Policy auto keeps memory-bound batch on half of the SMs beside other batch") {
  std::vector<Tenant> tenants = {Named("serving"), Named("copies"), Named("arithmetic")};
  tenants[0].tenant_class = TenantClass::kLatency;
  tenants[1].tenant_class = tenants[2].tenant_class = TenantClass::kBatch;
  std::vector<SmRange> partitions = {SmRange{}};
  for (const SmRange& range : StandardPartitions({132, 8})) partitions.push_back(range);
  std::vector<CoroutineView> views(3);
  for (size_t i = 0; i < 3; ++i) {
    views[i].id = i + 1;
    views[i].tenant = &tenants[i];
    views[i].has_work = true;
  }
  views[1].memory_bound = 0.9;
  views[2].memory_bound = 0.1;
  Snapshot snapshot;
  snapshot.device = {132, 8};
  snapshot.partitions = partitions;
  snapshot.coroutines = views;
  auto policy = *CreatePolicy("auto", {});
  CHECK(SmsOf({132, 8}, partitions[policy->Decide(snapshot).grants[1].idle.partition]) == 64);
  CHECK(policy->Decide(snapshot).grants[2].idle.partition == 0);
  // It gets no more SMs than it had.
  auto narrow = *CreatePolicy("auto", {{{"long_share", "25%"}}});
  const Grant bound = narrow->Decide(snapshot).grants[1];
  CHECK(SmsOf({132, 8}, partitions[bound.idle.partition]) == 64);
  CHECK(SmsOf({132, 8}, partitions[bound.idle.long_partition]) == 32);
  views[2].has_work = false;
  CHECK(policy->Decide(snapshot).grants[1].idle.partition == 0);
}

TEST_CASE("Policy auto makes latency work urgent, and nothing else") {
  auto policy = *CreatePolicy("auto", {});
  CHECK(GrantOf(*policy, Learned(kSecond, kMillisecond, 5 * kMillisecond)).urgent);
  CHECK_FALSE(GrantOf(*policy, Learned(kSecond, 57 * kMillisecond, kMillisecond)).urgent);
  CHECK_FALSE(GrantOf(*policy, Learned(0, kMillisecond, 5 * kMillisecond)).urgent);
}

TEST_CASE("Policy auto uses its parameters at their exact values") {
  const auto rank = [](const std::string& name, const std::string& value, Nanoseconds device_time,
                       Nanoseconds burst, Nanoseconds gap) {
    return RankOf(**CreatePolicy("auto", {{{name, value}}}), Learned(device_time, burst, gap));
  };
  constexpr Nanoseconds kBurst = 2 * kMillisecond, kGap = 10 * kMillisecond;
  CHECK(rank("learn_after", "1s", kSecond, kBurst, kGap) == kLatency);
  CHECK(rank("learn_after", "1s", kSecond - 1, kBurst, kGap) == kUnset);
  CHECK(rank("longest_burst", "2ms", kSecond, kBurst, kGap) == kLatency);
  CHECK(rank("longest_burst", "2ms", kSecond, kBurst + 1, kGap) != kLatency);
  CHECK(rank("min_gap", "10ms", kSecond, kBurst, kGap) == kLatency);
  CHECK(rank("min_gap", "10ms", kSecond, kBurst, kGap - 1) != kLatency);
  CHECK(rank("min_gap", "1us", kSecond, kBurst, kBurst / 2) == kLatency);
  CHECK(rank("min_gap", "1us", kSecond, kBurst, kBurst / 2 - 1) != kLatency);
}

TEST_CASE("Policy auto gives programs that wait for each other one class") {
  const CoroutineView serves = Learned(kSecond, kMillisecond, 5 * kMillisecond);
  const CoroutineView works = Learned(kSecond, 57 * kMillisecond, kMillisecond);
  Tenant server = Named("server"), other = Named("other"), batch = Named("batch");
  batch.tenant_class = TenantClass::kBatch;
  std::vector<CoroutineView> views = {serves, works, works, works};
  std::vector<const Tenant*> tenants = {&server, &server, &batch, &other};
  std::vector<SmRange> partitions = {SmRange{}};
  Snapshot snapshot;
  snapshot.now = kSecond;
  snapshot.device = {132, 8};
  snapshot.partitions = partitions;
  const auto ranks = [&](std::vector<CoroutineId> teams) {
    for (size_t i = 0; i < views.size(); ++i) {
      views[i].id = i + 1;
      views[i].tenant = tenants[i];
      views[i].team = teams[i];
    }
    snapshot.coroutines = views;
    std::vector<int> ranks;
    for (const Grant& grant : (*CreatePolicy("auto", {}))->Decide(snapshot).grants)
      ranks.push_back(grant.rank);
    return ranks;
  };
  const std::vector<int> apart = ranks({0, 0, 0, 0});
  const int rank_of_batch = apart[1];
  REQUIRE(apart[0] == kLatency);
  REQUIRE(rank_of_batch != kLatency);
  CHECK(ranks({1, 1, 0, 0}) == std::vector<int>{kLatency, kLatency, apart[2], apart[3]});
  // The class that an operator has set stays.
  CHECK(ranks({1, 0, 1, 0}) == apart);
  // A team in which nobody waits for results is batch.
  CHECK(ranks({0, 2, 0, 2}) == apart);
}

}  // namespace
}  // namespace detshare::policy
