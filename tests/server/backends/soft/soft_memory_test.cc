#include "server/backends/soft/soft_memory.h"

#include <catch2/catch.hpp>
#include <cstring>
#include <map>
#include <random>
#include <thread>
#include <vector>

#include "coroutine_runtime/status_cuda.h"
#include "tests/server/backends/soft/test_addresses.h"

namespace detshare::soft {
namespace {

constexpr uint64_t kBase = TestBase(0);
constexpr uint64_t kBudget = 64 << 20;

std::unique_ptr<SoftAddressSpace> MakeSpace(MemoryBudget& budget, uint64_t index = 0) {
  auto state = SpaceState::Create(TestBase(index), kTestSpaceBytes, budget);
  REQUIRE(state.ok());
  return std::make_unique<SoftAddressSpace>(*std::move(state), /*outlives_session=*/false, [] {});
}

uint8_t* At(uint64_t address) { return reinterpret_cast<uint8_t*>(address); }

bool IsZero(uint64_t address, uint64_t bytes) {
  for (uint64_t i = 0; i < bytes; ++i) {
    if (At(address)[i] != 0) return false;
  }
  return true;
}

}  // namespace

TEST_CASE("memory is at the address where it was mapped, and is zero") {
  MemoryBudget budget(kBudget);
  const auto space = MakeSpace(budget);
  CHECK(space->base() == kBase);
  REQUIRE(space->Map(kBase + 512, 1024).ok());
  CHECK(IsZero(kBase + 512, 1024));
  CHECK(budget.used() == 1024);
}

TEST_CASE("memory belongs to the session to the byte") {
  MemoryBudget budget(kBudget);
  const auto space = MakeSpace(budget);
  REQUIRE(space->Map(kBase + 512, 512).ok());
  CHECK(space->Contains(kBase + 512, 512));
  CHECK(space->Contains(kBase + 1023, 1));
  CHECK_FALSE(space->Contains(kBase + 511, 1));
  CHECK_FALSE(space->Contains(kBase + 512, 513));
  CHECK_FALSE(space->Contains(kBase + 1024, 1));
  CHECK_FALSE(space->Contains(kBase + 512, UINT64_MAX));

  ptx::MemoryRange range;
  REQUIRE(space->state()->ranges().Find(kBase + 700, &range));
  CHECK(range.begin == kBase + 512);
  CHECK(range.end == kBase + 1024);
  CHECK(range.writable);
  CHECK_FALSE(space->state()->ranges().Find(kBase + 1024, &range));
}

TEST_CASE("adjacent ranges contain an access across them") {
  MemoryBudget budget(kBudget);
  const auto space = MakeSpace(budget);
  REQUIRE(space->Map(kBase, 512).ok());
  REQUIRE(space->Map(kBase + 512, 512).ok());
  REQUIRE(space->Map(kBase + 2048, 512).ok());
  CHECK(space->Contains(kBase + 100, 900));
  CHECK_FALSE(space->Contains(kBase + 100, 1000));
}

TEST_CASE("memory that was unmapped is zero when it is mapped again") {
  MemoryBudget budget(kBudget);
  const auto space = MakeSpace(budget);
  // The range neither begins nor ends at a page boundary. Another range shares its last page.
  const uint64_t begin = kBase + 1536, bytes = 5 * 4096;
  REQUIRE(space->Map(begin, bytes).ok());
  REQUIRE(space->Map(begin + bytes, 512).ok());
  std::memset(At(begin), 0xab, bytes + 512);
  REQUIRE(space->Unmap(begin, bytes).ok());
  CHECK(budget.used() == 512);
  CHECK(At(begin + bytes)[0] == 0xab);
  REQUIRE(space->Map(begin, bytes).ok());
  CHECK(IsZero(begin, bytes));
  CHECK(At(begin + bytes)[511] == 0xab);
}

TEST_CASE("only a range of one Map can be unmapped, and only once") {
  MemoryBudget budget(kBudget);
  const auto space = MakeSpace(budget);
  REQUIRE(space->Map(kBase, 1024).ok());
  CHECK(CudaResultOf(space->Unmap(kBase, 512)) == kCudaErrorInvalidValue);
  CHECK(CudaResultOf(space->Unmap(kBase + 512, 512)) == kCudaErrorInvalidValue);
  CHECK(space->Unmap(kBase, 1024).ok());
  CHECK(CudaResultOf(space->Unmap(kBase, 1024)) == kCudaErrorInvalidValue);
}

TEST_CASE("memory outside the range, off the granules or over other memory is refused") {
  MemoryBudget budget(UINT64_MAX);
  const auto space = MakeSpace(budget);
  const uint64_t end = space->base() + space->size();
  REQUIRE(space->Map(kBase + 4096, 4096).ok());
  for (const auto& [address, bytes] :
       std::map<uint64_t, uint64_t>{{kBase - 512, 1024},
                                    {kBase + 1, 512},
                                    {kBase, 100},
                                    {kBase + 512, 4096},
                                    {kBase + 4096 + 512, 512},
                                    {kBase + 8192, 0},
                                    {end, 512},
                                    {end - 512, 1024},
                                    {kBase + 16384, UINT64_MAX - 511}}) {
    INFO(address - kBase << " " << bytes);
    CHECK(CudaResultOf(space->Map(address, bytes)) == kCudaErrorInvalidValue);
  }
  CHECK(budget.used() == 4096);
}

TEST_CASE("the card's memory is divided among the sessions") {
  MemoryBudget budget(8192);
  const auto first = MakeSpace(budget, 0);
  auto second = MakeSpace(budget, 1);
  REQUIRE(first->Map(TestBase(0), 4096).ok());
  REQUIRE(second->Map(TestBase(1), 2048).ok());
  const absl::Status refused = first->Map(TestBase(0) + 4096, 4096);
  CHECK(CudaResultOf(refused) == kCudaErrorOutOfMemory);
  CHECK(absl::IsResourceExhausted(refused));
  // A session that ends gives all of its memory back.
  REQUIRE(second->state()->AllocateGlobal(100, 8).ok());
  second.reset();
  CHECK(budget.used() == 4096);
  CHECK(first->Map(TestBase(0) + 4096, 4096).ok());
}

TEST_CASE(
    "a range of addresses is free again as soon as its session is gone, whatever still holds its "
    "state") {
  MemoryBudget budget(kBudget);
  auto space = MakeSpace(budget);
  const std::shared_ptr<SpaceState> state = space->state();
  const auto address = state->AllocateGlobal(100, 8);
  REQUIRE(address.ok());
  CHECK_FALSE(SpaceState::Create(kBase, kTestSpaceBytes, budget).ok());
  space.reset();
  const auto next = MakeSpace(budget);
  CHECK(IsZero(*address, 100));
  At(*address)[0] = 1;
  state->FreeGlobal(*address);
  CHECK(At(*address)[0] == 1);
  CHECK_FALSE(state->AllocateGlobal(100, 8).ok());
}

TEST_CASE("globals lie above the session's allocations, from the top down") {
  MemoryBudget budget(kBudget);
  const auto space = MakeSpace(budget);
  SpaceState& state = *space->state();
  const auto first = state.AllocateGlobal(1000, 256);
  const auto second = state.AllocateGlobal(8, 256);
  REQUIRE(first.ok());
  REQUIRE(second.ok());
  CHECK(*first + 1000 <= kBase + kTestSpaceBytes);
  CHECK(*first % 256 == 0);
  CHECK(*second < *first);
  CHECK(*second >= kBase + space->size());
  CHECK(space->Contains(*first, 1000));
  CHECK_FALSE(space->Contains(*first, 1001));

  // Freed room is used again, and is cleared.
  std::memset(At(*first), 1, 1000);
  state.FreeGlobal(*first);
  CHECK_FALSE(space->Contains(*first, 1));
  CHECK(*state.AllocateGlobal(900, 256) >= *first);
  CHECK(IsZero(*first, 1000));
  CHECK_FALSE(state.AllocateGlobal(kTestSpaceBytes, 8).ok());
  CHECK_FALSE(state.AllocateGlobal(UINT64_MAX, 8).ok());
}

TEST_CASE("host memory belongs to the session while it is registered") {
  MemoryBudget budget(kBudget);
  const auto space = MakeSpace(budget);
  alignas(4096) static uint8_t page[8192];
  const uint64_t address = reinterpret_cast<uint64_t>(page);
  CHECK_FALSE(space->Contains(address, 1));
  REQUIRE(space->RegisterHost(page, sizeof(page)).ok());
  CHECK(space->Contains(address, sizeof(page)));
  CHECK(space->state()->ranges().IsHost(address + 8191));
  CHECK_FALSE(space->RegisterHost(page + 4096, 4096).ok());
  CHECK_FALSE(space->RegisterHost(page + 1, 16).ok());
  CHECK_FALSE(space->RegisterHost(At(kBase), 4096).ok());
  CHECK(budget.used() == 0);
  REQUIRE(space->UnregisterHost(page).ok());
  CHECK_FALSE(space->UnregisterHost(page).ok());
  CHECK_FALSE(space->Contains(address, 1));
}

TEST_CASE("Drain waits for work that may have looked memory up, and for no later work") {
  AccessGate gate;
  gate.Drain();
  auto early = std::make_unique<AccessGate::Pass>(gate);
  std::atomic<bool> drained{false};
  std::thread drainer([&] {
    gate.Drain();
    drained = true;
  });
  // These passes may begin before or after Drain. All of them end.
  for (int i = 0; i < 1000; ++i) AccessGate::Pass pass(gate);
  CHECK_FALSE(drained);
  early.reset();
  drainer.join();
  CHECK(drained);

  // Passes that overlap without a pause do not delay Drain.
  std::atomic<bool> stop{false};
  std::vector<std::thread> users;
  for (int i = 0; i < 2; ++i) {
    users.emplace_back([&] {
      auto pass = std::make_unique<AccessGate::Pass>(gate);
      while (!stop) pass = std::make_unique<AccessGate::Pass>(gate);
    });
  }
  for (int i = 0; i < 100; ++i) gate.Drain();
  stop = true;
  for (std::thread& user : users) user.join();
}

TEST_CASE(
    "the device heap gives disjoint memory of the session, and takes back only what it gave") {
  MemoryBudget budget(kBudget);
  const auto space = MakeSpace(budget);
  SpaceState& state = *space->state();
  REQUIRE(state.SetHeapBytes(1 << 16));
  const uint64_t a = state.Allocate(10), b = state.Allocate(100);
  REQUIRE(a != 0);
  REQUIRE(b != 0);
  CHECK(a % 16 == 0);
  CHECK(b >= a + 16);
  CHECK(space->Contains(a, 10));
  CHECK(state.Allocate(1 << 16) == 0);
  CHECK(state.Allocate(0) == 0);
  CHECK(state.Allocate(UINT64_MAX) == 0);
  CHECK_FALSE(state.Free(a + 1));
  CHECK(state.Free(a));
  CHECK_FALSE(state.Free(a));
  CHECK(state.Allocate(16) == a);
  CHECK_FALSE(state.SetHeapBytes(1 << 20));
}

TEST_CASE("the first fault of a session stays") {
  MemoryBudget budget(kBudget);
  const auto space = MakeSpace(budget);
  CHECK(space->fault().ok());
  CHECK(space->state()->SetFault(kCudaErrorIllegalAddress, "first"));
  CHECK_FALSE(space->state()->SetFault(kCudaErrorAssert, "second"));
  CHECK(CudaResultOf(space->fault()) == kCudaErrorIllegalAddress);
  CHECK(space->fault().message() == "first");
  CHECK(space->state()->stopped());
}

TEST_CASE("an address space with impossible bounds is refused") {
  MemoryBudget budget(kBudget);
  CHECK_FALSE(SpaceState::Create(0, kTestSpaceBytes, budget).ok());
  CHECK_FALSE(SpaceState::Create(kBase + 1, kTestSpaceBytes, budget).ok());
  CHECK_FALSE(SpaceState::Create(kBase, 100, budget).ok());
  CHECK_FALSE(SpaceState::Create(kBase, 4096, budget).ok());
  CHECK_FALSE(SpaceState::Create(~uint64_t{4095}, 1 << 20, budget).ok());
}

TEST_CASE("any sequence of mapping and unmapping agrees with a plain list of bytes") {
  MemoryBudget budget(1 << 20);
  const auto space = MakeSpace(budget);
  constexpr uint64_t kGranules = 64;
  std::mt19937 random(3);
  std::vector<int> owner(kGranules, -1);
  std::map<int, std::pair<uint64_t, uint64_t>> mapped;
  int next = 0;
  for (int step = 0; step < 3000; ++step) {
    const uint64_t first = random() % kGranules, count = 1 + random() % 6;
    if (random() % 2 == 0 && !mapped.empty()) {
      const auto victim = std::next(mapped.begin(), random() % mapped.size());
      REQUIRE(space->Unmap(kBase + victim->second.first * 512, victim->second.second * 512).ok());
      for (uint64_t i = 0; i < victim->second.second; ++i) owner[victim->second.first + i] = -1;
      mapped.erase(victim);
    } else if (first + count <= kGranules) {
      bool free = true;
      for (uint64_t i = 0; i < count; ++i) free = free && owner[first + i] == -1;
      REQUIRE(space->Map(kBase + first * 512, count * 512).ok() == free);
      if (free) {
        REQUIRE(IsZero(kBase + first * 512, count * 512));
        std::memset(At(kBase + first * 512), 1 + next % 255, count * 512);
        for (uint64_t i = 0; i < count; ++i) owner[first + i] = next;
        mapped[next++] = {first, count};
      }
    }
    const uint64_t from = random() % (kGranules * 512), bytes = 1 + random() % 4000;
    bool all = from + bytes <= kGranules * 512;
    for (uint64_t i = from; all && i < from + bytes; ++i) all = owner[i / 512] != -1;
    REQUIRE(space->Contains(kBase + from, bytes) == all);
  }
}

TEST_CASE("lookups while the table changes see whole ranges") {
  MemoryBudget budget(kBudget);
  const auto space = MakeSpace(budget);
  REQUIRE(space->Map(kBase, 4096).ok());
  std::atomic<bool> lost{false};  // Catch works on one thread
  std::thread reader([&] {
    for (int i = 0; i < 20'000; ++i) {
      ptx::MemoryRange range;
      const bool found = space->state()->ranges().Find(kBase + 100, &range);
      if (!found || range.end != kBase + 4096) lost = true;
    }
  });
  for (int i = 0; i < 5'000; ++i) {
    REQUIRE(space->Map(kBase + 8192, 512).ok());
    REQUIRE(space->Unmap(kBase + 8192, 512).ok());
  }
  reader.join();
  CHECK_FALSE(lost);
}

TEST_CASE("Physical memory has one content at all its addresses, in all sessions") {
  MemoryBudget budget(kBudget);
  const auto file = *MemoryFile::Create(0);
  const auto first = MakeSpace(budget, 0), second = MakeSpace(budget, 1);
  auto memory = *SoftPhysicalMemory::Create(file, 2 * kPhysicalGranule, budget);
  CHECK(budget.used() == 2 * kPhysicalGranule);
  const uint64_t here = first->base() + (4 << 20), there = first->base() + (8 << 20);
  const uint64_t elsewhere = second->base();
  REQUIRE(first->MapPhysical(here, 2 * kPhysicalGranule, memory).ok());
  REQUIRE(first->MapPhysical(there, kPhysicalGranule, memory).ok());
  REQUIRE(second->MapPhysical(elsewhere, 2 * kPhysicalGranule, memory).ok());
  CHECK_FALSE(first->Contains(here, 1));
  REQUIRE(first->SetAccess(here, 2 * kPhysicalGranule, MemoryAccess::kReadWrite).ok());
  CHECK(first->Contains(here, 2 * kPhysicalGranule, true));
  CHECK_FALSE(first->Contains(there, 1));
  *At(here + 5) = 77;
  CHECK(*At(there + 5) == 77);
  CHECK(*At(elsewhere + 5) == 77);
  CHECK(budget.used() == 2 * kPhysicalGranule);

  REQUIRE(first->UnmapPhysical(here, 2 * kPhysicalGranule).ok());
  CHECK_FALSE(first->Contains(here, 1));
  CHECK(*At(here + 5) == 0);
  REQUIRE(first->UnmapPhysical(there, kPhysicalGranule).ok());
  memory.reset();
  CHECK(*At(elsewhere + 5) == 77);
  CHECK(budget.used() == 2 * kPhysicalGranule);
  REQUIRE(second->UnmapPhysical(elsewhere, 2 * kPhysicalGranule).ok());
  CHECK(budget.used() == 0);
}

TEST_CASE("Physical memory that a session has mapped does not end with the session") {
  MemoryBudget budget(kBudget);
  const auto file = *MemoryFile::Create(0);
  auto memory = *SoftPhysicalMemory::Create(file, kPhysicalGranule, budget);
  auto space = MakeSpace(budget);
  const uint64_t address = kBase + kPhysicalGranule;
  REQUIRE(space->Map(kBase, 4096).ok());
  REQUIRE(space->MapPhysical(address, kPhysicalGranule, memory).ok());
  REQUIRE(space->SetAccess(address, kPhysicalGranule, MemoryAccess::kReadWrite).ok());
  CHECK(budget.used() == kPhysicalGranule + 4096);
  space.reset();
  CHECK(budget.used() == kPhysicalGranule);
  memory.reset();
  CHECK(budget.used() == 0);
}

TEST_CASE("Physical memory is mapped more often than a process can have mappings") {
  constexpr int kMappings = 16384;  // at a time
  MemoryBudget budget(kBudget);
  const auto file = *MemoryFile::Create(0);
  const auto space = MakeSpace(budget);
  const auto memory = *SoftPhysicalMemory::Create(file, kPhysicalGranule, budget);
  bool well = true;
  for (int i = 0; i <= kMappings && well; ++i) {
    well = space->MapPhysical(kBase, kPhysicalGranule, memory).ok() &&
           space->UnmapPhysical(kBase, kPhysicalGranule).ok();
  }
  CHECK(well);
}

TEST_CASE("Access to physical memory is none, reading, or both, and neighbours are one range") {
  MemoryBudget budget(kBudget);
  const auto file = *MemoryFile::Create(0);
  const auto space = MakeSpace(budget);
  const auto memory = *SoftPhysicalMemory::Create(file, kPhysicalGranule, budget);
  const uint64_t left = kBase, right = kBase + kPhysicalGranule;
  REQUIRE(space->MapPhysical(left, kPhysicalGranule, memory).ok());
  REQUIRE(space->MapPhysical(right, kPhysicalGranule, memory).ok());
  ptx::MemoryRange range;
  CHECK_FALSE(space->state()->ranges().Find(left, &range));
  REQUIRE(space->SetAccess(left, kPhysicalGranule, MemoryAccess::kReadWrite).ok());
  REQUIRE(space->SetAccess(right, kPhysicalGranule, MemoryAccess::kReadWrite).ok());
  for (const uint64_t address : {left, right}) {
    REQUIRE(space->state()->ranges().Find(address, &range));
    CHECK(range.begin == left);
    CHECK(range.end == right + kPhysicalGranule);
    CHECK(range.writable);
  }
  REQUIRE(space->SetAccess(right, kPhysicalGranule, MemoryAccess::kRead).ok());
  CHECK(space->Contains(left, 2 * kPhysicalGranule));
  CHECK_FALSE(space->Contains(left, 2 * kPhysicalGranule, true));
  REQUIRE(space->state()->ranges().Find(right, &range));
  CHECK(range.begin == right);
  CHECK_FALSE(range.writable);
  REQUIRE(space->SetAccess(right, kPhysicalGranule, MemoryAccess::kNone).ok());
  CHECK_FALSE(space->Contains(right, 1));
}

TEST_CASE("Physical memory is mapped only over free addresses, and unmapped as it was mapped") {
  MemoryBudget budget(kBudget);
  const auto file = *MemoryFile::Create(0);
  const auto space = MakeSpace(budget);
  const auto memory = *SoftPhysicalMemory::Create(file, kPhysicalGranule, budget);
  REQUIRE(space->Map(kBase, 512).ok());
  CHECK_FALSE(space->MapPhysical(kBase, kPhysicalGranule, memory).ok());
  const uint64_t address = kBase + kPhysicalGranule;
  CHECK_FALSE(space->MapPhysical(address + 512, kPhysicalGranule, memory).ok());
  CHECK_FALSE(space->MapPhysical(address, 2 * kPhysicalGranule, memory).ok());
  CHECK_FALSE(space->MapPhysical(kBase - kPhysicalGranule, kPhysicalGranule, memory).ok());
  REQUIRE(space->MapPhysical(address, kPhysicalGranule, memory).ok());
  CHECK_FALSE(space->MapPhysical(address, kPhysicalGranule, memory).ok());
  CHECK_FALSE(space->Map(address, 512).ok());
  CHECK_FALSE(space->SetAccess(address, 4096, MemoryAccess::kReadWrite).ok());
  CHECK_FALSE(space->SetAccess(kBase, 512, MemoryAccess::kNone).ok());
  CHECK_FALSE(space->UnmapPhysical(address, 4096).ok());
  CHECK_FALSE(space->Unmap(address, kPhysicalGranule).ok());
  REQUIRE(space->UnmapPhysical(address, kPhysicalGranule).ok());
  CHECK_FALSE(space->UnmapPhysical(address, kPhysicalGranule).ok());
  CHECK_FALSE(SoftPhysicalMemory::Create(file, 4096, budget).ok());
  CHECK_FALSE(SoftPhysicalMemory::Create(file, 2 * kBudget, budget).ok());
}

TEST_CASE("Another session can map the memory behind an ordinary allocation") {
  MemoryBudget budget(kBudget);
  auto first = MakeSpace(budget, 0);
  const auto second = MakeSpace(budget, 1);
  REQUIRE(first->Map(kBase + 512, 8192).ok());
  *At(kBase + 600) = 9;
  auto behind = *first->Behind(kBase + 600);
  CHECK(behind.begin == kBase);
  CHECK(behind.memory->bytes() == 12288);
  CHECK_FALSE(first->Behind(kBase + 100).ok());
  REQUIRE(second->MapPhysical(second->base(), behind.memory->bytes(), behind.memory).ok());
  REQUIRE(second->SetAccess(second->base(), behind.memory->bytes(), MemoryAccess::kReadWrite).ok());
  CHECK(*At(second->base() + 600) == 9);
  behind = {};
  first.reset();
  CHECK(*At(second->base() + 600) == 9);
  CHECK(budget.used() == 0);
}

}  // namespace detshare::soft
