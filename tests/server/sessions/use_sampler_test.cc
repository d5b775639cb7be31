#include "server/sessions/use_sampler.h"

#include <atomic>
#include <catch2/catch.hpp>

#include "tests/server/shared_memory/ring_test_client.h"

namespace detshare {
namespace {

TEST_CASE("Samples are taken while something is there, and cover the time between them") {
  std::atomic<int> samples{0};
  std::atomic<int64_t> covered{0};
  UseSampler sampler([&](std::chrono::nanoseconds passed) {
    ++samples;
    covered += passed.count();
  });
  CHECK(samples == 0);
  const auto begin = std::chrono::steady_clock::now();
  sampler.Begin();
  sampler.Begin();
  sampler.End();
  REQUIRE(Eventually([&] { return samples >= 3; }));
  sampler.End();
  CHECK(covered > 0);
  CHECK(std::chrono::nanoseconds(covered) <= std::chrono::steady_clock::now() - begin);
}

TEST_CASE("A sampler that still has something to sample can end") {
  std::atomic<int> samples{0};
  {
    UseSampler sampler([&](std::chrono::nanoseconds) { ++samples; });
    sampler.Begin();
    REQUIRE(Eventually([&] { return samples >= 1; }));
  }
  SUCCEED("its thread has ended");
}

}  // namespace
}  // namespace detshare
