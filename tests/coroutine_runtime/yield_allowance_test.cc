#include "coroutine_runtime/yield_allowance.h"

#include <catch2/catch.hpp>

namespace detshare {
namespace {

using policy::kMillisecond;
using policy::Nanoseconds;

// The part of ten seconds in which a coroutine yields, to work that wants it for `busy` of each `period`.
double PartOf(Nanoseconds busy, Nanoseconds period) {
  YieldAllowance allowance;
  Nanoseconds throttled = 0, now = policy::kSecond;
  const Nanoseconds end = now + 10 * policy::kSecond;
  for (; now < end; now += kMillisecond) {
    if (allowance.Look(now, throttled) && now % period < busy) throttled += kMillisecond;
  }
  return static_cast<double>(throttled) / (10 * policy::kSecond);
}

TEST_CASE("A coroutine yields whenever others want it for less than half of the time") {
  CHECK(PartOf(15 * kMillisecond, 40 * kMillisecond) == Approx(0.375));
  CHECK(PartOf(60 * kMillisecond, 200 * kMillisecond) == Approx(0.3));
}

TEST_CASE("A coroutine yields for half of the time to work without end") {
  CHECK(PartOf(kMillisecond, kMillisecond) == Approx(0.5).margin(0.02));
}

}  // namespace
}  // namespace detshare
