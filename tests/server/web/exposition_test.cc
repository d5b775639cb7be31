#include "server/web/exposition.h"

#include <catch2/catch.hpp>

namespace detshare {
namespace {

TEST_CASE("A metric has its help and type before its samples") {
  Exposition out;
  out.Begin({"a_total", MetricType::kCounter, "b", "What it is"});
  out.Add({{"b", "x"}}, uint64_t{18446744073709551615u});
  out.Begin({"c", MetricType::kGauge, "", "Another"});
  out.Add({}, 0.5);
  CHECK(out.text() ==
        "# HELP a_total What it is\n# TYPE a_total counter\na_total{b=\"x\"} 18446744073709551615\n"
        "# HELP c Another\n# TYPE c gauge\nc 0.5\n");
}

TEST_CASE("No text breaks out of its label or line") {
  Exposition out;
  out.Begin({"a", MetricType::kGauge, "b", "one\ntwo \\ three"});
  out.Add({{"b", "x\"} 1\n\\"}}, uint64_t{1});
  CHECK(out.text() ==
        "# HELP a one\\ntwo \\\\ three\n# TYPE a gauge\na{b=\"x\\\"} 1\\n\\\\\"} 1\n");
}

TEST_CASE("A histogram's bucket counts all values up to its edge, and the last one everything") {
  LatencyHistogram histogram;
  histogram.Add(1000);              // below the first edge
  histogram.Add(20'000);            // between 16 and 32 us
  histogram.Add(int64_t{1} << 41);  // above the last edge
  Exposition out;
  out.Begin({"a", MetricType::kHistogram, "t", "x"});
  out.Add({{"t", "v"}}, DurationCounts(histogram));
  const std::string& text = out.text();
  CHECK(text.find("a_bucket{t=\"v\",le=\"1.6e-05\"} 1\n") != std::string::npos);
  CHECK(text.find("a_bucket{t=\"v\",le=\"3.2e-05\"} 2\n") != std::string::npos);
  CHECK(text.find("a_bucket{t=\"v\",le=\"67.108864\"} 2\n") != std::string::npos);
  CHECK(text.find("a_bucket{t=\"v\",le=\"+Inf\"} 3\n") != std::string::npos);
  CHECK(text.find("a_count{t=\"v\"} 3\n") != std::string::npos);
}

TEST_CASE("A quantile is in the bucket of its value") {
  LatencyHistogram histogram;
  for (int i = 0; i < 98; ++i) histogram.Add(1'000'000);
  const DurationCounts before(histogram);
  for (int i = 0; i < 2; ++i) histogram.Add(50'000'000);
  const DurationCounts all(histogram);
  CHECK(all.Quantile(0.5) == Approx(1'000'000).epsilon(0.25));
  CHECK(all.Quantile(0.99) == Approx(50'000'000).epsilon(0.25));
  CHECK(all.Since(before).total() == 2);
  CHECK(all.Since(before).Quantile(0.01) == Approx(50'000'000).epsilon(0.25));
  CHECK(DurationCounts().Quantile(0.99) == 0);
}

}  // namespace
}  // namespace detshare
