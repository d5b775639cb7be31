#include "client_shim/memory/pointer_map.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <future>
#include <thread>

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

TEST_CASE("Memory is freed only in the life of the context in which it was allocated") {
  PointerMap map;
  map.Add(Make(0x1000, 0x100, MemoryKind::kPinned, 2));
  const auto free = [](const Allocation&) { FAIL("freed the memory of another context"); };
  CHECK_FALSE(map.TakeAndFree(0x1000, MemoryKind::kPinned, 1, free));
  CHECK_FALSE(map.TakeAndFree(0x1000, MemoryKind::kDevice, 2, free));
  uint64_t freed = 0;
  CHECK(map.TakeAndFree(0x1000, MemoryKind::kPinned, 2,
                        [&](const Allocation& allocation) { freed = allocation.bytes; }));
  CHECK(freed == 0x100);
  CHECK_FALSE(map.TakeAndFree(0x1000, MemoryKind::kPinned, 2, free));
}

TEST_CASE("The end of a context waits for memory of it that is being freed") {
  PointerMap map;
  map.Add(Make(0x1000, 0x100, MemoryKind::kPinned, 1));
  std::promise<void> entered;
  std::atomic<bool> freed{false};
  std::thread cleaner([&] {
    map.TakeAndFree(0x1000, MemoryKind::kPinned, 1, [&](const Allocation&) {
      entered.set_value();
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      freed = true;
    });
  });
  entered.get_future().wait();
  CHECK(map.TakeContext(1).empty());
  CHECK(freed);
  cleaner.join();
}

TEST_CASE("Memory synchronises by itself unless it belongs to the host") {
  PointerMap map;
  map.Add(Make(0x1000, 0x100, MemoryKind::kDevice));
  map.Add(Make(0x2000, 0x100, MemoryKind::kVirtual));
  map.Add(Make(0x3000, 0x100, MemoryKind::kManaged));
  map.Add(Make(0x4000, 0x100, MemoryKind::kPinned));
  map.AddUnlessOverlapping(Make(0x5000, 0x100, MemoryKind::kRegistered));
  Allocation found;
  for (const uint64_t address : {0x1000, 0x2000, 0x3000}) {
    REQUIRE(map.Find(address, &found));
    CHECK(found.sync_memops);
  }
  for (const uint64_t address : {0x4000, 0x5000}) {
    REQUIRE(map.Find(address, &found));
    CHECK_FALSE(found.sync_memops);
  }
}

