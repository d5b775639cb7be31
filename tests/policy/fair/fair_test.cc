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

TEST_CASE("Policy fair gives tenants with work disjoint partitions, and one alone everything") {
  VirtualDevice device({132, 8}, *CreatePolicy("fair", {}));
  const size_t steady = device.Open(Weighted("steady", 1), Steady(kShort));
  const size_t other =
      device.Open(Weighted("other", 1), Periodic(100 * kMillisecond, kSecond, kShort));
  device.Run(130 * kMillisecond);
  CHECK(device[steady].begun.front().second == SmRange{});
  CHECK(device[steady].begun.back().second != SmRange{});
  for (const auto& [work, range] : device[other].begun) CHECK_FALSE(range.whole());
}

TEST_CASE("Policy fair does not let a tenant with little work hold up the others") {
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

TEST_CASE("Policy fair does not save up time without work") {
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

TEST_CASE("Policy fair refuses tenants that make no sense") {
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
}

}  // namespace
}  // namespace detshare::policy
