// How long threads pause between two looks at work.
#include "client_shim/objects/waits.h"

#include <catch2/catch.hpp>

namespace detshare::shim {
namespace {

TEST_CASE("Pauses grow to 50 us on a GPU, however long the wait is") {
  uint32_t nap = 0;
  for (uint32_t want = 5; want <= 50; want += 5) {
    nap = Naps::Next(/*software=*/false, nap, 1'000'000);
    CHECK(nap == want);
  }
  CHECK(Naps::Next(/*software=*/false, nap, 1'000'000) == 50);
}

TEST_CASE("Pauses grow with the wait on a software GPU, up to 5 ms") {
  CHECK(Naps::Next(/*software=*/true, 0, 0) == 5);
  CHECK(Naps::Next(/*software=*/true, 5, 16) == 10);
  CHECK(Naps::Next(/*software=*/true, 10, 8'000) == 1'000);
  CHECK(Naps::Next(/*software=*/true, 1'000, 16'000) == 2'000);
  CHECK(Naps::Next(/*software=*/true, 2'000, 10'000'000) == 5'000);
}

}  // namespace
}  // namespace detshare::shim
