#include "client_shim/transport/staging.h"

#include <catch2/catch.hpp>
#include <set>
#include <thread>
#include <vector>

#include "proto/wire/common.h"
#include "tests/client_shim/transport/fake_region.h"

namespace detshare::shim {
namespace {

TEST_CASE("A fence is reused when its last value has arrived, and its values go on") {
  FakeRegion region(2 * kMaxRecordBytes, 8, 2);
  FenceAllocator fences(region.fences(), region.fence_count());
  const OwnedFence first = fences.Take();
  const OwnedFence second = fences.Take();
  CHECK(first.index != second.index);
  CHECK(fences.Take().index == kNoFence);
  fences.Give(first.index, 5);
  CHECK(fences.Take().index == kNoFence);
  region.fences()[first.index].store(5);
  const OwnedFence again = fences.Take();
  CHECK(again.index == first.index);
  CHECK(again.value == 5);
}

TEST_CASE("Owners that can do without a fence leave an eighth of them to others") {
  FakeRegion region(2 * kMaxRecordBytes, 8, 16);
  FenceAllocator fences(region.fences(), region.fence_count());
  std::vector<OwnedFence> spare;
  for (int i = 0; i < 14; ++i) {
    spare.push_back(fences.TakeSpare());
    REQUIRE(spare.back().index != kNoFence);
  }
  CHECK(fences.TakeSpare().index == kNoFence);
  CHECK(fences.Take().index != kNoFence);
  // One that is on its way becomes spare when it arrives.
  fences.Give(spare[0].index, 3);
  fences.Give(spare[1].index, 0);
  CHECK(fences.TakeSpare().index == kNoFence);
  region.fences()[spare[0].index].store(3);
  CHECK(fences.TakeSpare().index != kNoFence);
  CHECK(fences.TakeSpare().index == kNoFence);
  CHECK(fences.Take().index != kNoFence);
  CHECK(fences.Take().index != kNoFence);
  CHECK(fences.Take().index == kNoFence);
}

TEST_CASE("Staging chunks do not overlap and lie inside the area") {
  FakeRegion region(2 * kMaxRecordBytes, 8, 256, 4 << 20);
  FenceAllocator fences(region.fences(), region.fence_count());
  Staging staging(region.staging(), region.staging_bytes(), fences, region.header().closed);
  std::set<uint64_t> seen;
  uint64_t total = 0;
  for (const bool large : {false, true}) {
    while (StagingChunk* chunk = staging.TryAcquire(large)) {
      CHECK(chunk->offset + chunk->bytes <= region.staging_bytes());
      CHECK(chunk->memory == region.staging() + chunk->offset);
      for (uint64_t page = chunk->offset; page < chunk->offset + chunk->bytes; page += kPageBytes) {
        CHECK(seen.insert(page).second);
      }
      total += chunk->bytes;
    }
  }
  CHECK(total >= region.staging_bytes() / 2);
}

TEST_CASE("A chunk is reused when the GPU has finished with it, not when it is released") {
  FakeRegion region(2 * kMaxRecordBytes, 8, 256, Staging::kSmallBytes);
  FenceAllocator fences(region.fences(), region.fence_count());
  Staging staging(region.staging(), region.staging_bytes(), fences, region.header().closed);
  StagingChunk* chunk = staging.Acquire(false);
  REQUIRE(chunk != nullptr);
  const wire::Signal signal = chunk->NextSignal();
  staging.Release(chunk);
  CHECK(staging.TryAcquire(false) == nullptr);
  region.fences()[signal.index].store(signal.value);
  CHECK(staging.TryAcquire(false) == chunk);
}

TEST_CASE("Without large chunks large copies get small ones, and a closed session gets none") {
  FakeRegion region(2 * kMaxRecordBytes, 8, 256, Staging::kSmallBytes);
  FenceAllocator fences(region.fences(), region.fence_count());
  Staging staging(region.staging(), region.staging_bytes(), fences, region.header().closed);
  CHECK(staging.Acquire(true) != nullptr);
  region.header().closed.store(1);
  CHECK(staging.Acquire(true) == nullptr);
}

TEST_CASE("Threads that share few chunks never hold the same one") {
  FakeRegion region(2 * kMaxRecordBytes, 8, 256, 4 * Staging::kSmallBytes);
  FenceAllocator fences(region.fences(), region.fence_count());
  Staging staging(region.staging(), region.staging_bytes(), fences, region.header().closed);
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 1; t <= 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 2000; ++i) {
        StagingChunk* chunk = staging.Acquire(false);
        memset(chunk->memory, t, 64);
        for (int k = 0; k < 64; ++k) wrong += chunk->memory[k] != static_cast<std::byte>(t);
        const wire::Signal signal = chunk->NextSignal();
        region.fences()[signal.index].store(signal.value, std::memory_order_release);
        staging.Release(chunk);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == 0);
}

TEST_CASE("A fence that was given back goes to one user only") {
  FakeRegion region(2 * kMaxRecordBytes, 8, 2);
  FenceAllocator fences(region.fences(), region.fence_count());
  const OwnedFence first = fences.Take();
  fences.Take();
  fences.Give(first.index, 5);
  region.fences()[first.index].store(5);
  CHECK(fences.Take().index == first.index);
  CHECK(fences.Take().index == kNoFence);
  fences.Give(kNoFence, 0);
  CHECK(fences.Take().index == kNoFence);
}

TEST_CASE("Released chunks keep their size") {
  FakeRegion region(2 * kMaxRecordBytes, 8, 256, 4 << 20);
  FenceAllocator fences(region.fences(), region.fence_count());
  Staging staging(region.staging(), region.staging_bytes(), fences, region.header().closed);
  for (const bool large : {true, false}) {
    std::set<StagingChunk*> chunks;
    while (StagingChunk* chunk = staging.TryAcquire(large)) {
      CHECK(chunk->bytes == (large ? staging.large_bytes() : Staging::kSmallBytes));
      chunks.insert(chunk);
    }
    CHECK(chunks.size() > 1);
    for (StagingChunk* chunk : chunks) staging.Release(chunk);
    size_t again = 0;
    while (StagingChunk* chunk = staging.TryAcquire(large)) {
      CHECK(chunks.contains(chunk));
      ++again;
    }
    CHECK(again == chunks.size());
    for (StagingChunk* chunk : chunks) staging.Release(chunk);
  }
}

}  // namespace
}  // namespace detshare::shim
