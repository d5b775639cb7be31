#include "proto/latency_histogram.h"

#include <catch2/catch.hpp>

namespace detshare {
namespace {

TEST_CASE("Every duration lies in its bucket") {
  for (int64_t ns = 1000; ns < int64_t{1} << 50; ns += ns / 7 + 1) {
    const int bucket = LatencyHistogram::BucketOf(ns);
    INFO(ns);
    CHECK(LatencyHistogram::BeginOf(bucket) <= ns);
    if (bucket + 1 < LatencyHistogram::kBuckets)
      CHECK(ns / 1000 * 1000 < LatencyHistogram::BeginOf(bucket + 1));
  }
}

TEST_CASE("Buckets are at most a quarter wide and in order") {
  for (int i = 9; i + 1 < LatencyHistogram::kBuckets; ++i) {
    const int64_t begin = LatencyHistogram::BeginOf(i), end = LatencyHistogram::BeginOf(i + 1);
    CHECK(begin < end);
    CHECK(end - begin <= begin / 4);
  }
}

TEST_CASE("Very short and very long durations count at the ends") {
  LatencyHistogram histogram;
  for (const int64_t ns : {INT64_MIN, int64_t{-1}, int64_t{0}, int64_t{1}, int64_t{1999}})
    histogram.Add(ns);
  histogram.Add(INT64_MAX);
  const LatencyHistogram::Counts counts = histogram.counts();
  CHECK(counts[0] == 5);
  CHECK(counts[LatencyHistogram::kBuckets - 1] == 1);
}

}  // namespace
}  // namespace detshare
