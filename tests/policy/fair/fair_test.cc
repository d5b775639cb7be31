#include "policy/fair/fair.h"

#include <catch2/catch.hpp>

#include "policy/registry.h"
#include "tests/policy/virtual_device.h"

namespace detshare::policy {
namespace {

Tenant Weighted(std::string name, double weight) {
  Tenant tenant;
  tenant.name = std::move(name);
  tenant.weight = weight;
  return tenant;
}

const std::vector<Nanoseconds> kShort(1000, 20 * kMicrosecond);

// The device time of each, in percent of the total.
std::vector<double> Shares(const DeviceShape& shape, const std::vector<double>& weights) {
  VirtualDevice device(shape, *CreatePolicy("fair", {}));
  for (size_t i = 0; i < weights.size(); ++i) {
    device.Open(Weighted("t" + std::to_string(i), weights[i]), Steady(kShort));
  }
  device.Run(4 * kSecond);
  double total = 0;
  for (size_t i = 0; i < weights.size(); ++i) total += device[i].device_time;
  std::vector<double> shares;
  for (size_t i = 0; i < weights.size(); ++i) shares.push_back(100 * device[i].device_time / total);
  CHECK(total > 0.9 * 4 * kSecond);
  return shares;
}

TEST_CASE("Policy fair converges to the weights") {
  for (const DeviceShape shape : {DeviceShape{132, 8}, DeviceShape{1, 1}, DeviceShape{4, 1}}) {
    for (const std::vector<double>& weights :
         {std::vector<double>{1, 1}, {1, 2}, {1, 3}, {5, 1, 1}, {1, 1, 1, 1, 1}, {8, 4, 2, 1}}) {
      double sum = 0;
      for (const double weight : weights) sum += weight;
      const std::vector<double> shares = Shares(shape, weights);
      for (size_t i = 0; i < weights.size(); ++i) {
        INFO(shape.sm_count << " SMs, " << weights.size() << " tenants, number " << i);
        CHECK(shares[i] == Approx(100 * weights[i] / sum).margin(3));
      }
    }
  }
}

TEST_CASE(
    "Policy fair gives tenants with work disjoint partitions, and a single tenant everything") {
  VirtualDevice device({132, 8}, *CreatePolicy("fair", {}));
  const size_t steady = device.Open(Weighted("steady", 1), Steady(kShort));
  const size_t other =
      device.Open(Weighted("other", 1), Periodic(100 * kMillisecond, kSecond, kShort));
  device.Run(130 * kMillisecond);
  CHECK(device[steady].begun.front().second == SmRange{});
  CHECK(device[steady].begun.back().second != SmRange{});
  for (const auto& [work, range] : device[other].begun) CHECK_FALSE(range.whole());
}

TEST_CASE("Policy fair does not let a tenant with little work delay the others") {
  VirtualDevice device({132, 8}, *CreatePolicy("fair", {}));
  // Works one tenth of the time.
  const size_t seldom =
      device.Open(Weighted("seldom", 1), Periodic(0, 10 * kMillisecond, {kMillisecond}));
  const size_t steady = device.Open(Weighted("steady", 1), Steady(kShort));
  device.Run(4 * kSecond);
  CHECK(device[seldom].device_time > 390 * kMillisecond);
  CHECK(device[steady].device_time > 3200 * kMillisecond);
}

TEST_CASE("Policy fair counts the coroutines of a tenant together") {
  VirtualDevice device({132, 8}, *CreatePolicy("fair", {}));
  const size_t one = device.Open(Weighted("one", 1), Steady(kShort));
  const size_t two = device.Open(Weighted("two", 1), Steady(kShort));
  const size_t more = device.Open(Weighted("two", 1), Steady(kShort));
  device.Run(4 * kSecond);
  const double pair = device[two].device_time + device[more].device_time;
  CHECK(pair / device[one].device_time == Approx(1).margin(0.1));
}

TEST_CASE("Policy fair does not save time for idle tenants") {
  VirtualDevice device({1, 1}, *CreatePolicy("fair", {}));
  const size_t steady = device.Open(Weighted("steady", 1), Steady(kShort));
  device.Open(Weighted("late", 1), [](Nanoseconds now) {
    return Burst{std::max(now, 2 * kSecond), kShort};
  });
  device.Run(2 * kSecond);
  const Nanoseconds before = device[steady].device_time;
  device.Run(3 * kSecond);
  CHECK(device[steady].device_time - before > 450 * kMillisecond);
}

TEST_CASE("Policy fair refuses invalid tenants") {
  auto policy = *CreatePolicy("fair", {});
  const auto refused = [&](const Tenant& tenant) {
    return policy->Check({tenant}).code() == absl::StatusCode::kInvalidArgument;
  };
  CHECK(refused(Weighted("a", 0)));
  CHECK(refused(Weighted("a", -1)));
  CHECK(refused(Weighted("a", std::numeric_limits<double>::quiet_NaN())));
  CHECK(refused(Weighted("a", std::numeric_limits<double>::infinity())));
  CHECK_FALSE(refused(Weighted("a", 0.5)));
  Tenant bounds = Weighted("a", 1);
  bounds.min_sms = 9;
  bounds.max_sms = 8;
  CHECK(refused(bounds));
  CHECK_FALSE(policy->Check({Weighted("a", 1), Weighted("a", 1)}).ok());
  CHECK_FALSE(refused(Weighted("a", 1e6)));  // what configurations may say, too
  CHECK(refused(Weighted("a", 1.001e6)));
  bounds.max_sms = 9;
  CHECK_FALSE(refused(bounds));
  bounds.max_sms = 0;
  CHECK_FALSE(refused(bounds));  // no upper bound
  for (int Tenant::*const bound : {&Tenant::min_sms, &Tenant::max_sms}) {
    Tenant negative = Weighted("a", 1);
    negative.*bound = -1;
    CHECK(refused(negative));
  }
  for (Nanoseconds Tenant::*const slo :
       {&Tenant::slo_latency, &Tenant::slo_ttft, &Tenant::slo_tpot}) {
    Tenant negative = Weighted("a", 1);
    negative.*slo = -1;
    CHECK(refused(negative));
  }
}

// Two tenants of equal weight with work; tenant "two" has two coroutines.
struct Race {
  std::unique_ptr<Policy> policy;
  Tenant one = Weighted("one", 1), two = Weighted("two", 1);
  std::vector<SmRange> partitions = {SmRange{}, SmRange{0, 64}, SmRange{64, 68}};
  std::vector<CoroutineView> views = std::vector<CoroutineView>(3);
  Snapshot snapshot;

