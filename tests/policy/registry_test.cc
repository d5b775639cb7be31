#include "policy/registry.h"

#include <algorithm>
#include <catch2/catch.hpp>

#include "policy/partition_pool.h"
#include "tests/policy/virtual_device.h"

namespace detshare::policy {
namespace {

bool Says(const absl::Status& status, const std::string& text) {
  return std::string(status.message()).find(text) != std::string::npos;
}

TEST_CASE("Every parameter's default is within its bounds and can be set") {
  for (const std::string& name : PolicyNames()) {
    CHECK_FALSE(PurposeOf(name).empty());
    const auto parameters = *ParametersOf(name);
    for (const Parameter& parameter : parameters) {
      INFO(name << " " << parameter.name);
      CHECK_FALSE(parameter.help.empty());
      for (const absl::string_view value :
           {parameter.default_value, parameter.min, parameter.max}) {
        CHECK(CreatePolicy(name, {{{std::string(parameter.name), std::string(value)}}}).ok());
      }
      for (const char* bad : {"", "nan", "inf", "-1", "-1ms", "many", "1e300", "2 ms"}) {
        const absl::Status status =
            CreatePolicy(name, {{{std::string(parameter.name), bad}}}).status();
        CHECK(status.code() == absl::StatusCode::kInvalidArgument);
        CHECK(Says(status, std::string(parameter.name)));
      }
    }
  }
  CHECK_FALSE(ParametersOf("fastest").ok());
}

TEST_CASE("An unknown parameter is refused, and the error names the policy's parameters") {
  for (const std::string& name : PolicyNames()) {
    const absl::Status status = CreatePolicy(name, {{{"speed", "9"}}}).status();
    CHECK(status.code() == absl::StatusCode::kInvalidArgument);
    CHECK(Says(status, "speed"));
    const auto parameters = *ParametersOf(name);
    for (const Parameter& parameter : parameters) {
      CHECK(Says(status, std::string(parameter.name)));
    }
  }
}

// Random snapshots. The device must be able to carry out every decision.
class Noise {
 public:
  explicit Noise(uint64_t seed) : state_(seed) {}
  uint64_t Next() {
    uint64_t z = (state_ += 0x9E3779B97F4A7C15ull);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    return z ^ (z >> 31);
  }
  int Below(int bound) { return static_cast<int>(Next() % bound); }
  Nanoseconds Time() {
    switch (Below(6)) {
      case 0:
        return 0;
      case 1:
        return kForever;
      case 2:
        return kForever - Below(1000);
      default:
        return static_cast<Nanoseconds>(Next() >> (2 + Below(60)));
    }
  }

