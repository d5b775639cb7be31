#include "server/session/id_table.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdint>
#include <memory>
#include <set>
#include <vector>

namespace detshare {
namespace {

TEST_CASE("Ids begin at 1, and each finds its object") {
  IdTable<int> table;
  CHECK(table.Find(0) == nullptr);
  CHECK(table.Add(10) == 1);
  CHECK(table.Add(20) == 2);
  CHECK(*table.Find(1) == 10);
  CHECK(*table.Find(2) == 20);
  for (const uint32_t unknown : {0u, 3u, UINT32_MAX, 1u << IdTable<int>::kPlaceBits})
    CHECK(table.Find(unknown) == nullptr);
  CHECK(table.size() == 2);
}

TEST_CASE("The id of a removed object names nothing, whatever comes later") {
  IdTable<int> table;
  const uint32_t first = table.Add(1), kept = table.Add(2);
  table.Remove(first);
  CHECK(table.Find(first) == nullptr);
  table.Remove(first);
  CHECK(table.size() == 1);
  const uint32_t second = table.Add(3);
  CHECK(second != first);
  CHECK(table.Find(first) == nullptr);
  table.Remove(first);
  CHECK(*table.Find(second) == 3);
  CHECK(*table.Find(kept) == 2);
}

TEST_CASE("A table gives no id twice, and needs few places for many short-lived objects") {
  IdTable<int> table;
  std::set<uint32_t> ids;
  uint32_t largest_place = 0;
  for (int i = 0; i < 10'000; ++i) {
    const uint32_t id = table.Add(i);
    REQUIRE(ids.insert(id).second);
    REQUIRE(*table.Find(id) == i);
    largest_place = std::max(largest_place, id & IdTable<int>::kMaxPlaces);
    table.Remove(id);
  }
  CHECK(table.size() == 0);
  CHECK(largest_place <= 10'000 / 2048 + 1);
}

TEST_CASE("A visit of all objects may remove them, and removed objects are destroyed at once") {
  IdTable<std::shared_ptr<int>> table;
  const auto object = std::make_shared<int>(7);
  std::vector<uint32_t> ids;
  for (int i = 0; i < 3; ++i) ids.push_back(table.Add(object));
  table.Remove(ids[1]);
  CHECK(object.use_count() == 3);
  std::vector<uint32_t> visited;
  table.ForEach([&](uint32_t id, const std::shared_ptr<int>&) {
    visited.push_back(id);
    table.Remove(id);
  });
  CHECK(visited == std::vector<uint32_t>{ids[0], ids[2]});
  CHECK(object.use_count() == 1);
}

}  // namespace
}  // namespace detshare
