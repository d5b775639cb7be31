#include "policy/partition_pool.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

namespace detshare::policy {

std::vector<SmRange> StandardPartitions(const DeviceShape& device, int max_count) {
  const int groups = device.groups();
  std::vector<SmRange> pool;
  const auto add = [&](int begin, int end) {
    if (begin >= end || (begin == 0 && end == groups)) return;
    if (static_cast<int>(pool.size()) >= max_count) return;
    const SmRange range = device.Groups(begin, end);
    if (std::find(pool.begin(), pool.end(), range) == pool.end()) pool.push_back(range);
  };
  const auto cut = [&](int at) {
    add(0, at);
    add(at, groups);
  };
  const auto part = [groups](int number, int of) { return groups * number / of; };
  cut(part(1, 2));
  for (const int quarter : {1, 3}) cut(part(quarter, 4));
  for (const int eighth : {1, 3, 5, 7}) cut(part(eighth, 8));
  const int end = std::max(1, part(1, 16));
  cut(end);
  cut(groups - end);
  for (const int quarter : {1, 2}) add(part(quarter, 4), part(quarter + 1, 4));
  for (const int eighth : {1, 2, 3, 4, 5, 6}) add(part(eighth, 8), part(eighth + 1, 8));
  return pool;
}

int SmsOf(const DeviceShape& device, const SmRange& range) {
  return range.whole() ? device.sm_count : range.count;
}

bool Disjoint(const DeviceShape& device, const SmRange& a, const SmRange& b) {
  if (a.whole() || b.whole()) return false;
  return a.first + a.count <= b.first || b.first + b.count <= a.first;
}

int NearestPartition(const DeviceShape& device, absl::Span<const SmRange> partitions, double sms) {
  sms = std::clamp<double>(sms, 0, device.sm_count);
  int best = 0;
  // A lower rank is better: distance, then size, then whether the partition is away from the high
  // end.
  std::pair<double, std::pair<int, bool>> best_rank;
  for (size_t i = 0; i < partitions.size(); ++i) {
    const int size = SmsOf(device, partitions[i]);
    const bool away =
        !partitions[i].whole() && partitions[i].first + partitions[i].count != device.sm_count;
    const std::pair<double, std::pair<int, bool>> rank{std::abs(size - sms), {size, away}};
    if (i == 0 || rank < best_rank) {
      best = static_cast<int>(i);
      best_rank = rank;
    }
  }
  return best;
}

int SmallestPartition(const DeviceShape& device, absl::Span<const SmRange> partitions, int sms) {
  int best = 0;
  for (size_t i = 1; i < partitions.size(); ++i) {
    const int size = SmsOf(device, partitions[i]);
    if (size >= sms && size < SmsOf(device, partitions[best])) best = static_cast<int>(i);
  }
  return best;
}

std::optional<int> LargestDisjoint(const DeviceShape& device, absl::Span<const SmRange> partitions,
                                   absl::Span<const SmRange> taken) {
  std::optional<int> best;
  for (size_t i = 0; i < partitions.size(); ++i) {
    const bool free = std::all_of(taken.begin(), taken.end(), [&](const SmRange& range) {
      return Disjoint(device, partitions[i], range);
    });
    if (free && (!best || SmsOf(device, partitions[i]) > SmsOf(device, partitions[*best]))) {
      best = static_cast<int>(i);
    }
  }
  return best;
}

int NearestWithin(const DeviceShape& device, absl::Span<const SmRange> partitions,
                  const Tenant& tenant, double sms) {
  const int max = tenant.max_sms > 0 ? tenant.max_sms : device.sm_count;
  sms = std::min<double>(std::max<double>(sms, tenant.min_sms), max);
  const int nearest = NearestPartition(device, partitions, sms);
  const auto size = [&](int partition) { return SmsOf(device, partitions[partition]); };
  int best = nearest;
  if (size(best) < tenant.min_sms) best = SmallestPartition(device, partitions, tenant.min_sms);
  if (size(best) <= max) return best;
  // The largest partition that is not too large, or else the smallest of all.
  for (size_t i = 0; i < partitions.size(); ++i) {
    const int other = size(static_cast<int>(i));
    const bool better = size(best) > max ? other < size(best) : other <= max && other > size(best);
    if (better) best = static_cast<int>(i);
  }
  return best;
}

std::optional<std::vector<int>> Divide(const DeviceShape& device,
                                       absl::Span<const SmRange> partitions,
                                       absl::Span<const Part> parts) {
  if (parts.empty() || parts.size() > kMaxParts || partitions.empty()) return std::nullopt;
  if (parts.size() == 1) return std::vector<int>{0};

  // Ranges from low to high, and parts from large to small: the pool's ranges lie in this order.
  std::vector<int> ranges(partitions.size() - 1);
  std::iota(ranges.begin(), ranges.end(), 1);
  std::stable_sort(ranges.begin(), ranges.end(),
                   [&](int a, int b) { return partitions[a].first < partitions[b].first; });
  std::vector<int> order(parts.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int a, int b) { return parts[a].share > parts[b].share; });

  // Rates how well a part and the parts after it are supplied: first by the worst supply among
  // them, then by the SMs in use. Larger is better.
  struct Value {
    double worst = -1;
    int sms = 0;
    int next = -1;  // the range of the next part
    bool operator<(const Value& other) const {
      return worst != other.worst ? worst < other.worst : sms < other.sms;
    }
  };
  // best[k][r]: part order[k] has ranges[r], and the parts after it have ranges above.
  std::vector<std::vector<Value>> best(parts.size(), std::vector<Value>(ranges.size()));
  for (size_t k = parts.size(); k-- > 0;) {
    const Part& part = parts[order[k]];
    for (size_t r = 0; r < ranges.size(); ++r) {
      const SmRange& range = partitions[ranges[r]];
      if (range.count < part.min_sms || (part.max_sms > 0 && range.count > part.max_sms)) continue;
      Value value{range.count / part.share, range.count, -1};
      if (k + 1 < parts.size()) {
        const Value* rest = nullptr;
        for (size_t next = 0; next < ranges.size(); ++next) {
          if (partitions[ranges[next]].first < range.first + range.count) continue;
          const Value& candidate = best[k + 1][next];
          if (candidate.worst < 0 || (rest != nullptr && !(*rest < candidate))) continue;
          rest = &candidate;
          value.next = static_cast<int>(next);
        }
        if (rest == nullptr) continue;
        value.worst = std::min(value.worst, rest->worst);
        value.sms += rest->sms;
      }
      best[k][r] = value;
    }
  }
  int chosen = -1;
  for (size_t r = 0; r < ranges.size(); ++r) {
    if (best[0][r].worst >= 0 && (chosen < 0 || best[0][chosen] < best[0][r])) {
      chosen = static_cast<int>(r);
    }
  }
  if (chosen < 0) return std::nullopt;
  std::vector<int> division(parts.size());
  for (size_t k = 0; k < parts.size(); ++k) {
    division[order[k]] = ranges[chosen];
    chosen = best[k][chosen].next;
  }
  return division;
}

}  // namespace detshare::policy