 private:
  uint64_t state_;
};

std::vector<Decision> DecisionsOf(const std::string& name, uint64_t seed) {
  Noise noise(seed);
  auto policy = *CreatePolicy(name, {});
  const DeviceShape shapes[] = {{132, 8}, {1, 1}, {2, 1}, {4, 2}, {7, 8}, {1 << 20, 1}};
  const DeviceShape device = shapes[noise.Below(6)];
  std::vector<SmRange> partitions = {SmRange{}};
  for (const SmRange& range : StandardPartitions(device)) partitions.push_back(range);
  std::vector<Tenant> tenants(1 + noise.Below(12));
  for (size_t i = 0; i < tenants.size(); ++i) {
    tenants[i].name = "t" + std::to_string(i);
    tenants[i].tenant_class = static_cast<TenantClass>(noise.Below(3));
    tenants[i].weight = noise.Below(2) == 0 ? 1 : 1e-3 * (1 + noise.Below(1000000));
    if (noise.Below(3) == 0) tenants[i].slo_tpot = noise.Time();
    if (noise.Below(3) == 0) tenants[i].slo_ttft = noise.Time();
    if (noise.Below(3) == 0) tenants[i].slo_latency = noise.Time();
    if (noise.Below(4) == 0) tenants[i].max_sms = noise.Below(2000);
    if (noise.Below(4) == 0) tenants[i].min_sms = noise.Below(2000);
  }
  std::vector<Decision> decisions;
  Nanoseconds now = 0;
  for (int round = 0; round < 20; ++round) {
    now = round == 19 ? kForever - 1 : now + 1 + noise.Below(10000000);
    std::vector<CoroutineView> coroutines(round == 0 ? 0 : noise.Below(24));
    std::vector<OtherEngineView> others(noise.Below(4));
    const auto fill = [&](CoroutineView& view, size_t i) {
      view.id = i + 1 + noise.Below(2);
      view.tenant = &tenants[noise.Below(static_cast<int>(tenants.size()))];
      view.opened_at = noise.Time();
      view.has_work = noise.Below(2) == 0;
      view.changed_at = noise.Time();
      view.in_flight = noise.Time();
      view.throttled_since = noise.Time();
      view.device_time = noise.Time();
      view.longest_operation = noise.Time();
      view.typical_operation = noise.Time();
      view.typical_burst = noise.Time();
      view.typical_gap = noise.Time();
      view.memory_bound = noise.Below(3) - 1;
      view.tokens.tokens = noise.Below(3);
      view.tokens.last_at = noise.Time();
      view.tokens.recent_tpot = noise.Time();
      view.tokens.decode_work = noise.Time();
      view.tokens.prefill = noise.Below(2) == 0;
      view.tokens.prefill_since = noise.Time();
    };
    for (size_t i = 0; i < coroutines.size(); ++i) {
      fill(coroutines[i], i);
      coroutines[i].preempts = noise.Below(2) == 0;
      coroutines[i].always_preempts = noise.Below(4) == 0;
    }
    for (OtherEngineView& other : others) {
      fill(other.coroutine, 100);
      other.coroutine.preempts = noise.Below(4) != 0;
      other.rank = noise.Below(kRanks);
      other.urgent = noise.Below(2) == 0;
    }
    Snapshot snapshot;
    snapshot.now = now;
    snapshot.device = device;
    snapshot.partitions = partitions;
    snapshot.tenants = tenants;
    snapshot.coroutines = coroutines;
    snapshot.other_engines = others;
    decisions.push_back(policy->Decide(snapshot));
    const Decision& decision = decisions.back();
    REQUIRE(decision.grants.size() == coroutines.size());
    CHECK(decision.ask_again_at > now);
    for (const Grant& grant : decision.grants) {
      CHECK((grant.rank >= 0 && grant.rank < kRanks));
      CHECK(grant.budget > 0);
      std::vector<int> named(grant.prepare.begin(), grant.prepare.end());
      for (const Limits& limits : {grant.idle, grant.contended, TailLimits(grant)}) {
        named.push_back(limits.partition);
        named.push_back(limits.long_partition);
        named.push_back(limits.yielding_partition);
        // No coroutine may starve.
        CHECK(
            (limits.window >= 0 && limits.max_throttle > 0 && limits.max_throttle < 100 * kSecond));
      }
      const auto [least, most] = std::minmax_element(named.begin(), named.end());
      CHECK((*least >= 0 && *most < static_cast<int>(partitions.size())));
    }
  }
  return decisions;
}

TEST_CASE("Any snapshot gets a valid decision, the same one each time") {
  for (const std::string& name : PolicyNames()) {
    INFO(name);
    for (uint64_t seed = 1; seed <= 100; ++seed) {
      const std::vector<Decision> first = DecisionsOf(name, seed);
      const std::vector<Decision> second = DecisionsOf(name, seed);
      REQUIRE(first.size() == second.size());
      for (size_t i = 0; i < first.size(); ++i) {
        REQUIRE(first[i].ask_again_at == second[i].ask_again_at);
        REQUIRE(first[i].grants == second[i].grants);
      }
    }
  }
}

TEST_CASE("Under every policy a program alone runs as if there were no policy") {
  for (const std::string& name : PolicyNames()) {
    INFO(name);
    VirtualDevice device({132, 8}, *CreatePolicy(name, {}));
    Tenant tenant;
    tenant.name = "alone";
    tenant.tenant_class = TenantClass::kBatch;
    const size_t alone = device.Open(tenant, Steady({30000, 1000000, 5000}));
    device.Run(kSecond);
    CHECK(device[alone].device_time > 999 * kMillisecond);
  }
}

TEST_CASE("Under every policy the device is busy as long as there is work") {
  for (const std::string& name : PolicyNames()) {
    INFO(name);
    VirtualDevice device({132, 8}, *CreatePolicy(name, {}));
    std::vector<size_t> all;
    for (int i = 0; i < 3; ++i) {
      Tenant tenant;
      tenant.name = "batch" + std::to_string(i);
      tenant.tenant_class = TenantClass::kBatch;
      tenant.weight = i + 1;
      all.push_back(device.Open(tenant, Steady(std::vector<Nanoseconds>(100, 30000 + 1000 * i))));
    }
    device.Run(2 * kSecond);
    Nanoseconds total = 0;
    for (const size_t index : all) {
      total += device[index].device_time;
      CHECK(device[index].device_time > 100 * kMillisecond);
    }
    CHECK(total > 1800 * kMillisecond);
  }
}

}  // namespace
}  // namespace detshare::policy
