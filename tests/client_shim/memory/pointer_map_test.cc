#include "client_shim/memory/pointer_map.h"

#include <catch2/catch.hpp>

namespace detshare::shim {
namespace {

Allocation Make(uint64_t address, uint64_t bytes, MemoryKind kind, ContextId context = 1) {
  Allocation allocation;
  allocation.kind = kind;
  allocation.context = context;
  allocation.address = allocation.gpu_address = address;
  allocation.bytes = bytes;
  if (kind == MemoryKind::kPinned || kind == MemoryKind::kRegistered)
    allocation.host_address = address;
  return allocation;
}

TEST_CASE("Every address inside an allocation leads to it, and none outside") {
  PointerMap map;
  map.Add(Make(0x1000, 0x100, MemoryKind::kDevice));
  map.Add(Make(0x1100, 0x10, MemoryKind::kDevice));
  Allocation found;
  CHECK_FALSE(map.Find(0xFFF, &found));
  REQUIRE(map.Find(0x1000, &found));
  CHECK(found.bytes == 0x100);
  REQUIRE(map.Find(0x10FF, &found));
  CHECK(found.address == 0x1000);
  REQUIRE(map.Find(0x1100, &found));
  CHECK(found.address == 0x1100);
  CHECK_FALSE(map.Find(0x1110, &found));
}

TEST_CASE("An allocation is taken by its first address and its own kind alone") {
  PointerMap map;
  map.Add(Make(0x1000, 0x100, MemoryKind::kDevice));
  Allocation taken;
  CHECK_FALSE(map.Take(0x1001, MemoryKind::kDevice, &taken));
  CHECK_FALSE(map.Take(0x1000, MemoryKind::kPinned, &taken));
  CHECK(map.Take(0x1000, MemoryKind::kDevice, &taken));
  CHECK_FALSE(map.Take(0x1000, MemoryKind::kDevice, &taken));
}

TEST_CASE("Ranges that overlap are not added") {
  PointerMap map;
  CHECK(map.AddUnlessOverlapping(Make(0x1000, 0x100, MemoryKind::kRegistered)));
  CHECK_FALSE(map.AddUnlessOverlapping(Make(0x1080, 0x10, MemoryKind::kRegistered)));
  CHECK_FALSE(map.AddUnlessOverlapping(Make(0xFFF, 0x2, MemoryKind::kRegistered)));
  CHECK_FALSE(map.AddUnlessOverlapping(Make(0x800, 0x1000, MemoryKind::kRegistered)));
  CHECK(map.AddUnlessOverlapping(Make(0x1100, 0x10, MemoryKind::kRegistered)));
  CHECK(map.OverlapsHostMemory(0xF00, 0x101));
  CHECK_FALSE(map.OverlapsHostMemory(0xF00, 0x100));
}

TEST_CASE("Buffers have ids of their own") {
  PointerMap map;
  map.Add(Make(0x1000, 0x100, MemoryKind::kDevice));
  map.Add(Make(0x2000, 0x100, MemoryKind::kDevice));
  Allocation first, second;
  map.Find(0x1000, &first);
  map.Find(0x2000, &second);
  CHECK(first.buffer_id != second.buffer_id);
}

TEST_CASE("The end of a context takes its device memory and nobody else's") {
  PointerMap map;
  map.Add(Make(0x1000, 0x100, MemoryKind::kDevice, 1));
  map.Add(Make(0x2000, 0x100, MemoryKind::kDevice, 2));
  CHECK(map.TakeContext(1).empty());
  Allocation found;
  CHECK_FALSE(map.Find(0x1000, &found));
  CHECK(map.Find(0x2000, &found));
}

TEST_CASE("The end of a context hands out its host memory, which is still mapped") {
  PointerMap map;
  map.Add(Make(0x1000, 0x100, MemoryKind::kDevice, 1));
  map.Add(Make(0x2000, 0x100, MemoryKind::kPinned, 1));
  map.Add(Make(0x3000, 0x100, MemoryKind::kPinned, 2));
  const std::vector<Allocation> taken = map.TakeContext(1);
  REQUIRE(taken.size() == 1);
  CHECK(taken[0].address == 0x2000);
}

}  // namespace
}  // namespace detshare::shim
