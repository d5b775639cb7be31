#include "policy/best_effort_limits.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>

#include "policy/partition_pool.h"

namespace detshare::policy {
namespace {

const DeviceShape kH200{132, 8};

BestEffortRules Shares(double of_long, double of_yielding, double of_contended) {
  BestEffortRules rules;
  rules.long_share = of_long;
  rules.yielding_share = of_yielding;
  rules.contended_share = rules.tail_share = of_contended;
  return rules;
}

TEST_CASE("Shares that the standard pool has need no partitions of the policy's own") {
  CHECK(BestEffortPartitions(kH200, Shares(0.5, 0.62, 0.25)).empty());
  CHECK(BestEffortPartitions(kH200, Shares(1, 1, 1)).empty());
}

TEST_CASE("A share between the partitions of the pool brings one of its own, once") {
  CHECK(BestEffortPartitions(kH200, Shares(0.44, 0.62, 0.44)) == std::vector<SmRange>{{72, 60}});
  CHECK(BestEffortPartitions(kH200, Shares(0.42, 0.5, 0.25)) == std::vector<SmRange>{{0, 56}});
  CHECK(BestEffortPartitions(kH200, BestEffortRules()) == std::vector<SmRange>{{0, 56}});
}

TEST_CASE("Who works for most of the time restricts best-effort work for all of it") {
  BestEffortRules rules;
  rules.tail = 0.25;
  const auto contention_phase = [&](Nanoseconds burst, Nanoseconds gap) {
    CoroutineView first;
    first.typical_burst = burst;
    first.typical_gap = gap;
    Grant grant;
    SetContentionPhase(first, rules, &grant);
    return grant.contention_phase;
  };
  CHECK(contention_phase(kMillisecond, kMillisecond) == 0.75);
  CHECK(contention_phase(kMillisecond, kMillisecond - 1) == 1);
}

TEST_CASE(
    "On every device each share is met to within half a group, or by the smallest partition") {
  for (const DeviceShape device : {kH200, DeviceShape{132, 2}, DeviceShape{1, 1}, DeviceShape{3, 1},
                                   DeviceShape{7, 2}, DeviceShape{16, 8}, DeviceShape{4, 8}}) {
    for (int percent = 1; percent <= 100; ++percent) {
      const double share = percent / 100.0;
      std::vector<SmRange> all = {SmRange{}};
      for (const SmRange& range : StandardPartitions(device)) all.push_back(range);
      for (const SmRange& range : BestEffortPartitions(device, Shares(share, share, share))) {
        CHECK(range.first % device.sm_group == 0);
        CHECK(range.first + range.count <= device.sm_count);
        CHECK(std::count(all.begin(), all.end(), range) == 0);
        all.push_back(range);
      }
      const double sms = share * device.sm_count;
      const int met = SmsOf(device, all[NearestPartition(device, all, sms)]);
      INFO(device.sm_count << " SMs in groups of " << device.sm_group << ", " << percent << " %");
      // The last group also has the SMs that form no whole group.
      const bool coarse = device.groups() < 2 || sms < device.sm_group;
      CHECK((coarse || 2 * std::abs(met - sms) <= device.sm_group + 1e-9));
    }
  }
}

}  // namespace
}  // namespace detshare::policy
