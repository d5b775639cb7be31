#include "policy/partition_pool.h"

#include <algorithm>
#include <catch2/catch.hpp>

#include "tests/policy/device_shapes.h"

namespace detshare::policy {
namespace {

std::vector<SmRange> Pool(const DeviceShape& device) {
  std::vector<SmRange> partitions = {SmRange{}};
  for (const SmRange& range : StandardPartitions(device)) partitions.push_back(range);
  return partitions;
}

TEST_CASE("The standard pool divides any device into whole groups, within its bound") {
  for (const DeviceShape device :
       {kH200, DeviceShape{132, 2}, DeviceShape{1, 1}, DeviceShape{2, 1}, DeviceShape{3, 1},
        DeviceShape{7, 2}, DeviceShape{16, 8}, DeviceShape{4, 8}, DeviceShape{100000, 1}}) {
    for (const int max_count : {0, 1, 5, kStandardPartitions}) {
      const std::vector<SmRange> pool = StandardPartitions(device, max_count);
      CHECK(static_cast<int>(pool.size()) <= max_count);
      for (size_t i = 0; i < pool.size(); ++i) {
        CHECK(pool[i].first >= 0);
        CHECK(pool[i].count > 0);
        CHECK(pool[i].count < device.sm_count);
        CHECK(pool[i].first % device.sm_group == 0);
        CHECK(pool[i].first + pool[i].count <= device.sm_count);
        CHECK(std::count(pool.begin(), pool.end(), pool[i]) == 1);
      }
    }
  }
  CHECK(StandardPartitions({1, 1}).empty());
}

TEST_CASE("Every cut of the standard pool has both of its sides") {
  const std::vector<SmRange> pool = StandardPartitions(kH200);
  CHECK(pool.size() == 24);
  CHECK(pool[0] == SmRange{0, 64});
  CHECK(pool[1] == SmRange{64, 68});
  for (const SmRange& range : pool) {
    if (range.first != 0) continue;
    CHECK(IndexOf(pool, {range.count, 132 - range.count}) + 1 > 0);
    CHECK(std::find(pool.begin(), pool.end(), SmRange{range.count, 132 - range.count}) !=
          pool.end());
  }
}

TEST_CASE("A partition is chosen by its size, at the high end if possible") {
  const std::vector<SmRange> pool = Pool(kH200);
  CHECK(pool[NearestPartition(kH200, pool, 132)] == SmRange{});
  CHECK(pool[NearestPartition(kH200, pool, 66)] == SmRange{0, 64});
  CHECK(pool[NearestPartition(kH200, pool, 68)] == SmRange{64, 68});
  CHECK(pool[NearestPartition(kH200, pool, 0)] == SmRange{0, 8});
  CHECK(pool[NearestPartition(kH200, pool, 12)] == SmRange{120, 12});
  CHECK(pool[NearestPartition(kH200, pool, 1e300)] == SmRange{});
  CHECK(pool[SmallestPartition(kH200, pool, 9)] == SmRange{120, 12});
  CHECK(pool[SmallestPartition(kH200, pool, 12)] == SmRange{120, 12});
  CHECK(pool[SmallestPartition(kH200, pool, 125)] == SmRange{});
  CHECK(pool[*LargestDisjoint(kH200, pool, {SmRange{120, 12}})] == SmRange{0, 120});
  CHECK_FALSE(LargestDisjoint(kH200, pool, {SmRange{}}).has_value());
}

TEST_CASE("A partition for a tenant keeps the tenant's bounds if the pool allows") {
  const std::vector<SmRange> pool = Pool(kH200);
  Tenant tenant;
  tenant.max_sms = 66;
  CHECK(SmsOf(kH200, pool[NearestWithin(kH200, pool, tenant, 132)]) == 64);
  tenant.min_sms = 65;
  CHECK(SmsOf(kH200, pool[NearestWithin(kH200, pool, tenant, 8)]) <= 66);
  tenant.max_sms = 0;
  CHECK(SmsOf(kH200, pool[NearestWithin(kH200, pool, tenant, 8)]) == 68);
  tenant.min_sms = 0;
  tenant.max_sms = 1;
  CHECK(SmsOf(kH200, pool[NearestWithin(kH200, pool, tenant, 132)]) == 8);
}

TEST_CASE("A division gives disjoint partitions close to the shares") {
  const std::vector<SmRange> pool = Pool(kH200);
  const auto divide = [&](const std::vector<Part>& parts) {
    std::vector<SmRange> ranges;
    const auto division = Divide(kH200, pool, parts);
    REQUIRE(division.has_value());
    for (const int index : *division) ranges.push_back(pool[index]);
    return ranges;
  };
  CHECK(divide({{1}}) == std::vector<SmRange>{{}});
  CHECK(divide({{0.5}, {0.5}}) == std::vector<SmRange>{{0, 64}, {64, 68}});
  CHECK(divide({{0.25}, {0.75}}) == std::vector<SmRange>{{96, 36}, {0, 96}});
  CHECK(divide({{0.5}, {0.25}, {0.25}}) == std::vector<SmRange>{{0, 64}, {64, 32}, {96, 36}});
  CHECK(divide({{0.25}, {0.25}, {0.25}, {0.25}}) ==
        std::vector<SmRange>{{0, 32}, {32, 32}, {64, 32}, {96, 36}});
  CHECK(divide({{0.5, 100}, {0.5}})[0].count >= 100);
  CHECK(divide({{0.9, 0, 16}, {0.1}})[0].count <= 16);

  CHECK_FALSE(Divide(kH200, pool, {{0.5, 100}, {0.5, 100}}).has_value());
  CHECK_FALSE(Divide(kH200, pool, std::vector<Part>(9, {0.1})).has_value());
  CHECK_FALSE(Divide({1, 1}, {SmRange{}}, {{0.5}, {0.5}}).has_value());
}

TEST_CASE("Divisions by any shares are disjoint") {
  const std::vector<SmRange> pool = Pool(kH200);
  uint64_t seed = 1;
  for (int round = 0; round < 500; ++round) {
    std::vector<Part> parts;
    const size_t count = 2 + round % 7;
    for (size_t i = 0; i < count; ++i) {
      seed = seed * 6364136223846793005ull + 1442695040888963407ull;
      parts.push_back({static_cast<double>((seed >> 40) + 1)});
    }
    const auto division = Divide(kH200, pool, parts);
    if (!division) continue;
    for (size_t a = 0; a < count; ++a) {
      for (size_t b = 0; b < a; ++b) {
        CHECK(Disjoint(kH200, pool[(*division)[a]], pool[(*division)[b]]));
      }
    }
  }
}

TEST_CASE("Partitions that touch are disjoint, and the whole device is disjoint from none") {
  CHECK(Disjoint(kH200, {0, 64}, {64, 68}));
  CHECK(Disjoint(kH200, {64, 68}, {0, 64}));
  CHECK_FALSE(Disjoint(kH200, {0, 65}, {64, 68}));
  CHECK_FALSE(Disjoint(kH200, {0, 132}, {64, 8}));
  CHECK_FALSE(Disjoint(kH200, {}, {0, 8}));
  CHECK_FALSE(Disjoint(kH200, {0, 8}, {}));
}

TEST_CASE("A partition for a tenant has at least its lower bound of SMs") {
  const std::vector<SmRange> pool = {SmRange{}, SmRange{0, 64}, SmRange{64, 68}};
  Tenant tenant;
  tenant.min_sms = 65;
  // 64 SMs are nearest to 65, but too few.
  CHECK(pool[NearestWithin({132, 8}, {SmRange{}, SmRange{0, 64}}, tenant, 8)] == SmRange{});
  CHECK(pool[NearestWithin(kH200, pool, tenant, 8)] == SmRange{64, 68});
}

TEST_CASE("Divisions of eight parts are tried, and each part has its bounds") {
  const std::vector<SmRange> pool = Pool(kH200);
  std::vector<SmRange> eighths = {SmRange{}};
  for (int i = 0; i < 8; ++i) eighths.push_back(kH200.Groups(2 * i, 2 * i + 2));
  CHECK(Divide(kH200, eighths, std::vector<Part>(8, {0.125})) ==
        std::vector<int>{1, 2, 3, 4, 5, 6, 7, 8});
  CHECK_FALSE(Divide(kH200, pool, {}).has_value());
  const auto exact = Divide(kH200, pool, {{0.5, 64, 64}, {0.5, 68, 68}});
  REQUIRE(exact.has_value());
  CHECK(pool[(*exact)[0]].count == 64);
  CHECK(pool[(*exact)[1]].count == 68);
}

TEST_CASE("Of divisions that serve the worst part equally, the one with most SMs is chosen") {
  // The third part gets the last 24 SMs in any case. If the first part has 56 SMs, the second one
  // has 40 or overlaps it.
  const std::vector<SmRange> pool = {SmRange{}, {0, 48}, {48, 60}, {108, 24}, {0, 56}, {56, 40}};
  const auto division = Divide({132, 1}, pool, {{0.4}, {0.3}, {0.3}});
  REQUIRE(division.has_value());
  CHECK(*division == std::vector<int>{1, 2, 3});
}

TEST_CASE("Of partitions of one size, the one at the high end is chosen") {
  const DeviceShape device{16, 1};
  const std::vector<SmRange> pool = Pool(device);
  for (const int size : {1, 2, 4, 8})
    CHECK(pool[NearestPartition(device, pool, size)] == SmRange{16 - size, size});
}

}  // namespace
}  // namespace detshare::policy
