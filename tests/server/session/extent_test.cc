#include "server/session/handlers/extent.h"

#include <catch2/catch.hpp>

namespace detshare {
namespace {

TEST_CASE("A range is within a size only when its end is, too") {
  CHECK(Within(0, 0, 0));
  CHECK(Within(0, 10, 10));
  CHECK(Within(10, 0, 10));
  CHECK_FALSE(Within(11, 0, 10));
  CHECK_FALSE(Within(1, 10, 10));
  CHECK_FALSE(Within(5, UINT64_MAX - 2, 10));
  CHECK_FALSE(Within(UINT64_MAX, 1, 10));
}

TEST_CASE("The extent of a pitched shape ends with its last row's last byte") {
  uint64_t bytes = 0;
  CHECK(PitchedExtent({100, 1, 1}, 0, 0, &bytes));
  CHECK(bytes == 100);
  CHECK(PitchedExtent({100, 3, 1}, 128, 0, &bytes));
  CHECK(bytes == 2 * 128 + 100);
  CHECK(PitchedExtent({100, 3, 2}, 128, 1024, &bytes));
  CHECK(bytes == 1024 + 2 * 128 + 100);
}

TEST_CASE("Overlapping rows and slices have no extent") {
  uint64_t bytes = 0;
  CHECK_FALSE(PitchedExtent({100, 2, 1}, 99, 0, &bytes));
  CHECK_FALSE(PitchedExtent({100, 2, 2}, 100, 199, &bytes));
  CHECK(PitchedExtent({100, 2, 2}, 100, 200, &bytes));
}

TEST_CASE("Shapes that overflow have no extent") {
  uint64_t bytes = 0;
  CHECK_FALSE(PitchedExtent({1, UINT64_MAX, 1}, UINT64_MAX, 0, &bytes));
  CHECK_FALSE(PitchedExtent({1, 1, UINT64_MAX}, 0, UINT64_MAX, &bytes));
  CHECK_FALSE(PitchedExtent({UINT64_MAX, 2, 1}, UINT64_MAX, 0, &bytes));
  CHECK_FALSE(PitchedExtent({uint64_t{1} << 63, 1, 2}, 0, uint64_t{1} << 63, &bytes));
}

}  // namespace
}  // namespace detshare
