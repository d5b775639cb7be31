#include "tools/sim/device_model.h"

#include <catch2/catch.hpp>

#include "tests/policy/device_shapes.h"

namespace detshare::sim {
namespace {

std::vector<double> RatesOf(const std::vector<Running>& running) {
  std::vector<double> rates;
  Rates(policy::kH200, running, &rates);
  return rates;
}

TEST_CASE("Bandwidth goes through the measured points and never falls") {
  CHECK(Bandwidth(0) == 0);
  CHECK(Bandwidth(8. / 132) == Approx(0.20));
  CHECK(Bandwidth(64. / 132) == Approx(0.97));
  CHECK(Bandwidth(1) == 1);
  for (int i = 1; i <= 132; ++i) CHECK(Bandwidth(i / 132.) > Bandwidth((i - 1) / 132.));
}

TEST_CASE("Alone on the whole device everything has rate 1") {
  CHECK(RatesOf({{{}, {10, 0}}})[0] == Approx(1));
  CHECK(RatesOf({{{}, {3, 10}}})[0] == Approx(1));
  CHECK(RatesOf({}).empty());
}

TEST_CASE("The speed of arithmetic follows the SMs, and that of traffic hardly does") {
  CHECK(RatesOf({{{0, 64}, {10, 0}}})[0] == Approx(64. / 132));
  CHECK(RatesOf({{{0, 64}, {1, 10}}})[0] == Approx(0.97));
}

TEST_CASE("SMs in several partitions are shared, others are not") {
  const auto halves = RatesOf({{{0, 64}, {10, 0}}, {{64, 68}, {10, 0}}});
  CHECK(halves[0] == Approx(64. / 132));
  CHECK(halves[1] == Approx(68. / 132));
  const auto same = RatesOf({{{}, {10, 0}}, {{}, {10, 0}}});
  CHECK(same[0] == Approx(0.5));
  const auto beside = RatesOf({{{}, {10, 0}}, {{0, 64}, {10, 0}}});
  CHECK(beside[0] == Approx((68. + 32) / 132));
  CHECK(beside[1] == Approx(32. / 132));
}

TEST_CASE("Programs together use at most the bandwidth, and partitions do not divide it") {
  const auto two = RatesOf({{{0, 64}, {0, 10}}, {{64, 68}, {0, 10}}});
  CHECK(two[0] == Approx(0.5).margin(0.02));
  CHECK(two[1] == Approx(0.5).margin(0.02));
  // A small partition uses as much traffic as it can and leaves the rest.
  const auto small = RatesOf({{{0, 8}, {0, 10}}, {{8, 124}, {0, 10}}});
  CHECK(small[0] == Approx(0.2));
  CHECK(small[1] == Approx(0.8));
  // A neighbour's traffic does not slow arithmetic.
  const auto pair = RatesOf({{{0, 64}, {10, 0}}, {{64, 68}, {0, 10}}});
  CHECK(pair[0] == Approx(64. / 132));
  CHECK(pair[1] > 0.96);
}

}  // namespace
}  // namespace detshare::sim
