#include "policy/best_effort_limits.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>

#include "policy/partition_pool.h"
#include "tests/policy/device_shapes.h"

namespace detshare::policy {
namespace {

BestEffortRules Shares(double of_long, double of_yielding, double of_contended) {
  BestEffortRules rules;
  rules.long_share = of_long;
  rules.yielding_share = of_yielding;
  rules.contended_share = rules.tail_share = of_contended;
  return rules;
}

TEST_CASE("Shares of the standard pool need no partitions of the policy") {
  CHECK(BestEffortPartitions(kH200, Shares(0.5, 0.62, 0.25)).empty());
  CHECK(BestEffortPartitions(kH200, Shares(1, 1, 1)).empty());
}

TEST_CASE("A share between the pool's partitions adds one partition, once") {
  CHECK(BestEffortPartitions(kH200, Shares(0.44, 0.62, 0.44)) == std::vector<SmRange>{{72, 60}});
  CHECK(BestEffortPartitions(kH200, Shares(0.42, 0.5, 0.25)) == std::vector<SmRange>{{0, 56}});
  CHECK(BestEffortPartitions(kH200, BestEffortRules()) == std::vector<SmRange>{{0, 56}});
}

TEST_CASE("A program that works most of the time restricts best-effort work all of the time") {
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

TEST_CASE("On every device each share is met within half a group, or by the smallest partition") {
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

TEST_CASE("A coroutine counts as absent if it has had no work and was not opened lately") {
  Tenant tenant;
  std::vector<CoroutineView> views(2);
  for (CoroutineView& view : views) view.tenant = &tenant;
  Snapshot snapshot;
  snapshot.now = 10 * kSecond;
  const auto others_first = [&](Nanoseconds opened_at, Nanoseconds changed_at,
                                Nanoseconds* ask_again_at) {
    views[0].opened_at = opened_at;
    views[0].changed_at = changed_at;
    snapshot.coroutines = views;
    *ask_again_at = kForever;
    return OthersFirst(snapshot, {{0}, {1}}, 1, kSecond, ask_again_at);
  };
  Nanoseconds ask_again_at = 0;
  CHECK(others_first(9 * kSecond + 1, 0, &ask_again_at));
  CHECK(ask_again_at == 10 * kSecond + 1);
  CHECK(others_first(0, 9 * kSecond + 1, &ask_again_at));
  CHECK(ask_again_at == 10 * kSecond + 1);
  CHECK_FALSE(others_first(9 * kSecond, 9 * kSecond, &ask_again_at));
  CHECK(ask_again_at == kForever);
  // One of the same rank never goes first.
  views[0].has_work = true;
  snapshot.coroutines = views;
  CHECK_FALSE(OthersFirst(snapshot, {{1}, {1}}, 1, kSecond, &ask_again_at));
  CHECK(OthersFirst(snapshot, {{0}, {1}}, 1, kSecond, &ask_again_at));
  CHECK_FALSE(OthersFirst(snapshot, {{0}, {1}}, 0, kSecond, &ask_again_at));
}

TEST_CASE("Work makes room for another engine's only if both preempt and the other goes first") {
  Tenant tenant;
  for (const bool preempts : {false, true}) {
    for (const bool other_preempts : {false, true}) {
      for (const int rank : {0, 1, 2}) {
        std::vector<CoroutineView> views(1);
        views[0].tenant = &tenant;
        views[0].always_preempts = preempts;
        std::vector<OtherEngineView> others(1);
        others[0].coroutine.tenant = &tenant;
        others[0].coroutine.has_work = true;
        others[0].coroutine.preempts = other_preempts;
        others[0].urgent = true;
        others[0].rank = rank;
        Snapshot snapshot;
        snapshot.now = 10 * kSecond;
        snapshot.coroutines = views;
        snapshot.other_engines = others;
        Nanoseconds ask_again_at = kForever;
        const bool first = preempts && other_preempts && rank < 1;
        CHECK(OthersFirst(snapshot, {{1}}, 0, kSecond, &ask_again_at) == first);
        CHECK(ask_again_at == kForever);
        // It counts as there for a while after its work.
        others[0].coroutine.has_work = false;
        others[0].coroutine.changed_at = snapshot.now;
        CHECK(OthersFirst(snapshot, {{1}}, 0, kSecond, &ask_again_at) == first);
        CHECK(ask_again_at == kForever);
        others[0].coroutine.changed_at = snapshot.now - kSecond;
        CHECK_FALSE(OthersFirst(snapshot, {{1}}, 0, kSecond, &ask_again_at));
      }
    }
  }
}

TEST_CASE("Work that is stopped in the hardware makes no room, and work that is not stopped does") {
  Tenant tenant;
  for (const bool urgent : {false, true}) {
    for (const bool preempts : {false, true}) {
      for (const bool always : {false, true}) {
        for (const bool other_urgent : {false, true}) {
          for (const bool other_preempts : {false, true}) {
            for (const bool other_always : {false, true}) {
              std::vector<CoroutineView> views(2);
              for (CoroutineView& view : views) view.tenant = &tenant;
              views[0].has_work = true;
              views[0].preempts = other_preempts;
              views[0].always_preempts = other_always;
              views[1].preempts = preempts;
              views[1].always_preempts = always;
              Snapshot snapshot;
              snapshot.now = 10 * kSecond;
              snapshot.coroutines = views;
              Nanoseconds ask_again_at = kForever;
              const bool others_first = OthersFirst(snapshot, {{0, other_urgent}, {1, urgent}}, 1,
                                                    kSecond, &ask_again_at);
              INFO("the first: urgent " << other_urgent << ", preempts " << other_preempts << ", "
                                        << other_always << "; the second: urgent " << urgent
                                        << ", preempts " << preempts << ", " << always);
              const bool first = other_always || (other_urgent && other_preempts);
              const bool second = always || (urgent && preempts);
              CHECK(others_first == (!first || second));
            }
          }
        }
      }
    }
  }
}

TEST_CASE("Each limit of best-effort work comes from its own rule") {
  BestEffortRules rules;
  rules.window = 400 * kMicrosecond;
  rules.min_window = 50 * kMicrosecond;
  rules.long_operation = 123 * kMicrosecond;
  rules.long_share = 96 / 132.0;
  rules.yielding_share = 100 / 132.0;
  rules.yielding_block = 45 * kMicrosecond;
  rules.contended_share = 32 / 132.0;
  rules.contended_window = 60 * kMicrosecond;
  rules.tail_share = 64 / 132.0;
  rules.tail_window = 70 * kMicrosecond;
  rules.max_throttle = 7 * kMillisecond;
  std::vector<SmRange> partitions = {SmRange{}};
  for (const SmRange& range : StandardPartitions(kH200)) partitions.push_back(range);
  Tenant tenant;
  CoroutineView view;
  view.tenant = &tenant;
  view.typical_operation = 100 * kMicrosecond;
  Snapshot snapshot;
  snapshot.device = kH200;
  snapshot.partitions = partitions;
  const auto sms = [&](int partition) { return SmsOf(kH200, partitions[partition]); };

  const Grant first = BestEffortGrant(snapshot, view, rules, /*others_first=*/true);
  CHECK(sms(first.idle.partition) == 132);
  CHECK(first.idle.window == 300 * kMicrosecond);
  REQUIRE(first.tail.has_value());
  for (const Limits& limits : {first.idle, first.contended, *first.tail}) {
    CHECK(sms(limits.long_partition) == 96);
    CHECK(sms(limits.yielding_partition) == 100);
    CHECK(limits.long_operation == 123 * kMicrosecond);
    CHECK(limits.yielding_block == 45 * kMicrosecond);
    CHECK(limits.max_throttle == 7 * kMillisecond);
  }
  CHECK(sms(first.contended.partition) == 32);
  CHECK(first.contended.window == 60 * kMicrosecond);
  CHECK(sms(first.tail->partition) == 64);
  CHECK(first.tail->window == 70 * kMicrosecond);
  CHECK_FALSE(first.urgent);
  std::vector<int> prepared;
  for (const int partition : first.prepare) prepared.push_back(sms(partition));
  std::sort(prepared.begin(), prepared.end());
  CHECK(prepared == std::vector<int>{32, 64, 96});

  const Grant alone = BestEffortGrant(snapshot, view, rules, /*others_first=*/false);
  CHECK(alone.contended == alone.idle);
  CHECK_FALSE(alone.tail.has_value());
  CHECK(alone.idle.max_throttle == 7 * kMillisecond);
}

}  // namespace
}  // namespace detshare::policy
