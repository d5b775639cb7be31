#include "policy/best_effort_limits.h"

#include <algorithm>
#include <cmath>

#include "policy/partition_pool.h"
#include "policy/saturating.h"

namespace detshare::policy {

BestEffortRules BestEffortRules::Of(const ParameterValues& values) {
  BestEffortRules rules;
  rules.window = values.Duration(kBestEffortWindow.name);
  rules.min_window = std::min(rules.window, values.Duration(kBestEffortMinWindow.name));
  rules.long_operation = values.Duration(kBestEffortLongOperation.name);
  rules.long_share = values.Fraction(kBestEffortLongShare.name);
  rules.yielding_share = values.Fraction(kBestEffortYieldingShare.name);
  rules.yielding_block = values.Duration(kBestEffortYieldingBlock.name);
  rules.contended_share = values.Fraction(kBestEffortContendedShare.name);
  rules.contended_window = values.Duration(kBestEffortContendedWindow.name);
  rules.tail = values.Fraction(kBestEffortTail.name);
  rules.tail_share = values.Fraction(kBestEffortTailShare.name);
  rules.tail_window = values.Duration(kBestEffortTailWindow.name);
  rules.max_throttle = values.Duration(kBestEffortMaxThrottle.name);
  rules.absent_after = values.Duration(kBestEffortAbsentAfter.name);
  return rules;
}

std::vector<SmRange> BestEffortPartitions(const DeviceShape& device, const BestEffortRules& rules) {
  std::vector<SmRange> all = {SmRange{}};
  for (const SmRange& range : StandardPartitions(device)) all.push_back(range);
  std::vector<SmRange> missing;
  for (const double share :
       {rules.long_share, rules.yielding_share, rules.contended_share, rules.tail_share}) {
    const double sms = share * device.sm_count;
    const auto distance = [&](const SmRange& range) {
      return std::abs(SmsOf(device, range) - sms);
    };
    const int groups = std::clamp<int>(std::lround(sms / device.sm_group), 1, device.groups());
    if (groups == device.groups()) continue;
    // SMs that fill no whole group belong to the last group, so the two ends differ in size.
    const SmRange low = device.Groups(0, groups);
    const SmRange high = device.Groups(device.groups() - groups, device.groups());
    const SmRange& nearest = distance(low) < distance(high) ? low : high;
    if (distance(nearest) >= distance(all[NearestPartition(device, all, sms)])) continue;
    all.push_back(nearest);
    missing.push_back(nearest);
  }
  return missing;
}

bool OthersFirst(const Snapshot& snapshot, const std::vector<Precedence>& order, size_t index,
                 Nanoseconds absent_after, Nanoseconds* ask_again_at) {
  const auto preempts = [&](size_t i) {
    return StopsOthers(snapshot.coroutines[i], order[i].urgent);
  };
  bool others = false;
  const auto absent_at = [&](const CoroutineView& other) {
    return Plus(std::max(other.changed_at, other.opened_at), absent_after);
  };
  for (size_t i = 0; i < order.size(); ++i) {
    if (order[i].rank >= order[index].rank) continue;
    if (preempts(i) && !preempts(index)) continue;
    const CoroutineView& other = snapshot.coroutines[i];
    if (other.has_work) {
      others = true;
    } else if (snapshot.now < absent_at(other)) {
      others = true;
      *ask_again_at = std::min(*ask_again_at, absent_at(other));
    }
  }
  // The policy is asked often enough to see when they are absent.
  for (const OtherEngineView& other : snapshot.other_engines) {
    if (!GoesFirst(other, snapshot.coroutines[index], order[index].rank, order[index].urgent))
      continue;
    others = others || other.coroutine.has_work || snapshot.now < absent_at(other.coroutine);
  }
  return others;
}

void PauseLongBursts(const Snapshot& snapshot, const std::vector<Precedence>& order, size_t index,
                     Grant* grant, Nanoseconds* ask_again_at) {
  const CoroutineView& view = snapshot.coroutines[index];
  if (!StopsOthers(view, order[index].urgent)) return;
  bool stops_others = false;
  for (size_t i = 0; i < order.size(); ++i) {
    const CoroutineView& other = snapshot.coroutines[i];
    stops_others = stops_others || (other.has_work && !StopsOthers(other, order[i].urgent));
  }
  for (const OtherEngineView& other : snapshot.other_engines) {
    stops_others =
        stops_others || (other.coroutine.has_work && !StopsOthers(other.coroutine, other.urgent));
  }
  if (!stops_others) return;
  const auto limit = [&](Nanoseconds window) {
    for (Limits* limits : {&grant->idle, &grant->contended})
      limits->window = std::min(limits->window, window);
    if (grant->tail.has_value()) grant->tail->window = std::min(grant->tail->window, window);
  };
  limit(kLongBurstWindow);
  if (!view.has_work) return;
  constexpr Nanoseconds kCycle = kLongBurst + kBurstPause;
  const Nanoseconds lasted = std::max<Nanoseconds>(0, Minus(snapshot.now, view.changed_at));
  if (lasted < kLongBurst) {
    *ask_again_at = std::min(*ask_again_at, Plus(snapshot.now, kLongBurst - lasted));
    return;
  }
  const Nanoseconds phase = snapshot.now % kCycle;
  if (phase >= kLongBurst) limit(0);
  *ask_again_at = std::min(*ask_again_at,
                           Plus(snapshot.now, (phase < kLongBurst ? kLongBurst : kCycle) - phase));
}

Grant BestEffortGrant(const Snapshot& snapshot, const CoroutineView& coroutine,
                      const BestEffortRules& rules, bool others_first) {
  const auto partition = [&](double share) {
    return NearestWithin(snapshot.device, snapshot.partitions, *coroutine.tenant,
                         share * snapshot.device.sm_count);
  };
  Grant grant;
  Limits& idle = grant.idle;
  idle.partition = idle.long_partition = partition(1);
  idle.max_throttle = rules.max_throttle;
  if (!others_first) {
    grant.contended = idle;
    return grant;
  }
  idle.long_partition = partition(rules.long_share);
  idle.long_operation = rules.long_operation;
  idle.yielding_partition = partition(rules.yielding_share);
  idle.yielding_block = rules.yielding_block;
  const Nanoseconds typical =
      std::clamp<Nanoseconds>(coroutine.typical_operation, 0, rules.window / kOperationsInFlight);
  idle.window = std::clamp(typical * kOperationsInFlight, rules.min_window, rules.window);
  const auto beside_others = [&](double share, Nanoseconds window) {
    Limits limits = idle;
    limits.partition = partition(share);
    limits.window = std::min(window, idle.window);
    return limits;
  };
  grant.contended = beside_others(rules.contended_share, rules.contended_window);
  grant.tail = beside_others(rules.tail_share, rules.tail_window);
  PreparePartitions(&grant);
  return grant;
}

void SetContentionPhase(const CoroutineView& first, const BestEffortRules& rules, Grant* grant) {
  grant->contention_phase = first.typical_gap < first.typical_burst ? 1 : 1 - rules.tail;
}

void PreparePartitions(Grant* grant) {
  grant->prepare.clear();
  for (const int partition : {grant->idle.long_partition, grant->contended.partition,
                              grant->contended.long_partition, TailLimits(*grant).partition}) {
    if (partition != grant->idle.partition &&
        std::find(grant->prepare.begin(), grant->prepare.end(), partition) ==
            grant->prepare.end()) {
      grant->prepare.push_back(partition);
    }
  }
}

}  // namespace detshare::policy
