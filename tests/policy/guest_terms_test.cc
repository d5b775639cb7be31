#include "policy/guest_terms.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>

#include "policy/partition_pool.h"

namespace detshare::policy {
namespace {

const DeviceShape kH200{132, 8};

GuestRules Shares(double of_long, double of_yielding, double of_pressed) {
  GuestRules rules;
  rules.long_share = of_long;
  rules.yielding_share = of_yielding;
  rules.pressed_share = rules.closing_share = of_pressed;
  return rules;
}

TEST_CASE("Shares that the standard pool has need no partitions of the policy's own") {
  CHECK(GuestPartitions(kH200, Shares(0.5, 0.62, 0.25)).empty());
  CHECK(GuestPartitions(kH200, Shares(1, 1, 1)).empty());
}

TEST_CASE("A share between the partitions of the pool brings one of its own, once") {
  CHECK(GuestPartitions(kH200, Shares(0.44, 0.62, 0.44)) == std::vector<SmRange>{{72, 60}});
  CHECK(GuestPartitions(kH200, Shares(0.42, 0.5, 0.25)) == std::vector<SmRange>{{0, 56}});
  CHECK(GuestPartitions(kH200, GuestRules()) == std::vector<SmRange>{{0, 56}});
}

TEST_CASE("Who works for most of the time presses guests for all of it") {
  GuestRules rules;
  rules.closing = 0.25;
  const auto pressing = [&](Nanoseconds burst, Nanoseconds gap) {
    CoroutineView first;
    first.typical_burst = burst;
    first.typical_gap = gap;
    Grant grant;
    PressGuests(first, rules, &grant);
    return grant.pressing;
  };
  CHECK(pressing(kMillisecond, kMillisecond) == 0.75);
  CHECK(pressing(kMillisecond, kMillisecond - 1) == 1);
}

TEST_CASE(
    "On every device each share is met to within half a group, or by the smallest partition") {
  for (const DeviceShape device : {kH200, DeviceShape{132, 2}, DeviceShape{1, 1}, DeviceShape{3, 1},
                                   DeviceShape{7, 2}, DeviceShape{16, 8}, DeviceShape{4, 8}}) {
    for (int percent = 1; percent <= 100; ++percent) {
      const double share = percent / 100.0;
      std::vector<SmRange> all = {SmRange{}};
      for (const SmRange& range : StandardPartitions(device)) all.push_back(range);
      for (const SmRange& range : GuestPartitions(device, Shares(share, share, share))) {
        CHECK(range.first % device.sm_group == 0);
        CHECK(range.first + range.count <= device.sm_count);
        CHECK(std::count(all.begin(), all.end(), range) == 0);
        all.push_back(range);
      }
      const double sms = share * device.sm_count;
      const int met = SmsOf(device, all[NearestPartition(device, all, sms)]);
      INFO(device.sm_count << " SMs in groups of " << device.sm_group << ", " << percent << " %");
      // The last group also has what makes no whole one.
      const bool coarse = device.groups() < 2 || sms < device.sm_group;
      CHECK((coarse || 2 * std::abs(met - sms) <= device.sm_group + 1e-9));
    }
  }
}

}  // namespace
}  // namespace detshare::policy
