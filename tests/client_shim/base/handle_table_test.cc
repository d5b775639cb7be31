#include "client_shim/base/handle_table.h"

#include <catch2/catch.hpp>
#include <random>
#include <thread>
#include <vector>

namespace detshare::shim {
namespace {

struct Thing {
  std::atomic<uint64_t> value{0};
};

uint64_t Make(HandleTable<Thing>& table, uint64_t value, uint32_t* index) {
  Thing* thing = table.Reserve(index);
  thing->value = value;
  return table.Publish(HandleKind::kStream, *index);
}

TEST_CASE("A handle finds its object until the object is retired, and never again") {
  HandleTable<Thing> table;
  uint32_t index;
  const uint64_t handle = Make(table, 7, &index);
  REQUIRE(table.Find(HandleKind::kStream, handle) != nullptr);
  CHECK(table.Find(HandleKind::kStream, handle)->value == 7);
  CHECK(table.Retire(handle));
  CHECK_FALSE(table.Retire(handle));
  CHECK(table.Find(HandleKind::kStream, handle) == nullptr);
  table.Recycle(index);
  uint32_t again;
  const uint64_t next = Make(table, 8, &again);
  CHECK(again == index);
  CHECK(next != handle);
  CHECK(table.Find(HandleKind::kStream, handle) == nullptr);
  CHECK(table.Find(HandleKind::kStream, next)->value == 8);
}

TEST_CASE("A table at its limit has no place until one is given back") {
  HandleTable<Thing> table;
  table.SetLimit(2);
  uint32_t first, second, third;
  const uint64_t handle = Make(table, 1, &first);
  REQUIRE(table.Reserve(&second) != nullptr);
  CHECK(table.Reserve(&third) == nullptr);
  REQUIRE(table.Retire(handle));
  CHECK(table.Reserve(&third) == nullptr);
  table.Recycle(first);
  CHECK(table.Reserve(&third) != nullptr);
  table.Recycle(second);
  table.SetLimit(1);
  CHECK(table.Reserve(&second) == nullptr);
}

TEST_CASE("A handle of another kind is not found") {
  HandleTable<Thing> table;
  uint32_t index;
  const uint64_t handle = Make(table, 7, &index);
  CHECK(table.Find(HandleKind::kEvent, handle) == nullptr);
  CHECK(table.Find(HandleKind::kEvent, HandleTable<Thing>::WithKind(HandleKind::kEvent, handle)) !=
        nullptr);
}

TEST_CASE("Invalid numbers are no handles") {
  HandleTable<Thing> table;
  uint32_t index;
  const uint64_t handle = Make(table, 7, &index);
  std::mt19937_64 random(1);
  for (int i = 0; i < 100000; ++i) {
    uint64_t value = random();
    if (i % 2 == 0) value = handle ^ (uint64_t{1} << random() % 56);
    if (i % 3 == 0)
      value &= 0x00FFFFFFFFFFFFFF | uint64_t{static_cast<uint8_t>(HandleKind::kStream)} << 56;
    if (value != handle) CHECK(table.Find(HandleKind::kStream, value) == nullptr);
  }
  for (const uint64_t value : {uint64_t{0}, uint64_t{1}, uint64_t{2}, ~uint64_t{0}}) {
    CHECK(table.Find(HandleKind::kStream, value) == nullptr);
  }
}

TEST_CASE("Handles are even and are not addresses") {
  HandleTable<Thing> table;
  for (int i = 0; i < 3000; ++i) {
    uint32_t index;
    const uint64_t handle = Make(table, i, &index);
    CHECK(handle % 2 == 0);
    CHECK(handle >> 47 != 0);
    CHECK(handle >> 63 == 0);
    CHECK(table.Find(HandleKind::kStream, handle)->value == static_cast<uint64_t>(i));
  }
}

TEST_CASE("A look-up while other threads make and end objects finds a whole object or none") {
  HandleTable<Thing> table;
  std::atomic<uint64_t> shared{0};
  std::atomic<bool> stop{false};
  std::atomic<int> wrong{0};
  std::thread reader([&] {
    while (!stop) {
      const uint64_t handle = shared.load();
      if (Thing* thing = table.Find(HandleKind::kStream, handle);
          thing != nullptr && thing->value == 0)
        ++wrong;
    }
  });
  for (int i = 1; i < 20000; ++i) {
    uint32_t index;
    const uint64_t handle = Make(table, i, &index);
    shared = handle;
    table.Retire(handle);
    table.Recycle(index);
  }
  stop = true;
  reader.join();
  CHECK(wrong == 0);
}

TEST_CASE("A visit sees all living objects and no others") {
  HandleTable<Thing> table;
  uint32_t first, second, reserved;
  const uint64_t ended = Make(table, 1, &first);
  Make(table, 2, &second);
  table.Reserve(&reserved)->value = 4;
  CHECK(table.Retire(ended));
  uint64_t sum = 0;
  table.ForEach([&](Thing& thing) { sum += thing.value; });
  CHECK(sum == 2);
}

TEST_CASE("Living objects have different places") {
  HandleTable<Thing> table;
  std::vector<bool> seen;
  for (uint32_t i = 0; i < 2 * HandleTable<Thing>::kChunkSize + 1; ++i) {
    uint32_t index;
    Thing* thing = table.Reserve(&index);
    REQUIRE(thing != nullptr);
    if (seen.size() <= index) seen.resize(index + 1);
    REQUIRE_FALSE(seen[index]);
    seen[index] = true;
  }
}

}  // namespace
}  // namespace detshare::shim
