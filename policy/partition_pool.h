// Which partitions a device keeps from the start, and how policies choose among them.
//
// Making a partition drains a device, so every device has a standard pool that serves whatever
// policy comes. It is hierarchical: a cut divides the device in a low and a high part, both of
// which are there, at a half, at the quarters, at the eighths, and a sixteenth from either end. The
// quarters and eighths between the ends follow as far as the bound goes.
//
// `partitions` is a snapshot's everywhere: [0] is the whole device.
#pragma once

#include <optional>
#include <vector>

#include "absl/types/span.h"
#include "policy/policy.h"

namespace detshare::policy {

inline constexpr int kStandardPartitions = 24;

// At most `at_most`, the most useful ones first, without the whole device and without duplicates.
// Few or none on a device of few groups.
std::vector<SmRange> StandardPartitions(const DeviceShape& device,
                                        int at_most = kStandardPartitions);

// The SMs of a range, which for {0, 0} are all of the device.
int SmsOf(const DeviceShape& device, const SmRange& range);
bool Disjoint(const DeviceShape& device, const SmRange& a, const SmRange& b);

// The partition whose size is nearest to `sms` (the smaller of two), preferably at the high end of
// the device.
int NearestPartition(const DeviceShape& device, absl::Span<const SmRange> partitions, double sms);
// The smallest one with `sms` SMs or more; the whole device when there is none.
int SmallestPartition(const DeviceShape& device, absl::Span<const SmRange> partitions, int sms);
// The largest one that has no SM in common with `taken`; none when all have.
std::optional<int> LargestDisjoint(const DeviceShape& device, absl::Span<const SmRange> partitions,
                                   absl::Span<const SmRange> taken);
// Nearest to `sms` within the bounds that the operator set for the tenant. Where no partition is
// within both, it keeps max_sms.
int NearestWithin(const DeviceShape& device, absl::Span<const SmRange> partitions,
                  const Tenant& tenant, double sms);

// Somebody's part of a division: `share` of the device (above 0), with bounds in SMs (0: none).
struct Part {
  double share = 0;
  int min_sms = 0, max_sms = 0;
};
inline constexpr size_t kMostParts = 8;

// Disjoint partitions, one for each part, so that whoever comes off worst has as much of its share
// as it can. None when the partitions do not allow it, and for more than kMostParts.
std::optional<std::vector<int>> Divide(const DeviceShape& device,
                                       absl::Span<const SmRange> partitions,
                                       absl::Span<const Part> parts);

}  // namespace detshare::policy
