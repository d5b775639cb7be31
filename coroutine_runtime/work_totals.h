// What a coroutine, or all of a tenant's together, has done and waited for: only figures that grow,
// so that what ended can be added to what goes on.
//
// Plain values. Durations in nanoseconds.
#pragma once

#include <cstdint>

#include "proto/latency_histogram.h"

namespace detshare {

// Durations that were counted.
struct DurationCounts {
  LatencyHistogram::Counts counts{};
  int64_t sum = 0;

  DurationCounts() = default;
  explicit DurationCounts(const LatencyHistogram& histogram)
      : counts(histogram.counts()), sum(histogram.sum()) {}
  uint64_t total() const {
    uint64_t total = 0;
    for (const uint64_t count : counts) total += count;
    return total;
  }
  DurationCounts& operator+=(const DurationCounts& other) {
    for (size_t i = 0; i < counts.size(); ++i) counts[i] += other.counts[i];
    sum += other.sum;
    return *this;
  }
  // What was counted since `before`, which these counts once were.
  DurationCounts Since(const DurationCounts& before) const {
    DurationCounts since = *this;
    for (size_t i = 0; i < counts.size(); ++i) since.counts[i] -= before.counts[i];
    since.sum -= before.sum;
    return since;
  }
  // What `part` (0 to 1) of all did not exceed, as far as the buckets tell it; 0 when there are
  // none.
  int64_t Quantile(double part) const {
    const double wanted = static_cast<double>(total()) * part;
    uint64_t seen = 0;
    for (int i = 0; i < LatencyHistogram::kBuckets; ++i) {
      seen += counts[i];
      if (counts[i] != 0 && static_cast<double>(seen) >= wanted)
        return (LatencyHistogram::BeginOf(i) + LatencyHistogram::BeginOf(i + 1)) / 2;
    }
    return 0;
  }
};

// Counted while the coroutine's work is followed, but for `resizes`.
struct WorkTotals {
  int64_t device_time = 0;   // of what was given to the hardware, as if alone on the whole device
  int64_t memory_bound = 0;  // of that, in operations that wait for memory and not for SMs
  int64_t throttled_by_window = 0, throttled_by_budget = 0;
  uint64_t passes = 0;   // operations that went because they had been throttled for long enough
  uint64_t tokens = 0;   // of the patterns that were recognised
  uint64_t resizes = 0;  // decisions that gave another partition
  // More than what the tenant was promised.
  uint64_t late_bursts = 0, late_first_tokens = 0, late_tokens = 0;
  DurationCounts bursts;      // from the first operation of a burst of work until all was complete
  DurationCounts throttles;   // how long nothing was given to the hardware, each time
  DurationCounts operations;  // those that were timed on the device
  DurationCounts first_tokens;  // from the first operation of a prefill until its result was read
  DurationCounts tokens_apart;  // between two tokens of one answer

  WorkTotals& operator+=(const WorkTotals& other) {
    device_time += other.device_time;
    memory_bound += other.memory_bound;
    throttled_by_window += other.throttled_by_window;
    throttled_by_budget += other.throttled_by_budget;
    passes += other.passes;
    tokens += other.tokens;
    resizes += other.resizes;
    late_bursts += other.late_bursts;
    late_first_tokens += other.late_first_tokens;
    late_tokens += other.late_tokens;
    bursts += other.bursts;
    throttles += other.throttles;
    operations += other.operations;
    first_tokens += other.first_tokens;
    tokens_apart += other.tokens_apart;
    return *this;
  }
};

}  // namespace detshare
