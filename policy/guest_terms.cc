#include "policy/guest_terms.h"

#include <algorithm>
#include <cmath>

#include "policy/partition_pool.h"
#include "policy/saturating.h"

namespace detshare::policy {
namespace {

// One operation runs, one is next, and one is on its way to the hardware.
constexpr int kOperationsInFlight = 3;

}  // namespace

GuestRules GuestRules::Of(const ParameterValues& values) {
  GuestRules rules;
  rules.window = values.Duration(kGuestWindow.name);
  rules.least_window = std::min(rules.window, values.Duration(kGuestLeastWindow.name));
  rules.long_operation = values.Duration(kGuestLongOperation.name);
  rules.long_share = values.Fraction(kGuestLongShare.name);
  rules.yielding_share = values.Fraction(kGuestYieldingShare.name);
  rules.yielding_block = values.Duration(kGuestYieldingBlock.name);
  rules.pressed_share = values.Fraction(kGuestPressedShare.name);
  rules.pressed_window = values.Duration(kGuestPressedWindow.name);
  rules.closing = values.Fraction(kGuestClosing.name);
  rules.closing_share = values.Fraction(kGuestClosingShare.name);
  rules.closing_window = values.Duration(kGuestClosingWindow.name);
  rules.longest_hold = values.Duration(kGuestLongestHold.name);
  rules.absent_after = values.Duration(kGuestAbsentAfter.name);
  return rules;
}

std::vector<SmRange> GuestPartitions(const DeviceShape& device, const GuestRules& rules) {
  std::vector<SmRange> all = {SmRange{}};
  for (const SmRange& range : StandardPartitions(device)) all.push_back(range);
  std::vector<SmRange> missing;
  for (const double share :
       {rules.long_share, rules.yielding_share, rules.pressed_share, rules.closing_share}) {
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

bool OthersFirst(const Snapshot& snapshot, const std::vector<int>& ranks, size_t index,
                 Nanoseconds absent_after, Nanoseconds* ask_again_at) {
  bool others = false;
  for (size_t i = 0; i < ranks.size(); ++i) {
    if (ranks[i] >= ranks[index]) continue;
    const CoroutineView& other = snapshot.coroutines[i];
    if (other.has_work) {
      others = true;
      continue;
    }
    const Nanoseconds absent_at = Plus(std::max(other.changed_at, other.opened_at), absent_after);
    if (snapshot.now >= absent_at) continue;
    others = true;
    *ask_again_at = std::min(*ask_again_at, absent_at);
  }
  return others;
}

Grant GuestGrant(const Snapshot& snapshot, const CoroutineView& guest, const GuestRules& rules,
                 bool others_first) {
  const auto partition = [&](double share) {
    return NearestWithin(snapshot.device, snapshot.partitions, *guest.tenant,
                         share * snapshot.device.sm_count);
  };
  Grant grant;
  Terms& quiet = grant.quiet;
  quiet.partition = quiet.long_partition = partition(1);
  quiet.longest_hold = rules.longest_hold;
  if (!others_first) {
    grant.pressed = quiet;
    return grant;
  }
  quiet.long_partition = partition(rules.long_share);
  quiet.long_operation = rules.long_operation;
  quiet.yielding_partition = partition(rules.yielding_share);
  quiet.yielding_block = rules.yielding_block;
  const Nanoseconds typical =
      std::clamp<Nanoseconds>(guest.typical_operation, 0, rules.window / kOperationsInFlight);
  quiet.window = std::clamp(typical * kOperationsInFlight, rules.least_window, rules.window);
  const auto beside_others = [&](double share, Nanoseconds window) {
    Terms terms = quiet;
    terms.partition = partition(share);
    terms.window = std::min(window, quiet.window);
    return terms;
  };
  grant.pressed = beside_others(rules.pressed_share, rules.pressed_window);
  grant.closing = beside_others(rules.closing_share, rules.closing_window);
  PrepareTerms(&grant);
  return grant;
}

void PressGuests(const CoroutineView& first, const GuestRules& rules, Grant* grant) {
  grant->pressing = first.typical_gap < first.typical_burst ? 1 : 1 - rules.closing;
}

void PrepareTerms(Grant* grant) {
  grant->prepare.clear();
  for (const int partition : {grant->quiet.long_partition, grant->pressed.partition,
                              grant->pressed.long_partition, ClosingTerms(*grant).partition}) {
    if (partition != grant->quiet.partition &&
        std::find(grant->prepare.begin(), grant->prepare.end(), partition) ==
            grant->prepare.end()) {
      grant->prepare.push_back(partition);
    }
  }
}

}  // namespace detshare::policy
