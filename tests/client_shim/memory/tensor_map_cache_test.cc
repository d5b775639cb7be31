#include "client_shim/memory/tensor_map_cache.h"

#include <catch2/catch.hpp>

namespace detshare::shim {
namespace {

struct Arguments {
  uint64_t address;
  uint64_t sides[4];
};

TensorMapWords Map(uint64_t seed) {
  TensorMapWords map;
  for (size_t i = 0; i < map.size(); ++i) map[i] = seed * 1000 + i;
  return map;
}

TEST_CASE("A tensor map is found by all of its arguments, its device and its operation") {
  TensorMapCache cache;
  const Arguments arguments{0x1000, {1, 2, 3, 4}};
  TensorMapWords map{};
  CHECK_FALSE(cache.Find({0, 2500, arguments}, &map));
  cache.Store({0, 2500, arguments}, Map(7));
  REQUIRE(cache.Find({0, 2500, arguments}, &map));
  CHECK(map == Map(7));
  CHECK_FALSE(cache.Find({1, 2500, arguments}, &map));
  CHECK_FALSE(cache.Find({0, 2501, arguments}, &map));
  Arguments other = arguments;
  other.sides[3] = 5;
  CHECK_FALSE(cache.Find({0, 2500, other}, &map));
  other = arguments;
  other.address += 16;
  CHECK_FALSE(cache.Find({0, 2500, other}, &map));
}

TEST_CASE("Many tensor maps replace each other, and a look-up never gives a wrong one") {
  TensorMapCache cache;
  constexpr uint64_t kMaps = 3 * TensorMapCache::kEntries;
  for (uint64_t i = 0; i < kMaps; ++i)
    cache.Store({0, 2500, Arguments{i * 16, {8, 8, 8, 8}}}, Map(i));
  uint64_t found = 0;
  for (uint64_t i = 0; i < kMaps; ++i) {
    TensorMapWords map{};
    if (!cache.Find({0, 2500, Arguments{i * 16, {8, 8, 8, 8}}}, &map)) continue;
    ++found;
    CHECK(map == Map(i));
  }
  CHECK(found > TensorMapCache::kEntries / 2);
  CHECK(found <= TensorMapCache::kEntries);
}

}  // namespace
}  // namespace detshare::shim
