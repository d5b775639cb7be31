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

TEST_CASE("Policy temporal gives everybody with work the same device time") {
  VirtualDevice device({132, 8}, *CreatePolicy("temporal", {}));
  for (const char* name : {"a", "b", "c"}) device.Open(Named(name), Steady(kShort));
  device.Run(3 * kSecond);
  for (size_t i = 0; i < 3; ++i) {
    CHECK(device[i].device_time > 990 * kMillisecond);
    CHECK(device[i].device_time < 1010 * kMillisecond);
    CHECK(device[i].longest_throttle < 5 * kMillisecond);
  }
}

TEST_CASE("Policy temporal goes to the next one when the turn's holder has no work") {
  VirtualDevice device({132, 8}, *CreatePolicy("temporal", {{{"slice", "10ms"}}}));
  const size_t seldom =
      device.Open(Named("seldom"), Periodic(0, 10 * kMillisecond, {kMillisecond}));
  const size_t steady = device.Open(Named("steady"), Steady(kShort));
  device.Run(kSecond);
  CHECK(device[steady].device_time > 890 * kMillisecond);
  CHECK(device[seldom].device_time >= 98 * kMillisecond);
}

TEST_CASE("Policy temporal holds a request for the others' slices") {
  VirtualDevice device({132, 8}, *CreatePolicy("temporal", {{{"slice", "2ms"}}}));
  const size_t request =
      device.Open(Named("request"), Arrivals(20 * kMillisecond, {kMillisecond}, 7));
  device.Open(Named("a"), Steady(kShort));
  device.Open(Named("b"), Steady(kShort));
  device.Run(5 * kSecond);
  CHECK(Quantile(device[request].latencies, 0.5) > 2 * kMillisecond);
  CHECK(Quantile(device[request].latencies, 0.99) < 9 * kMillisecond);
}

}  // namespace
}  // namespace detshare::policy
