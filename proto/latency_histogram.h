// Counts by duration, with four buckets for each doubling of the duration.
//
// One thread adds and any thread reads. Accesses are relaxed, because no count publishes anything
// else.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstdint>

namespace detshare {

class LatencyHistogram {
 public:
  static constexpr int kBuckets = 128;  // up to 2^31 us, about 36 minutes
  using Counts = std::array<uint64_t, kBuckets>;

  // The bucket of a duration. Durations below a microsecond count as one microsecond.
  static int BucketOf(int64_t nanoseconds) {
    const uint64_t us = nanoseconds < 1000 ? 1 : static_cast<uint64_t>(nanoseconds) / 1000;
    const int octave = std::bit_width(us) - 1;
    // The two bits below the highest one. Below 4 us they are shifted in as zeros.
    const int quarter =
        static_cast<int>(octave >= 2 ? us >> (octave - 2) & 3 : us << (2 - octave) & 3);
    const int bucket = octave * 4 + quarter;
    return bucket < kBuckets ? bucket : kBuckets - 1;
  }
  // The shortest duration of the bucket, in nanoseconds. The bucket ends before that of the next.
  static int64_t BeginOf(int bucket) {
    return ((int64_t{4} + bucket % 4) << (bucket / 4)) * 1000 / 4;
  }

  // The sum of all added durations, in nanoseconds. A longer duration counts as the last bucket's
  // shortest.
  int64_t sum() const { return sum_.load(std::memory_order_relaxed); }

  void Add(int64_t nanoseconds) {
    std::atomic<uint64_t>& count = counts_[BucketOf(nanoseconds)];
    count.store(count.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    sum_.store(sum() + std::clamp<int64_t>(nanoseconds, 0, BeginOf(kBuckets - 1)),
               std::memory_order_relaxed);
  }
  Counts counts() const {
    Counts counts;
    for (int i = 0; i < kBuckets; ++i) counts[i] = counts_[i].load(std::memory_order_relaxed);
    return counts;
  }

 private:
  std::array<std::atomic<uint64_t>, kBuckets> counts_{};
  std::atomic<int64_t> sum_{0};
};

}  // namespace detshare
