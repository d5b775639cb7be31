#include "tests/policy/virtual_device.h"

#include <catch2/catch.hpp>

#include "tests/policy/device_shapes.h"

namespace detshare::policy {
namespace {

constexpr Nanoseconds kPreemption = kPreemptingH200.preemption;
constexpr Nanoseconds kResume = 50 * kMicrosecond, kSwitch = 140 * kMicrosecond;

// The first coroutine is urgent. Nothing is limited.
class FirstIsUrgent final : public Policy {
 public:
  std::vector<SmRange> Partitions(const DeviceShape&, absl::Span<const Tenant>) const override {
    return {};
  }
  Decision Decide(const Snapshot& snapshot) override {
    Decision decision;
    decision.grants.resize(snapshot.coroutines.size());
    decision.grants[0].urgent = true;
    return decision;
  }
};

Program Once(Nanoseconds at, std::vector<Nanoseconds> operations) {
  return [=, given = false](Nanoseconds) mutable {
    return std::exchange(given, true) ? Burst{} : Burst{at, operations};
  };
}

VirtualDevice Device(const DeviceShape& shape) {
  return VirtualDevice(shape, std::make_unique<FirstIsUrgent>());
}

TEST_CASE("Urgent operations of a device that preempts stop the others, which go on afterwards") {
  VirtualDevice device = Device(kPreemptingH200);
  device.Open({}, Once(kMillisecond, {kMillisecond, kMillisecond}));
  device.Open({}, Once(0, {10 * kMillisecond}));
  device.Run(kSecond);
  CHECK(device[0].latencies == std::vector<Nanoseconds>{kPreemption + 2 * kMillisecond});
  CHECK(device[1].latencies == std::vector<Nanoseconds>{12 * kMillisecond + kPreemption + kResume});
}

TEST_CASE("Without preemption an urgent operation waits for the SMs of those that run") {
  VirtualDevice device = Device(kH200);
  device.Open({}, Once(kMillisecond, {kMillisecond}));
  device.Open({}, Once(0, {10 * kMillisecond}));
  device.Run(kSecond);
  CHECK(device[0].latencies == std::vector<Nanoseconds>{10 * kMillisecond});
  CHECK(device[1].latencies == std::vector<Nanoseconds>{10 * kMillisecond});
}

TEST_CASE("A time-slice group that is alone pays nothing, and an idle one is left sooner") {
  VirtualDevice device = Device(kPreemptingH200);
  device.Open({}, Periodic(10 * kMillisecond, 10 * kMillisecond, {kMillisecond}));
  device.Open({}, Once(15 * kMillisecond, {kMillisecond}));
  device.Run(45 * kMillisecond);
  const std::vector<Nanoseconds> times = {kMillisecond, kSwitch + kMillisecond, kMillisecond,
                                          kMillisecond};
  CHECK(device[0].latencies == times);
  CHECK(device[1].latencies == std::vector<Nanoseconds>{kMillisecond});
}

TEST_CASE("Ordinary work that comes in a turn of urgent work begins after it") {
  VirtualDevice device = Device(kPreemptingH200);
  device.Open({}, Once(0, {kMillisecond}));
  device.Open({}, Once(kMillisecond / 2, {kMillisecond}));
  device.Run(kSecond);
  CHECK(device[0].latencies == std::vector<Nanoseconds>{kMillisecond});
  CHECK(device[1].latencies == std::vector<Nanoseconds>{kMillisecond / 2 + kResume + kMillisecond});
}

}  // namespace
}  // namespace detshare::policy