  explicit Race(const Options& options = {}) : policy(*CreatePolicy("fair", options)) {
    for (size_t i = 0; i < views.size(); ++i) {
      views[i].id = i + 1;
      views[i].tenant = i == 0 ? &one : &two;
      views[i].has_work = true;
    }
    snapshot.device = {132, 8};
    snapshot.partitions = partitions;
  }
  Decision DecideAt(Nanoseconds now) {
    snapshot.now = now;
    snapshot.coroutines = views;
    return policy->Decide(snapshot);
  }
};

TEST_CASE("Policy fair gives a tenant's budget to its coroutines in equal parts") {
  Race race({{{"lead", "8ms"}, {"window", "300us"}}});
  const Decision decision = race.DecideAt(1);
  CHECK(decision.grants[0].budget == 8 * kMillisecond);
  CHECK(decision.grants[1].budget == 4 * kMillisecond);
  CHECK(decision.grants[2].budget == 4 * kMillisecond);
  for (const Grant& grant : decision.grants) {
    CHECK(grant.idle.window == 300 * kMicrosecond);
    CHECK(grant.contended.window == 300 * kMicrosecond);
  }
  CHECK(decision.grants[1].idle.partition == decision.grants[2].idle.partition);
  CHECK(decision.grants[0].idle.partition != decision.grants[1].idle.partition);
}

TEST_CASE(
    "Policy fair lets the tenant of the largest weight lead by the parameter, others by less") {
  Race race;  // the parameter is 4 ms
  race.one.weight = 4;
  race.views.pop_back();
  const Decision decision = race.DecideAt(1);
  CHECK(decision.grants[0].budget == 4 * kMillisecond);
  CHECK(decision.grants[1].budget == kMillisecond);
}

TEST_CASE("Policy fair stops a tenant that is ahead, within its maximum throttle") {
  Race race({{{"lead", "8ms"}, {"longest_stop", "200ms"}}});
  race.DecideAt(1);
  race.views[0].device_time = 8 * kMillisecond - 1;
  CHECK(race.DecideAt(2).grants[0].idle.window != 0);
  race.views[0].device_time = 8 * kMillisecond;
  const Decision ahead = race.DecideAt(3);
  CHECK(ahead.grants[0].idle.window == 0);
  CHECK(ahead.grants[0].contended.window == 0);
  // The stop ends before the throttle lets an operation through.
  CHECK(ahead.grants[0].idle.max_throttle == 400 * kMillisecond);
  CHECK(ahead.ask_again_at == 3 + 8 * kMillisecond);
  CHECK(ahead.grants[1].idle.partition == 0);  // the other tenant has all SMs meanwhile
  CHECK(ahead.grants[1].idle.window != 0);

  // The other tenant has caught up by half of the lead.
  race.views[1].device_time = 4 * kMillisecond + 1;
  CHECK(race.DecideAt(4).grants[0].idle.window != 0);

  race.views[0].device_time += kSecond;
  CHECK(race.DecideAt(5).ask_again_at == 5 + 200 * kMillisecond);
}

TEST_CASE("An earlier stop of a tenant does not count against its next work under policy fair") {
  Race race;
  race.DecideAt(1);
  race.views[0].device_time = kSecond;
  CHECK(race.DecideAt(2).grants[0].idle.window == 0);
  race.views[0].has_work = false;
  race.DecideAt(3);
  race.views[0].has_work = true;
  // The lead is more than half of what is allowed. It would not end a stop, nor begin one.
  race.views[1].device_time = kSecond - 3 * kMillisecond;
  CHECK(race.DecideAt(4).grants[0].idle.window != 0);
}

}  // namespace
}  // namespace detshare::policy