TEST_CASE("An allocation is removed only by its first address and its own kind") {
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

TEST_CASE("Every buffer has its own id") {
  PointerMap map;
  map.Add(Make(0x1000, 0x100, MemoryKind::kDevice));
  map.Add(Make(0x2000, 0x100, MemoryKind::kDevice));
  Allocation first, second;
  map.Find(0x1000, &first);
  map.Find(0x2000, &second);
  CHECK(first.buffer_id != second.buffer_id);
}

TEST_CASE("The end of a context removes its own device memory only") {
  PointerMap map;
  map.Add(Make(0x1000, 0x100, MemoryKind::kDevice, 1));
  map.Add(Make(0x2000, 0x100, MemoryKind::kDevice, 2));
  CHECK(map.TakeContext(1).empty());
  Allocation found;
  CHECK_FALSE(map.Find(0x1000, &found));
  CHECK(map.Find(0x2000, &found));
}

TEST_CASE("The end of a context returns its host memory, which is still mapped") {
  PointerMap map;
  map.Add(Make(0x1000, 0x100, MemoryKind::kDevice, 1));
  map.Add(Make(0x2000, 0x100, MemoryKind::kPinned, 1));
  map.Add(Make(0x3000, 0x100, MemoryKind::kPinned, 2));
  const std::vector<Allocation> taken = map.TakeContext(1);
  REQUIRE(taken.size() == 1);
  CHECK(taken[0].address == 0x2000);
}

TEST_CASE("An allocation of no bytes holds its first byte") {
  PointerMap map;
  map.Add(Make(0x1000, 0, MemoryKind::kDevice));
  Allocation found;
  CHECK(map.Find(0x1000, &found));
  CHECK_FALSE(map.Find(0x1001, &found));
}

TEST_CASE("The end of a context returns every kind of host memory") {
  PointerMap map;
  map.Add(Make(0x1000, 0x100, MemoryKind::kPinned));
  map.Add(Make(0x2000, 0x100, MemoryKind::kRegistered));
  map.Add(Make(0x3000, 0x100, MemoryKind::kManaged));
  map.Add(Make(0x4000, 0x100, MemoryKind::kVirtual));
  CHECK(map.TakeContext(1).size() == 3);
  Allocation found;
  for (const uint64_t address : {0x1000, 0x2000, 0x3000, 0x4000})
    CHECK_FALSE(map.Find(address, &found));
}

TEST_CASE("Device memory never counts as host memory") {
  PointerMap map;
  map.Add(Make(0x1000, 0x100, MemoryKind::kDevice));
  CHECK_FALSE(map.OverlapsHostMemory(0x1080, 0x10));
  CHECK_FALSE(map.OverlapsHostMemory(0xF00, 0x200));
  map.Add(Make(0x2000, 0x100, MemoryKind::kPinned));
  CHECK(map.OverlapsHostMemory(0x20FF, 1));
  CHECK_FALSE(map.OverlapsHostMemory(0x2100, 1));
}

TEST_CASE("Any address of an allocation selects synchronous copies for it") {
  PointerMap map;
  map.Add(Make(0x1000, 0x100, MemoryKind::kDevice));
  CHECK(map.SetSyncMemops(0x10FF, true));
  CHECK_FALSE(map.SetSyncMemops(0x1100, true));
  Allocation found;
  REQUIRE(map.Find(0x1000, &found));
  CHECK(found.sync_memops);
  CHECK(map.SetSyncMemops(0x1000, false));
  REQUIRE(map.Find(0x1000, &found));
  CHECK_FALSE(found.sync_memops);
}

TEST_CASE("A device's memory loses synchronous copies together, but not managed memory") {
  PointerMap map;
  map.Add(Make(0x1000, 0x100, MemoryKind::kDevice));
  map.SetSyncMemopsOfDevice(0, false);
  map.Add(Make(0x2000, 0x100, MemoryKind::kVirtual));
  map.Add(Make(0x3000, 0x100, MemoryKind::kManaged));
  Allocation found;
  REQUIRE(map.Find(0x1000, &found));
  CHECK_FALSE(found.sync_memops);
  REQUIRE(map.Find(0x2000, &found));
  CHECK_FALSE(found.sync_memops);
  REQUIRE(map.Find(0x3000, &found));
  CHECK(found.sync_memops);
  map.SetSyncMemopsOfDevice(0, true);
  REQUIRE(map.Find(0x2000, &found));
  CHECK(found.sync_memops);
}

TEST_CASE("Memory is accessible as far as adjacent mappings allow") {
  constexpr uint32_t kRead = 1, kReadWrite = 3;  // CUmemAccess_flags
  PointerMap map;
  for (const uint64_t address : {0x1000, 0x1100, 0x1200, 0x1400})
    map.Add(Make(address, 0x100, MemoryKind::kVirtual));
  // Two bits for each device.
  for (const uint64_t address : {0x1000, 0x1100, 0x1400}) map.SetAccess(address, 0xC, 0xC);
  map.SetAccess(0x1200, 0xC, 0x4);
  CHECK(map.AccessibleFrom(0x1000, 1, kReadWrite) == 0x200);
  CHECK(map.AccessibleFrom(0x1000, 1, kRead) == 0x300);
  CHECK(map.AccessibleFrom(0x1080, 1, kReadWrite) == 0x180);
  CHECK(map.AccessibleFrom(0x1400, 1, kReadWrite) == 0x100);
  CHECK(map.AccessibleFrom(0x1300, 1, kRead) == 0);
  CHECK(map.AccessibleFrom(0xFFF, 1, kRead) == 0);
  CHECK(map.AccessibleFrom(0x1000, 0, kRead) == 0);  // another device
  // The mask leaves other devices' access alone.
  map.SetAccess(0x1000, 0x3, 0x3);
  CHECK(map.AccessibleFrom(0x1000, 0, kReadWrite) == 0x100);
  CHECK(map.AccessibleFrom(0x1000, 1, kReadWrite) == 0x200);
  map.SetAccess(0x1000, 0xC, 0);
  CHECK(map.AccessibleFrom(0x1000, 1, kRead) == 0);
  // Only mappings have access of their own.
  map.Add(Make(0x5000, 0x100, MemoryKind::kDevice));
  map.SetAccess(0x5000, 0xF, 0xF);
  Allocation found;
  REQUIRE(map.Find(0x5000, &found));
  CHECK(found.access == 0);
  CHECK(map.AccessibleFrom(0x5000, 0, kRead) == 0);
}

}  // namespace
}  // namespace detshare::shim
