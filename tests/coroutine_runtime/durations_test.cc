#include "coroutine_runtime/durations.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <memory>
#include <new>
#include <thread>
#include <vector>

namespace {
thread_local uint64_t t_allocations = 0;
}
void* operator new(size_t bytes) {
  ++t_allocations;
  if (void* memory = std::malloc(bytes)) return memory;
  throw std::bad_alloc();
}
void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  ++t_allocations;
  return std::malloc(bytes);
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace detshare {
namespace {

using policy::kMicrosecond;

constexpr int kSms = 132;
const OperationKey kGemm{11, 1};
const OperationTraits kWide{4096, 0};

TEST_CASE("The estimate of an operation that never ran is a guess") {
  DurationTable table(kSms);
  DurationCache cache(table);
  const DurationCache::Lookup lookup = cache.Look(kGemm, kWide, 0);
  CHECK_FALSE(lookup.known);
  CHECK(lookup.estimate == 30 * kMicrosecond);
  CHECK(lookup.sample);
  CHECK(cache.Look({12, 1}, {4096, 7000}, 0).estimate == 7000);
  // Work for all SMs takes longer on few SMs. Work for few SMs does not.
  CHECK(cache.Look(kGemm, kWide, 1).estimate == 60 * kMicrosecond);
  CHECK(cache.Look({13, 1}, {8, 0}, 1).estimate == 30 * kMicrosecond);
  CHECK(cache.Look({14, 1}, {0, 0}, 4).estimate == 30 * kMicrosecond);
}

TEST_CASE("The first occurrences are sampled, later ones rarely") {
  DurationTable table(kSms);
  DurationCache cache(table);
  int sampled = 0;
  for (int i = 0; i < 10'000; ++i) {
    const DurationCache::Lookup lookup = cache.Look(kGemm, kWide, 0);
    if (lookup.sample) {
      ++sampled;
      lookup.operation->Add(0, 50 * kMicrosecond, false);
    }
    if (i == 4) CHECK(sampled == 4);
  }
  CHECK(sampled >= 4 + 9);
  CHECK(sampled <= 4 + 10);
  // A size that is new is sampled at once.
  CHECK(cache.Look(kGemm, kWide, 1).sample);
}

TEST_CASE("Missing samples are requested again, but not at every occurrence") {
  DurationTable table(kSms);
  DurationCache cache(table);
  int sampled = 0;
  for (int i = 0; i < 5'000; ++i) sampled += cache.Look(kGemm, kWide, 0).sample ? 1 : 0;
  CHECK(sampled > 10);
  CHECK(sampled < 40);
}

TEST_CASE("The estimate is a low quantile of the latest samples") {
  DurationTable table(kSms);
  const std::shared_ptr<OperationDurations> gemm = table.FindOrAdd(kGemm, kWide);
  for (const int us : {50, 52, 51, 400, 53, 900, 50, 51}) gemm->Add(0, us * kMicrosecond, false);
  CHECK(gemm->Estimate(0) >= 50 * kMicrosecond);
  CHECK(gemm->Estimate(0) <= 51 * kMicrosecond);
  // Its data has grown permanently.
  for (int i = 0; i < 8; ++i) gemm->Add(0, 90 * kMicrosecond, false);
  CHECK(gemm->Estimate(0) == 90 * kMicrosecond);
}

TEST_CASE("Samples from beside neighbours are upper bounds") {
  DurationTable table(kSms);
  const std::shared_ptr<OperationDurations> gemm = table.FindOrAdd(kGemm, kWide);
  gemm->Add(0, 300 * kMicrosecond, true);
  CHECK(gemm->Estimate(0) == 300 * kMicrosecond);
  CHECK(gemm->Wanted(0));
  gemm->Add(0, 100 * kMicrosecond, false);
  CHECK(gemm->Estimate(0) == 100 * kMicrosecond);
  for (int i = 0; i < 20; ++i) gemm->Add(0, 300 * kMicrosecond, true);
  CHECK(gemm->Estimate(0) == 100 * kMicrosecond);
  for (int i = 0; i < 20; ++i) gemm->Add(0, 80 * kMicrosecond, true);
  CHECK(gemm->Estimate(0) == 80 * kMicrosecond);
}

TEST_CASE("A kernel's durations on fewer SMs show what it waits for") {
  DurationTable table(kSms);
  const std::shared_ptr<OperationDurations> matmul = table.FindOrAdd({1, 0}, kWide);
  CHECK(matmul->memory_bound() < 0);
  matmul->Add(0, 100 * kMicrosecond, false);
  CHECK(matmul->memory_bound() < 0);
  matmul->Add(1, 200 * kMicrosecond, false);
  CHECK(matmul->memory_bound() < 0.05);
  CHECK(matmul->memory_bound() >= 0);
  // Sizes that were not measured follow.
  CHECK(matmul->Estimate(2) > 350 * kMicrosecond);
  CHECK(matmul->Estimate(2) < 450 * kMicrosecond);

  const std::shared_ptr<OperationDurations> add = table.FindOrAdd({2, 0}, kWide);
  add->Add(0, 100 * kMicrosecond, false);
  add->Add(1, 103 * kMicrosecond, false);
  CHECK(add->memory_bound() > 0.9);
  CHECK(add->Estimate(2) < 120 * kMicrosecond);

  SECTION("but not when its grid is small anyway") {
    const std::shared_ptr<OperationDurations> small = table.FindOrAdd({3, 0}, {16, 0});
    small->Add(0, 100 * kMicrosecond, false);
    small->Add(1, 100 * kMicrosecond, false);
    CHECK(small->memory_bound() < 0);
  }
  SECTION("and not by bounds") {
    const std::shared_ptr<OperationDurations> busy = table.FindOrAdd({4, 0}, kWide);
    busy->Add(0, 100 * kMicrosecond, true);
    busy->Add(1, 100 * kMicrosecond, true);
    CHECK(busy->memory_bound() < 0);
  }
}

TEST_CASE("Partitions are distinguished by their share of the SMs") {
  CHECK(SizeClassOf(132, kSms) == 0);
  CHECK(SizeClassOf(0, kSms) == 0);
  CHECK(SizeClassOf(120, kSms) == 0);
  CHECK(SizeClassOf(112, kSms) == 1);
  CHECK(SizeClassOf(64, kSms) == 1);
  CHECK(SizeClassOf(32, kSms) == 2);
  CHECK(SizeClassOf(16, kSms) == 3);
  CHECK(SizeClassOf(8, kSms) == 4);
  CHECK(SizeClassOf(1, 1) == 0);
}

TEST_CASE("Invalid values are no samples") {
  DurationTable table(kSms);
  const std::shared_ptr<OperationDurations> gemm = table.FindOrAdd(kGemm, kWide);
  for (const Nanoseconds time : {Nanoseconds{0}, Nanoseconds{-5}, policy::kForever})
    gemm->Add(0, time, false);
  CHECK_FALSE(gemm->known());
}

TEST_CASE("Sessions learn from each other, and recent entries are found without allocating") {
  DurationTable table(kSms);
  DurationCache one(table), other(table);
  one.Look(kGemm, kWide, 0).operation->Add(0, 44 * kMicrosecond, false);
  CHECK(other.Look(kGemm, kWide, 0).estimate == 44 * kMicrosecond);
  const uint64_t before = t_allocations;
  for (int i = 0; i < 100; ++i) one.Look(kGemm, kWide, 0);
  CHECK(t_allocations == before);
  CHECK(table.size() == 1);
}

TEST_CASE("Keys that share a place in the cache keep their own estimates") {
  DurationTable table(kSms);
  DurationCache cache(table);
  for (uint64_t i = 1; i <= 3000; ++i)
    cache.Look({i, i}, kWide, 0).operation->Add(0, static_cast<Nanoseconds>(i * 1024), false);
  for (uint64_t i = 1; i <= 3000; ++i)
    CHECK(cache.Look({i, i}, kWide, 0).estimate == static_cast<Nanoseconds>(i * 1024));
}

TEST_CASE("Shapes and kernels that differ in anything have different keys") {
  LaunchShape shape;
  const uint64_t plain = ShapeOf(shape);
  LaunchShape grid = shape, block = shape, shared = shape, cluster = shape;
  grid.grid = {1, 2, 1};
  block.block = {2, 1, 1};
  shared.dynamic_shared_bytes = 1;
  cluster.cluster = {1, 1, 1};
  for (const LaunchShape& other : {grid, block, shared, cluster}) CHECK(ShapeOf(other) != plain);
  const std::byte image[] = {std::byte{1}, std::byte{2}};
  CHECK(KernelCode(image, "a") != KernelCode(image, "b"));
  CHECK(KernelCode({image, 1}, "a") != KernelCode(image, "a"));
  CHECK(TransferKey(TransferKind::kFill, 4096) == TransferKey(TransferKind::kFill, 8191));
  CHECK(TransferKey(TransferKind::kFill, 4096) != TransferKey(TransferKind::kFill, 8192));
  CHECK(TransferKey(TransferKind::kFill, 4096) != TransferKey(TransferKind::kInside, 4096));
}

// Keys of kernels are hashes.
OperationKey KeyOf(uint64_t number) { return {number * 0x9E3779B97F4A7C15, 1}; }

// Operations of which each occurs once.
void Flood(DurationTable& table, uint64_t count) {
  static uint64_t next = 1 << 20;
  for (uint64_t i = 0; i < count; ++i) table.FindOrAdd(KeyOf(++next), kWide);
}

TEST_CASE("A full table forgets what nobody uses, and learns what is new") {
  DurationTable table(kSms);
  DurationCache cache(table);
  cache.Look(kGemm, kWide, 0).operation->Add(0, 44 * kMicrosecond, false);
  const std::shared_ptr<OperationDurations> used = table.FindOrAdd(kGemm, kWide);
  for (int i = 0; i < 20; ++i) {
    Flood(table, 10'000);
    cache.Look(kGemm, kWide, 0);
  }
  CHECK(table.size() == DurationTable::kMaxOperations);
  CHECK(table.FindOrAdd(kGemm, kWide) == used);
  const OperationKey late{7, 7};
  CHECK_FALSE(table.FindOrAdd(late, kWide)->known());
  table.FindOrAdd(late, kWide)->Add(0, 50'000 * kMicrosecond, false);
  CHECK(table.FindOrAdd(late, kWide)->Estimate(0) == 50'000 * kMicrosecond);
}

TEST_CASE("Operations that are all in use make room, too") {
  DurationTable table(kSms);
  for (int twice = 0; twice < 2; ++twice) {
    for (uint64_t i = 0; i < DurationTable::kMaxOperations; ++i) table.FindOrAdd(KeyOf(i), kWide);
  }
  table.FindOrAdd({1, 1}, kWide)->Add(0, 1000, false);
  CHECK(table.FindOrAdd({1, 1}, kWide)->Estimate(0) == 1000);
  CHECK(table.size() == DurationTable::kMaxOperations);
}

TEST_CASE("A session brings back what the table has forgotten about its operation") {
  DurationTable table(kSms);
  DurationCache one(table), other(table);
  for (DurationCache* const cache : {&one, &other})
    cache->Look(kGemm, kWide, 0).operation->Add(0, 44 * kMicrosecond, false);
  const auto kept = [&] {
    const std::vector<OperationDurations::Record> records = table.Records();
    return std::any_of(records.begin(), records.end(),
                       [](const auto& record) { return record.key == kGemm; });
  };
  Flood(table, 2 * DurationTable::kMaxOperations);
  CHECK_FALSE(kept());
  const uint64_t changes = table.changes();
  const DurationCache::Lookup lookup = one.Look(kGemm, kWide, 0);
  CHECK(lookup.estimate == 44 * kMicrosecond);
  CHECK(kept());
  CHECK(table.changes() > changes);
  CHECK(other.Look(kGemm, kWide, 0).operation == lookup.operation);
  const uint64_t before = t_allocations;
  for (int i = 0; i < 100; ++i) one.Look(kGemm, kWide, 0);
  CHECK(t_allocations == before);
  // What was learned anew meanwhile counts.
  Flood(table, 2 * DurationTable::kMaxOperations);
  table.FindOrAdd(kGemm, kWide)->Add(0, 60 * kMicrosecond, false);
  CHECK(one.Look(kGemm, kWide, 0).estimate == 60 * kMicrosecond);
  CHECK(table.size() == DurationTable::kMaxOperations);
}

TEST_CASE(
    "A table that is full from the beginning learns, and takes over what was used more recently") {
  DurationTable table(kSms);
  std::vector<OperationDurations::Record> old;
  for (uint64_t i = 0; i < DurationTable::kMaxOperations; ++i)
    old.push_back({KeyOf(i), 16, /*age=*/5, {100.F}});
  CHECK(table.Restore(old) == old.size());
  const OperationKey present = KeyOf(0), older{1, 2}, recent{2, 2}, late{3, 2};
  table.FindOrAdd(present, kWide);
  const OperationDurations::Record records[] = {{older, 16, 7, {200.F}}, {recent, 16, 0, {300.F}}};
  CHECK(table.Restore(records) == 1);
  CHECK(table.FindOrAdd(recent, kWide)->Estimate(0) == 300);
  CHECK(table.FindOrAdd(present, kWide)->Estimate(0) == 100);
  table.FindOrAdd(late, kWide)->Add(0, 9000, false);
  CHECK(table.FindOrAdd(late, kWide)->Estimate(0) == 9000);
  CHECK(table.size() == DurationTable::kMaxOperations);
}

TEST_CASE("Several threads use operations while the table forgets them") {
  DurationTable table(kSms);
  Flood(table, DurationTable::kMaxOperations);
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  std::array<int, 3> wrong{};
  for (int& bad : wrong) {
    threads.emplace_back([&] {
      DurationCache cache(table);
      while (!stop.load()) {
        for (uint64_t i = 1; i <= 300; ++i) {
          const DurationCache::Lookup lookup = cache.Look(KeyOf(i), kWide, 0);
          const auto own = static_cast<Nanoseconds>(i * 1024);
          if (lookup.known && lookup.estimate != own) ++bad;
          if (lookup.sample) lookup.operation->Add(0, own, false);
        }
      }
    });
  }
  Flood(table, 2 * DurationTable::kMaxOperations);
  stop = true;
  for (std::thread& thread : threads) thread.join();
  for (const int bad : wrong) CHECK(bad == 0);
  CHECK(table.size() == DurationTable::kMaxOperations);
}

TEST_CASE("Several threads may learn about one operation") {
  DurationTable table(kSms);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&table, t] {
      DurationCache cache(table);
      for (int i = 0; i < 2000; ++i) {
        const DurationCache::Lookup lookup =
            cache.Look({static_cast<uint64_t>(i % 7), 3}, kWide, t);
        lookup.operation->Add(t, 1000 * (t + 1), false);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (uint64_t i = 0; i < 7; ++i) CHECK(table.FindOrAdd({i, 3}, kWide)->Estimate(0) == 1000);
}

TEST_CASE("Launches of one kernel and shape are distinguished by the sizes in their parameters") {
  DurationTable table(132);
  DurationCache cache(table);
  const OperationTraits small{132, 0, 77}, large{132, 0, 78};
  for (int i = 0; i < 4; ++i) {
    cache.Look(kGemm, small, 0).operation->Add(0, 20 * kMicrosecond, false);
    cache.Look(kGemm, large, 0).operation->Add(0, 1000 * kMicrosecond, false);
  }
  CHECK(cache.Look(kGemm, small, 0).estimate == 20 * kMicrosecond);
  CHECK(cache.Look(kGemm, large, 0).estimate == 1000 * kMicrosecond);
}

TEST_CASE("A kernel with different parameters every time is known by its shape") {
  DurationTable table(132);
  DurationCache cache(table);
  for (uint64_t i = 1; i <= 1000; ++i) {
    cache.Look(kGemm, {132, 0, i}, 0).operation->Add(0, 50 * kMicrosecond, false);
  }
  CHECK(table.size() < 100);
  const DurationCache::Lookup lookup = cache.Look(kGemm, {132, 0, 12345}, 0);
  CHECK(lookup.known);
  CHECK(lookup.estimate == 50 * kMicrosecond);
}

TEST_CASE("The key of a launch's parameters does not depend on its addresses") {
  const uint64_t base = uint64_t{1} << 40, bytes = uint64_t{1} << 40;
  const auto content = [&](uint64_t address, uint64_t size) {
    const uint64_t words[] = {address, size, address + 512};
    return ContentOf(absl::MakeConstSpan(reinterpret_cast<const std::byte*>(words), sizeof words),
                     base, bytes);
  };
  CHECK(content(base, 4096) == content(base + 65536, 4096));
  CHECK(content(base, 4096) != content(base, 8192));
  CHECK(content(base - 1024, 4096) != content(base - 2048, 4096));
  CHECK(ContentOf({}, base, bytes) != 0);
}

TEST_CASE("Between two measured sizes that are equally near, the larger one gives the estimate") {
  DurationTable table(kSms);
  const std::shared_ptr<OperationDurations> operation = table.FindOrAdd(kGemm, kWide);
  operation->Add(0, 100 * kMicrosecond, false);
  // It takes longer on a quarter of the SMs than four times as long.
  operation->Add(2, 600 * kMicrosecond, false);
  CHECK(operation->Estimate(1) == 200 * kMicrosecond);
}

}  // namespace
}  // namespace detshare
