// The partitions that a device keeps from the start, and the ways in which policies choose among
// them.
//
// Making a partition drains a device. So every device has a standard pool, which serves every
// policy. The pool is made by cuts: a cut divides the device into a low and a high part, and the
// pool has both parts. There are cuts at a half, at the quarters, at the eighths, and a sixteenth
// from either end. The quarters and eighths between the ends follow, up to the pool's size.
//
// In all functions `partitions` is a snapshot's: [0] is the whole device. Functions that choose a
// partition return its index.
#pragma once

#include <optional>
#include <vector>

#include "absl/types/span.h"
#include "policy/policy.h"

namespace detshare::policy {

inline constexpr int kStandardPartitions = 24;

// The standard pool: at most `max_count` partitions, the most useful first, without the whole
// device and without duplicates. A device of few groups has few or none.
std::vector<SmRange> StandardPartitions(const DeviceShape& device,
                                        int max_count = kStandardPartitions);

// The number of SMs of a range; for {0, 0}, the number of all SMs of the device.
int SmsOf(const DeviceShape& device, const SmRange& range);
// Whether the ranges have no SM in common. The whole device is disjoint from no range.
bool Disjoint(const DeviceShape& device, const SmRange& a, const SmRange& b);

// The partition whose size is nearest to `sms`. Of two sizes that are equally near, the smaller; of
// two partitions of one size, the one at the high end of the device.
int NearestPartition(const DeviceShape& device, absl::Span<const SmRange> partitions, double sms);
// The smallest partition with `sms` SMs or more; the whole device if there is none.
int SmallestPartition(const DeviceShape& device, absl::Span<const SmRange> partitions, int sms);
// The largest partition that has no SM in common with `taken`; none if all have.
std::optional<int> LargestDisjoint(const DeviceShape& device, absl::Span<const SmRange> partitions,
                                   absl::Span<const SmRange> taken);
// The partition nearest to `sms` within the operator's bounds for the tenant. If no partition is
// within both bounds, max_sms goes before min_sms.
int NearestWithin(const DeviceShape& device, absl::Span<const SmRange> partitions,
                  const Tenant& tenant, double sms);

// One part of a division of the device.
struct Part {
  double share = 0;              // of the device; above 0
  int min_sms = 0, max_sms = 0;  // bounds; 0: none
};
inline constexpr size_t kMaxParts = 8;

// Disjoint partitions, one for each part, chosen so that the part with the least SMs for its share
// has as many as possible. None if the partitions do not allow a division, and for no parts or more
// than kMaxParts. A single part gets the whole device.
std::optional<std::vector<int>> Divide(const DeviceShape& device,
                                       absl::Span<const SmRange> partitions,
                                       absl::Span<const Part> parts);

}  // namespace detshare::policy
