// The work and waiting of a coroutine, or of all coroutines of a tenant together. All figures only
// grow, so the figures of ended coroutines can be added to those of running ones.
//
// Plain values. Durations are in nanoseconds.
#pragma once

#include <cstdint>

#include "proto/latency_histogram.h"

namespace detshare {

// A count of durations.
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
  // The difference to `before`, an earlier state of these counts.
  DurationCounts Since(const DurationCounts& before) const {
    DurationCounts since = *this;
    for (size_t i = 0; i < counts.size(); ++i) since.counts[i] -= before.counts[i];
    since.sum -= before.sum;
    return since;
  }
  // The quantile `part` (0 to 1), as precise as the buckets allow; 0 if nothing was counted.
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

// Counted while the coroutine's work is followed, except `resizes`.
struct WorkTotals {
  int64_t device_time = 0;   // of submitted work, as if alone on the whole device
  int64_t memory_bound = 0;  // part of device_time in operations that wait for memory, not for SMs
  int64_t throttled_by_window = 0, throttled_by_budget = 0;
  // Times in which operations were left with the client, to be submitted together.
  int64_t collecting = 0;
  uint64_t collections = 0;
  uint64_t passes = 0;   // operations that passed because they had been throttled for long enough
  uint64_t tokens = 0;   // of recognised patterns
  uint64_t resizes = 0;  // decisions that gave another partition
  // Latencies above those promised to the tenant.
  uint64_t late_bursts = 0, late_first_tokens = 0, late_tokens = 0;
  DurationCounts bursts;        // from the first operation of a burst of work until it was complete
  DurationCounts throttles;     // each time in which nothing was submitted to the hardware
  DurationCounts operations;    // those that were timed on the device
  DurationCounts first_tokens;  // from the first operation of a prefill until its result was read
  DurationCounts tokens_apart;  // between two tokens of one reply

  WorkTotals& operator+=(const WorkTotals& other) {
    device_time += other.device_time;
    memory_bound += other.memory_bound;
    throttled_by_window += other.throttled_by_window;
    throttled_by_budget += other.throttled_by_budget;
    collecting += other.collecting;
    collections += other.collections;
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
