#include "server/telemetry/busy_sampler.h"

#include <catch2/catch.hpp>

namespace detshare {
namespace {

// Only the addresses matter.
const Device* DeviceNumber(int number) {
  return reinterpret_cast<const Device*>(uintptr_t{16} * (1 + number));
}

TEST_CASE("Without samples no session was busy") {
  BusySampler sampler;
  CHECK(sampler.Percent({1}, DeviceNumber(0)) == 0);
}

TEST_CASE("The share is that of the samples at which any of the sessions had work on the device") {
  BusySampler sampler;
  sampler.Add({{1, DeviceNumber(0)}});
  sampler.Add({{2, DeviceNumber(0)}, {3, DeviceNumber(1)}});
  sampler.Add({{1, DeviceNumber(0)}, {2, DeviceNumber(0)}});
  sampler.Add({});
  CHECK(sampler.Percent({1}, DeviceNumber(0)) == 50);
  CHECK(sampler.Percent({1, 2}, DeviceNumber(0)) == 75);
  CHECK(sampler.Percent({1, 2}, DeviceNumber(1)) == 0);
  CHECK(sampler.Percent({3}, DeviceNumber(1)) == 25);
  CHECK(sampler.Percent({}, DeviceNumber(0)) == 0);
}

TEST_CASE("Shares are rounded to the nearest percent") {
  BusySampler sampler;
  sampler.Add({{1, DeviceNumber(0)}});
  sampler.Add({{1, DeviceNumber(0)}});
  sampler.Add({});
  CHECK(sampler.Percent({1}, DeviceNumber(0)) == 67);
}

TEST_CASE("Old samples are forgotten") {
  BusySampler sampler;
  for (size_t i = 0; i < BusySampler::kSamples; ++i) sampler.Add({{1, DeviceNumber(0)}});
  CHECK(sampler.Percent({1}, DeviceNumber(0)) == 100);
  for (size_t i = 0; i < BusySampler::kSamples; ++i) sampler.Add({});
  CHECK(sampler.size() == BusySampler::kSamples);
  CHECK(sampler.Percent({1}, DeviceNumber(0)) == 0);
}

}  // namespace
}  // namespace detshare
