#include "coroutine_runtime/device_memory.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <optional>
#include <random>
#include <vector>

#include "tests/coroutine_runtime/fake_device.h"
#include "tests/units.h"

namespace detshare {
namespace {

constexpr ContextId kContext = 1;
constexpr DeviceAddress kBase = 1ull << 40;
constexpr uint64_t kGranule = 2 << 20;

struct Session {
  FakeDevice device;
  QueuePool pool{device};
  std::unique_ptr<GpuCoroutine> coroutine;
  std::unique_ptr<AddressSpace> space;
  std::unique_ptr<DeviceMemory> memory;
  Executor executor;  // destroyed first
  Parking parking{executor};
  FakeKernel kernel;

  explicit Session(uint64_t granule = kGranule, uint64_t card = 1ull << 40,
                   uint64_t limit = UINT64_MAX)
      : device(granule, card), space(*device.CreateAddressSpace(kBase, 1ull << 36)) {
    coroutine = *GpuCoroutine::Create(device, *space, pool, parking);
    memory = std::make_unique<DeviceMemory>(*coroutine, limit);
    for (StreamId stream : {1, 2}) {
      REQUIRE(coroutine->CreateStream(stream, kContext, {.non_blocking = true}).ok());
    }
  }
  ~Session() { device.RunAll(); }
  FakeAddressSpace& fake_space() { return static_cast<FakeAddressSpace&>(*space); }

  template <typename T>
  static Task<void> Keep(Task<T> task, std::shared_ptr<std::optional<T>> result) {
    result->emplace(co_await task);
  }
  template <typename T>
  std::shared_ptr<std::optional<T>> Start(Task<T> task) {
    auto result = std::make_shared<std::optional<T>>();
    executor.Spawn(Keep(std::move(task), result));
    return result;
  }
  // Runs the task and the device until the task ends.
  template <typename T>
  T Finish(Task<T> task) {
    auto result = Start(std::move(task));
    while (!result->has_value()) {
      if (executor.Poll() + device.RunAll() == 0) FAIL("the task does not end");
    }
    return **result;
  }
  DeviceAddress Allocate(uint64_t bytes, ContextId context = kContext) {
    return Finish(memory->Allocate(context, bytes)).value();
  }
  absl::Status Free(DeviceAddress address) { return Finish(memory->Free(address)); }
  void Work(StreamId stream) { REQUIRE(coroutine->Launch(stream, kernel, {}, {}).ok()); }
};

TEST_CASE("Small allocations share a granule and large ones are mapped exactly") {
  Session session;
  CHECK(session.Allocate(1) == kBase);
  CHECK(session.Allocate(513) == kBase + 512);
  CHECK(session.Allocate(100) == kBase + 1536);
  CHECK(session.fake_space().mapped == std::map<DeviceAddress, uint64_t>{{kBase, kGranule}});
  const DeviceAddress large = session.Allocate(5 * kMiB);
  CHECK(large == kBase + kGranule);
  CHECK(session.fake_space().mapped[large] == 6 * kMiB);
  CHECK(session.memory->used() == 512 + 1024 + 512 + 6 * kMiB);
  CHECK(session.memory->mapped() == 8 * kMiB);
  CHECK(session.Free(large).ok());
  CHECK(session.fake_space().mapped.size() == 1);
  CHECK(session.Allocate(2 * kMiB) == large);
}

TEST_CASE("With granules of 512 bytes every allocation has its own mapping") {
  Session session(512);
  const DeviceAddress a = session.Allocate(100);
  const DeviceAddress b = session.Allocate(1000);
  CHECK(session.fake_space().mapped == std::map<DeviceAddress, uint64_t>{{a, 512}, {b, 1024}});
  CHECK(session.Free(a).ok());
  CHECK(session.fake_space().mapped == std::map<DeviceAddress, uint64_t>{{b, 1024}});
}

TEST_CASE("Bad sizes, bad addresses and double frees are refused") {
  Session session;
  CHECK(CudaResultOf(session.Finish(session.memory->Allocate(kContext, 0)).status()) ==
        kCudaErrorInvalidValue);
  CHECK(CudaResultOf(session.Finish(session.memory->Allocate(kContext, UINT64_MAX)).status()) ==
        kCudaErrorOutOfMemory);
  const DeviceAddress a = session.Allocate(1000);
  CHECK(CudaResultOf(session.Free(a + 512)) == kCudaErrorInvalidValue);
  CHECK(CudaResultOf(session.Free(0)) == kCudaErrorInvalidValue);
  session.Work(1);
  auto first = session.Start(session.memory->Free(a));
  CHECK_FALSE(first->has_value());
  CHECK(CudaResultOf(session.Free(a)) == kCudaErrorInvalidValue);
  session.device.RunAll();
  session.executor.Poll();
  REQUIRE(first->has_value());
  CHECK((*first)->ok());
  CHECK(CudaResultOf(session.Free(a)) == kCudaErrorInvalidValue);
  CHECK(CudaResultOf(session.memory->FreeAsync(a, 1)) == kCudaErrorInvalidValue);
}

TEST_CASE("A full card and the session's limit are out of memory, and nothing is lost") {
  Session session(kGranule, 10 * kMiB, 9 * kMiB);
  const auto out_of_memory = [&](uint64_t bytes) {
    return CudaResultOf(session.Finish(session.memory->Allocate(kContext, bytes)).status()) ==
           kCudaErrorOutOfMemory;
  };
  CHECK(out_of_memory(10 * kMiB));  // the session's limit
  const DeviceAddress a = session.Allocate(8 * kMiB);
  session.device.memory_left = 0;  // another session has the rest
  CHECK(out_of_memory(1000));
  CHECK(session.Free(a).ok());
  CHECK(session.memory->used() == 0);
  CHECK(session.Allocate(8 * kMiB) == a);
}

TEST_CASE("Find and the accounts know the owner of an address") {
  Session session;
  const DeviceAddress a = session.Allocate(700, 1);
  const DeviceAddress b = session.Allocate(4 * kMiB, 2);
  CHECK(session.memory->Find(a + 699)->address == a);
  CHECK(session.memory->Find(a + 699)->bytes == 700);
  CHECK_FALSE(session.memory->Find(a + 700));
  CHECK(session.memory->Find(b + 4 * kMiB - 1)->context == 2);
  CHECK_FALSE(session.memory->Find(b + 4 * kMiB));
  CHECK_FALSE(session.memory->Find(kBase - 1));
  CHECK(session.memory->used_by(1) == 1024);
  CHECK(session.memory->used_by(2) == 4 * kMiB);
  session.memory->FreeContext(2);
  CHECK(session.memory->used_by(2) == 0);
  CHECK(session.memory->Find(a));
  CHECK_FALSE(session.memory->Find(b));
}

TEST_CASE("Freeing waits for the session's work") {
  Session session;
  const DeviceAddress a = session.Allocate(4 * kMiB);
  session.Work(1);
  session.Work(2);
  auto freed = session.Start(session.memory->Free(a));
  session.executor.Poll();
  CHECK_FALSE(freed->has_value());
  CHECK(session.fake_space().mapped.size() == 1);
  session.device.RunAll();
  session.executor.Poll();
  REQUIRE(freed->has_value());
  CHECK((*freed)->ok());
  CHECK(session.fake_space().mapped.empty());
}

TEST_CASE("Memory freed on a stream is reused at once there, and behind its point elsewhere") {
  Session session;
  const DeviceAddress a = session.Allocate(4 * kMiB);
  session.Work(1);
  REQUIRE(session.memory->FreeAsync(a, 1).ok());
  // On the same stream there is no wait.
  auto again = session.Start(session.memory->AllocateAsync(kContext, 4 * kMiB, 1));
  REQUIRE(again->has_value());
  CHECK((*again)->value() == a);
  session.Work(1);
  REQUIRE(session.memory->FreeAsync(a, 1).ok());
  // On another stream, its next operation comes after the free.
  again = session.Start(session.memory->AllocateAsync(kContext, 4 * kMiB, 2));
  REQUIRE(again->has_value());
  CHECK((*again)->value() == a);
  session.Work(2);
  CHECK(session.device.operations.back().before == History{0, 1});
  REQUIRE(session.memory->FreeAsync(a, 2).ok());
  // Without a stream, the allocation waits for the free.
  again = session.Start(session.memory->Allocate(kContext, 4 * kMiB));
  CHECK_FALSE(again->has_value());
  session.device.RunAll();
  session.executor.Poll();
  REQUIRE(again->has_value());
  CHECK((*again)->value() == a);
  CHECK(session.fake_space().maps == 1);
}

TEST_CASE("A free mapping with other borders is unmapped when its point is reached") {
  Session session;
  const DeviceAddress a = session.Allocate(4 * kMiB);
  session.Work(1);
  REQUIRE(session.memory->FreeAsync(a, 1).ok());
  auto smaller = session.Start(session.memory->AllocateAsync(kContext, 2 * kMiB, 1));
  auto second = session.Start(session.memory->AllocateAsync(kContext, 2 * kMiB, 2));
  CHECK_FALSE(smaller->has_value());
  CHECK_FALSE(second->has_value());
  session.device.RunAll();
  session.executor.Poll();
  REQUIRE(smaller->has_value());
  REQUIRE(second->has_value());
  CHECK((*smaller)->value() == a);
  CHECK((*second)->value() == a + 2 * kMiB);
}

TEST_CASE("Kept memory makes room when the card is full") {
  Session session(kGranule, 8 * kMiB);
  const DeviceAddress a = session.Allocate(2 * kMiB);
  const DeviceAddress b = session.Allocate(6 * kMiB);
  session.Work(1);
  REQUIRE(session.memory->FreeAsync(b, 1).ok());
  REQUIRE(session.memory->FreeAsync(a, 1).ok());
  // 8 MiB from the lowest address, over both old mappings.
  CHECK(session.Finish(session.memory->Allocate(kContext, 8 * kMiB)).value() == a);
  CHECK(session.fake_space().mapped == std::map<DeviceAddress, uint64_t>{{a, 8 * kMiB}});
}

TEST_CASE("Free memory above the threshold is unmapped when its point is reached") {
  Session session;
  session.memory->set_quick_reuse(4 * kMiB);
  const DeviceAddress a = session.Allocate(4 * kMiB);
  const DeviceAddress b = session.Allocate(4 * kMiB);
  session.Work(1);
  REQUIRE(session.memory->FreeAsync(a, 1).ok());
  REQUIRE(session.memory->FreeAsync(b, 1).ok());
  CHECK(session.memory->mapped() == 8 * kMiB);
  session.device.RunAll();
  session.executor.Poll();
  CHECK(session.memory->mapped() == 4 * kMiB);
  session.memory->Trim(0);
  CHECK(session.memory->mapped() == 0);
}

constexpr PoolId kPool = 7;

DeviceAddress AllocateFrom(Session& session, PoolId pool, uint64_t bytes) {
  return session.Finish(session.memory->AllocateAsync(kContext, bytes, 1, pool)).value();
}
uint64_t Reserved(Session& session, PoolId pool) {
  return session.memory->UseOf(pool).value().reserved;
}

TEST_CASE(
    "A pool has reserved its allocations' granules, and keeps as much as its threshold allows") {
  Session session;
  REQUIRE(session.memory->CreatePool(kPool, 0).ok());
  const DeviceAddress a = AllocateFrom(session, kPool, 4 * kMiB);
  const DeviceAddress small = AllocateFrom(session, kPool, 100);
  CHECK(Reserved(session, kPool) == 6 * kMiB);
  CHECK(Reserved(session, DeviceMemory::kDefaultPool) == 0);

  // Without a threshold nothing is kept after the earlier work is complete.
  session.Work(1);
  REQUIRE(session.memory->FreeAsync(a, 1).ok());
  CHECK(Reserved(session, kPool) == 6 * kMiB);
  session.device.RunAll();
  CHECK(Reserved(session, kPool) == 2 * kMiB);
  CHECK(session.memory->UseOf(kPool).value().reserved_high == 6 * kMiB);
  REQUIRE(session.memory->ResetHighMark(kPool).ok());
  CHECK(session.memory->UseOf(kPool).value().reserved_high == 2 * kMiB);

  // With a threshold the memory stays for the next allocation until it is trimmed.
  session.memory->set_quick_reuse(0);
  REQUIRE(session.memory->SetReleaseThreshold(kPool, UINT64_MAX).ok());
  const DeviceAddress b = AllocateFrom(session, kPool, 4 * kMiB);
  CHECK(b == a);
  REQUIRE(session.memory->FreeAsync(b, 1).ok());
  REQUIRE(session.memory->FreeAsync(small, 1).ok());
  session.device.RunAll();
  session.executor.Poll();
  CHECK(Reserved(session, kPool) == 6 * kMiB);
  CHECK(session.memory->mapped() == 6 * kMiB);
  REQUIRE(session.memory->TrimPool(kPool, 3 * kMiB).ok());
  CHECK(Reserved(session, kPool) == 2 * kMiB);
  REQUIRE(session.memory->TrimPool(kPool, 0).ok());
  CHECK(Reserved(session, kPool) == 0);
  CHECK(session.memory->mapped() == 0);
}

TEST_CASE("Memory that cudaFree frees stays with its pool, too") {
  Session session;
  REQUIRE(session.memory->CreatePool(kPool, 0).ok());
  REQUIRE(session.memory->SetReleaseThreshold(kPool, 8 * kMiB).ok());
  const DeviceAddress a = AllocateFrom(session, kPool, 4 * kMiB);
  REQUIRE(session.Free(a).ok());
  CHECK(Reserved(session, kPool) == 4 * kMiB);
}

TEST_CASE("A free range brings its memory to the pool that gets it") {
  Session session;
  REQUIRE(session.memory->CreatePool(kPool, 0).ok());
  REQUIRE(session.memory->SetReleaseThreshold(kPool, UINT64_MAX).ok());
  const DeviceAddress a = AllocateFrom(session, kPool, 4 * kMiB);
  REQUIRE(session.memory->FreeAsync(a, 1).ok());
  const size_t maps = session.fake_space().mapped.size();
  CHECK(AllocateFrom(session, DeviceMemory::kDefaultPool, 4 * kMiB) == a);
  CHECK(session.fake_space().mapped.size() == maps);
  CHECK(Reserved(session, kPool) == 0);
  CHECK(Reserved(session, DeviceMemory::kDefaultPool) == 4 * kMiB);
  // Small allocations of two pools do not share a granule.
  const DeviceAddress one = AllocateFrom(session, kPool, 100);
  const DeviceAddress other = AllocateFrom(session, DeviceMemory::kDefaultPool, 100);
  CHECK(one / kGranule != other / kGranule);
}

TEST_CASE("A pool that is destroyed lives on with its allocations, and keeps nothing") {
  Session session;
  REQUIRE(session.memory->CreatePool(kPool, 0).ok());
  REQUIRE(session.memory->SetReleaseThreshold(kPool, UINT64_MAX).ok());
  const DeviceAddress a = AllocateFrom(session, kPool, 4 * kMiB);
  const DeviceAddress b = AllocateFrom(session, kPool, 4 * kMiB);
  session.Work(1);
  REQUIRE(session.memory->FreeAsync(a, 1).ok());
  REQUIRE(session.memory->DestroyPool(kPool).ok());
  CHECK_FALSE(session.memory->UseOf(kPool).ok());
  CHECK_FALSE(session.memory->CreatePool(kPool, 0).ok());
  CHECK(CudaResultOf(
            session.Finish(session.memory->AllocateAsync(kContext, 100, 1, kPool)).status()) ==
        kCudaErrorInvalidValue);
  REQUIRE(session.memory->FreeAsync(b, 1).ok());
  session.device.RunAll();
  session.executor.Poll();
  CHECK(session.memory->mapped() == 0);
  CHECK(session.memory->CreatePool(kPool, 0).ok());
}

TEST_CASE("Free memory of a destroyed pool is released when the work on it is complete") {
  Session session;
  REQUIRE(session.memory->CreatePool(kPool, 0).ok());
  const DeviceAddress a = AllocateFrom(session, kPool, 4 * kMiB);
  session.Work(1);
  REQUIRE(session.memory->FreeAsync(a, 1).ok());
  REQUIRE(session.memory->DestroyPool(kPool).ok());
  CHECK(session.memory->mapped() == 4 * kMiB);
  session.device.RunAll();
  session.executor.Poll();
  CHECK(session.memory->mapped() == 0);
  CHECK(session.memory->CreatePool(kPool, 0).ok());
}

TEST_CASE("Pools have limits, and there are not too many of them") {
  Session session;
  REQUIRE(session.memory->CreatePool(kPool, 4 * kMiB).ok());
  const DeviceAddress a = AllocateFrom(session, kPool, 4 * kMiB);
  CHECK(CudaResultOf(
            session.Finish(session.memory->AllocateAsync(kContext, 512, 1, kPool)).status()) ==
        kCudaErrorOutOfMemory);
  REQUIRE(session.memory->FreeAsync(a, 1).ok());
  AllocateFrom(session, kPool, 512);
  CHECK_FALSE(session.memory->CreatePool(DeviceMemory::kDefaultPool, 0).ok());
  CHECK_FALSE(session.memory->DestroyPool(DeviceMemory::kDefaultPool).ok());
  CHECK_FALSE(session.memory->DestroyPool(DeviceMemory::kNoPool).ok());
  CHECK_FALSE(session.memory->TrimPool(DeviceMemory::kNoPool, 0).ok());
  CHECK_FALSE(session.memory->SetReleaseThreshold(99, 0).ok());
  PoolId next = 100;
  while (session.memory->CreatePool(next, 0).ok()) ++next;
  CHECK(CudaResultOf(session.memory->CreatePool(next, 0)) == kCudaErrorOutOfMemory);
  CHECK(next < 100 + DeviceMemory::kMaxPools);
}

TEST_CASE("Memory that pools hold back counts for the session's limit") {
  Session session(kGranule, 1ull << 40, /*limit=*/8 * kMiB);
  REQUIRE(session.memory->CreatePool(kPool, 0).ok());
  REQUIRE(session.memory->SetReleaseThreshold(kPool, UINT64_MAX).ok());
  const DeviceAddress a = AllocateFrom(session, kPool, 6 * kMiB);
  session.Allocate(2 * kMiB);
  REQUIRE(session.memory->FreeAsync(a, 1).ok());
  AllocateFrom(session, kPool, 2 * kMiB);
  session.Allocate(4 * kMiB);
  CHECK(session.memory->mapped() <= 8 * kMiB);
}

TEST_CASE("A fault ends allocations that wait") {
  Session session;
  const DeviceAddress a = session.Allocate(4 * kMiB);
  session.Work(1);
  REQUIRE(session.memory->FreeAsync(a, 1).ok());
  auto waiting = session.Start(session.memory->Allocate(kContext, 4 * kMiB));
  session.fake_space().fault_result = CudaError(kCudaErrorIllegalAddress, "bad pointer");
  session.executor.AbortWaits();
  session.executor.Poll();
  REQUIRE(waiting->has_value());
  CHECK(CudaResultOf((*waiting)->status()) == kCudaErrorIllegalAddress);
  CHECK(session.memory->used() == 0);
}

// The addresses that a random sequence of calls gets. `timing` decides when the device completes
// work.
std::vector<DeviceAddress> Addresses(unsigned calls_seed, unsigned timing_seed) {
  Session session;
  session.memory->set_quick_reuse(timing_seed % 2 == 0 ? 0 : 16 * kMiB);
  std::mt19937 calls(calls_seed), timing(timing_seed);
  std::vector<DeviceAddress> addresses, live;
  for (int i = 0; i < 150; ++i) {
    while (timing() % 3 == 0) {
      if (!session.device.queues.empty()) {
        session.device.queues[timing() % session.device.queues.size()]->Step();
      }
      session.executor.Poll();
    }
    session.Work(1 + calls() % 2);
    const uint64_t bytes = calls() % 3 == 0 ? 1 + calls() % (7 * kMiB) : 1 + calls() % (600 << 10);
    const unsigned pick = calls(), kind = calls() % 6;
    if (kind < 2 || live.empty()) {
      addresses.push_back(session.Allocate(bytes));
      live.push_back(addresses.back());
    } else if (kind < 3) {
      addresses.push_back(
          session.Finish(session.memory->AllocateAsync(kContext, bytes, 1 + pick % 2)).value());
      live.push_back(addresses.back());
    } else {
      const size_t index = pick % live.size();
      if (kind == 3) {
        REQUIRE(session.Free(live[index]).ok());
      } else {
        REQUIRE(session.memory->FreeAsync(live[index], 1 + pick / 7 % 2).ok());
      }
      live.erase(live.begin() + index);
    }
  }
  // No allocations overlap.
  for (DeviceAddress address : live) CHECK(session.memory->Find(address)->address == address);
  for (DeviceAddress address : live) CHECK(session.Free(address).ok());
  CHECK(session.memory->used() == 0);
  session.memory->Trim(0);
  CHECK(session.memory->mapped() <= kGranule);  // one empty granule is kept
  return addresses;
}

TEST_CASE("The sequence of calls alone decides the addresses") {
  for (unsigned seed = 0; seed < 10; ++seed) {
    const std::vector<DeviceAddress> expected = Addresses(seed, 0);
    for (unsigned timing = 1; timing < 4; ++timing) CHECK(Addresses(seed, timing) == expected);
  }
}

TEST_CASE("Reserved ranges come from the top, or from where they are wanted") {
  Session session;
  const DeviceAddress end = kBase + (1ull << 36);
  CHECK(session.Finish(session.memory->Reserve(kMiB, 0, 0)).value() == end - kGranule);
  const DeviceAddress aligned =
      session.Finish(session.memory->Reserve(3 * kGranule, 64 * kGranule, 0)).value();
  CHECK(aligned == end - 64 * kGranule);
  const DeviceAddress wanted = kBase + 100 * kGranule;
  CHECK(session.Finish(session.memory->Reserve(kGranule, 0, wanted)).value() == wanted);
  // The wanted addresses are taken or not aligned. The hint is not binding.
  CHECK(session.Finish(session.memory->Reserve(kGranule, 0, wanted)).value() == end - 2 * kGranule);
  CHECK(session.Finish(session.memory->Reserve(kGranule, 0, wanted + kMiB)).value() ==
        end - 3 * kGranule);
  // Allocations avoid the reserved ranges.
  CHECK(session.Allocate(100 * kGranule) == kBase);
  CHECK(session.Allocate(kGranule) == wanted + kGranule);
  CHECK(session.fake_space().maps == 2);

  session.memory->FreeReservation(wanted, kGranule);
  CHECK(session.Finish(session.memory->Reserve(kGranule, 0, wanted)).value() == wanted);
  session.memory->FreeReservation(wanted, kGranule);
  CHECK(session.Allocate(kGranule) == wanted);
  session.memory->FreeReservation(end - kGranule, kMiB);
  CHECK(session.Finish(session.memory->Reserve(kGranule, 0, 0)).value() == end - kGranule);

  CHECK_FALSE(session.Finish(session.memory->Reserve(0, 0, 0)).ok());
  CHECK_FALSE(session.Finish(session.memory->Reserve(kGranule, 3 * kGranule, 0)).ok());
  CHECK_FALSE(session.Finish(session.memory->Reserve(1ull << 36, 0, 0)).ok());
  CHECK_FALSE(session.Finish(session.memory->Reserve(UINT64_MAX, 0, 0)).ok());
}

TEST_CASE("A free range that has not enough room behind an aligned address is left alone") {
  Session session;
  const DeviceAddress end = kBase + (1ull << 36);
  REQUIRE(session.Finish(session.memory->Reserve(3 * kGranule, 64 * kGranule, 0)).value() ==
          end - 64 * kGranule);
  // The range above has 61 granules, and no address in it is aligned.
  CHECK(session.Finish(session.memory->Reserve(61 * kGranule, 64 * kGranule, 0)).value() ==
        end - 128 * kGranule);
}

TEST_CASE("The granule of small allocations stays mapped between them") {
  Session session;
  for (int round = 0; round < 3; ++round) {
    CHECK(session.Free(session.Allocate(512)).ok());
    CHECK(session.fake_space().maps == 1);
  }
}

TEST_CASE("A reserved range has no memory left of earlier allocations") {
  Session session;
  const DeviceAddress address =
      session.Finish(session.memory->AllocateAsync(kContext, 4 * kGranule, 1)).value();
  REQUIRE(session.memory->FreeAsync(address, 1).ok());
  // The memory is kept for quick reuse until another call needs its addresses.
  CHECK(session.fake_space().mapped.size() == 1);
  CHECK(session.Finish(session.memory->Reserve(kGranule, 0, address)).value() == address);
  CHECK(session.fake_space().mapped.empty());
  CHECK(session.memory->mapped() == 0);
}

// ---- moved out of the card and back

struct CopiedMoves {
  HostStore store{1ull << 30};
  std::vector<std::pair<DeviceAddress, uint64_t>> copied;
  absl::Status result;
  absl::Status Copy(absl::Span<const MovePiece> pieces) {
    for (const MovePiece& piece : pieces) copied.emplace_back(piece.address, piece.bytes);
    return result;
  }
  absl::StatusOr<uint64_t> Out(Session& session, uint64_t bytes) {
    return session.memory->MoveOut(
        bytes, store, [this](absl::Span<const MovePiece> pieces) { return Copy(pieces); });
  }
  absl::StatusOr<uint64_t> In(Session& session) {
    return session.memory->MoveIn(
        [this](absl::Span<const MovePiece> pieces) { return Copy(pieces); });
  }
};

TEST_CASE("As few bytes as possible leave the card, and all return to their addresses") {
  Session session;
  const DeviceAddress small = session.Allocate(100);
  const DeviceAddress four = session.Allocate(4 * kMiB);
  const DeviceAddress ten = session.Allocate(10 * kMiB);
  const auto before = session.fake_space().mapped;
  CHECK(session.memory->movable() == 16 * kMiB);

  CopiedMoves moves;
  CHECK(moves.Out(session, 3 * kMiB).value() == 4 * kMiB);
  CHECK(moves.copied == std::vector<std::pair<DeviceAddress, uint64_t>>{{four, 4 * kMiB}});
  CHECK(session.memory->out() == 4 * kMiB);
  CHECK(session.memory->mapped() == 12 * kMiB);
  CHECK(moves.store.used() == 4 * kMiB);
  CHECK(moves.Out(session, 100 * kMiB).value() == 12 * kMiB);
  CHECK(session.fake_space().mapped.empty());
  CHECK(session.memory->movable() == 0);
  CHECK(session.memory->Find(ten).has_value());

  moves.copied.clear();
  CHECK(moves.In(session).ok());
  CHECK(moves.copied.size() == 3);
  CHECK(session.fake_space().mapped == before);
  CHECK(session.memory->out() == 0);
  CHECK(session.memory->movable() == 16 * kMiB);
  CHECK(moves.store.used() == 0);
  CHECK(session.Free(small).ok());
  CHECK(session.Free(ten).ok());
}

TEST_CASE("Kept free memory leaves the card and returns like any other") {
  Session session;
  session.Allocate(4 * kMiB);
  const DeviceAddress freed = session.Allocate(6 * kMiB);
  REQUIRE(session.memory->FreeAsync(freed, 1).ok());
  CopiedMoves moves;
  CHECK(moves.Out(session, 5 * kMiB).value() == 6 * kMiB);
  CHECK(session.memory->out() == 6 * kMiB);
  session.memory->Trim(0);
  CHECK(session.memory->out() == 0);
  CHECK(moves.store.used() == 0);
  CHECK(session.Allocate(6 * kMiB) == freed);
}

TEST_CASE("Nothing leaves when it cannot be copied or the host has no room") {
  Session session;
  session.Allocate(4 * kMiB);
  CopiedMoves moves;
  moves.result = absl::InternalError("the test says so");
  CHECK(!moves.Out(session, kMiB).ok());
  CHECK(session.memory->mapped() == 4 * kMiB);
  CHECK(moves.store.used() == 0);
  HostStore little(2 * kMiB);
  CHECK(
      !session.memory->MoveOut(kMiB, little, [&](auto pieces) { return moves.Copy(pieces); }).ok());
  CHECK(session.memory->out() == 0);
}

TEST_CASE("As much memory leaves as the host has room for") {
  Session session;
  session.Allocate(2 * kMiB);
  session.Allocate(4 * kMiB);
  session.Allocate(8 * kMiB);
  CopiedMoves moves;
  HostStore little(7 * kMiB);
  CHECK(session.memory->MoveOut(12 * kMiB, little, [&](auto pieces) { return moves.Copy(pieces); })
            .value() == 6 * kMiB);
  CHECK(session.memory->out() == 6 * kMiB);
  CHECK(session.memory->mapped() == 8 * kMiB);
}

TEST_CASE("As much memory returns as there is room for, and none if it cannot be copied") {
  Session session(kGranule, 16 * kMiB);
  session.Allocate(8 * kMiB);
  session.Allocate(4 * kMiB);
  CopiedMoves moves;
  REQUIRE(moves.Out(session, 12 * kMiB).ok());
  CHECK(session.memory->smallest_out() == 4 * kMiB);
  session.device.memory_left = 2 * kMiB;
  CHECK(CudaResultOf(moves.In(session).status()) == kCudaErrorOutOfMemory);
  CHECK(session.device.memory_left == 2 * kMiB);
  CHECK(session.memory->out() == 12 * kMiB);
  session.device.memory_left = 6 * kMiB;
  moves.result = absl::InternalError("the test says so");
  CHECK(!moves.In(session).ok());
  CHECK(session.memory->out() == 12 * kMiB);
  CHECK(session.device.memory_left == 6 * kMiB);
  moves.result = absl::OkStatus();
  CHECK(moves.In(session).value() == 4 * kMiB);
  CHECK(session.memory->out() == 8 * kMiB);
  CHECK(session.memory->smallest_out() == 8 * kMiB);
  CHECK(moves.store.used() == 8 * kMiB);
  session.device.memory_left = 12 * kMiB;
  CHECK(moves.In(session).value() == 8 * kMiB);
}

TEST_CASE("Memory that other processes reach stays in place") {
  Session session;
  const DeviceAddress shown = session.Allocate(4 * kMiB);
  session.Allocate(2 * kMiB);
  session.memory->KeepInPlace(shown + 100);
  CHECK(session.memory->movable() == 2 * kMiB);
  session.memory->KeepInPlace(shown);  // again
  CHECK(session.memory->movable() == 2 * kMiB);
  CopiedMoves moves;
  CHECK(moves.Out(session, 100 * kMiB).value() == 2 * kMiB);
  REQUIRE(moves.In(session).ok());
  REQUIRE(session.Free(shown).ok());
  CHECK(session.memory->movable() == 2 * kMiB);
}

struct Room final : RoomSource {
  struct Ticket final : RoomTicket {
    explicit Ticket(Room& room) : room(room) { room.tickets.push_back(this); }
    ~Ticket() override { std::erase(room.tickets, this); }
    void Set(State state) { state_.store(state); }
    Room& room;
  };
  std::unique_ptr<RoomTicket> Ask(uint64_t bytes) override {
    asked.push_back(bytes);
    return std::make_unique<Ticket>(*this);
  }
  std::vector<Ticket*> tickets;
  std::vector<uint64_t> asked;
};

TEST_CASE("An allocation on a full card waits for room and takes it, or is refused") {
  Session session(kGranule, 16 * kMiB);
  Room room;
  session.memory->set_room(&room);
  session.device.memory_left = 0;
  auto result = session.Start(session.memory->Allocate(kContext, 4 * kMiB));
  session.executor.Poll();
  REQUIRE(room.tickets.size() == 1);
  CHECK(room.asked == std::vector<uint64_t>{4 * kMiB});
  CHECK(!result->has_value());
  session.device.memory_left = 4 * kMiB;
  room.tickets[0]->Set(RoomTicket::kGranted);
  session.executor.Poll();
  REQUIRE(result->has_value());
  CHECK((*result)->ok());
  CHECK(room.tickets.empty());

  result = session.Start(session.memory->Allocate(kContext, 4 * kMiB));
  REQUIRE(room.tickets.size() == 1);
  room.tickets[0]->Set(RoomTicket::kRefused);
  session.executor.Poll();
  REQUIRE(result->has_value());
  CHECK(CudaResultOf((*result)->status()) == kCudaErrorOutOfMemory);
  CHECK(room.tickets.empty());
}

TEST_CASE("An allocation whose room is taken asks for more, but not for ever") {
  Session session(kGranule, 512 * kMiB);
  Room room;
  session.memory->set_room(&room);
  session.device.memory_left = 0;
  auto result = session.Start(session.memory->Allocate(kContext, 4 * kMiB));
  while (!result->has_value()) {
    REQUIRE(room.tickets.size() == 1);
    REQUIRE(room.asked.size() < 20);
    room.tickets[0]->Set(RoomTicket::kGranted);
    session.executor.Poll();
  }
  CHECK(CudaResultOf((*result)->status()) == kCudaErrorOutOfMemory);
  CHECK(std::is_sorted(room.asked.begin(), room.asked.end()));
  CHECK(room.asked.back() > room.asked.front());
}

TEST_CASE("An allocation whose context and pool end while it waits fails and leaves nothing") {
  Session session(kGranule, 16 * kMiB);
  Room room;
  session.memory->set_room(&room);
  session.device.memory_left = 0;
  constexpr ContextId kOther = 2;
  REQUIRE(session.memory->CreatePool(kPool, 0).ok());
  auto result = session.Start(session.memory->AllocateAsync(kOther, 4 * kMiB, 1, kPool));
  REQUIRE(room.tickets.size() == 1);
  session.memory->FreeContext(kOther);
  REQUIRE(session.memory->DestroyPool(kPool).ok());
  SECTION("when there is room") { session.device.memory_left = 4 * kMiB; }
  SECTION("when there is no room") {}
  while (!room.tickets.empty()) {
    room.tickets[0]->Set(RoomTicket::kGranted);
    session.executor.Poll();
  }
  REQUIRE(result->has_value());
  CHECK(CudaResultOf((*result)->status()) == kCudaErrorInvalidContext);
  CHECK(session.memory->mapped() == 0);
  CHECK(session.memory->used() == 0);
  CHECK(session.memory->used_by(kOther) == 0);
  CHECK(session.memory->CreatePool(kPool, 0).ok());
}

TEST_CASE("An allocation whose context ends leaves the memory to the work that still uses it") {
  Session session(kGranule, 16 * kMiB);
  const DeviceAddress a = session.Allocate(4 * kMiB);
  session.Work(1);
  REQUIRE(session.memory->FreeAsync(a, 1).ok());
  auto result = session.Start(session.memory->Allocate(2, 4 * kMiB));
  CHECK_FALSE(result->has_value());
  session.memory->FreeContext(2);
  CHECK(session.memory->mapped() == 4 * kMiB);
  session.device.RunAll();
  session.executor.Poll();
  REQUIRE(result->has_value());
  CHECK(CudaResultOf((*result)->status()) == kCudaErrorInvalidContext);
  CHECK(session.memory->used() == 0);
  session.memory->Trim(0);
  CHECK(session.memory->mapped() == 0);
  // The count of free memory is right: nothing is left that could make room.
  session.device.memory_left = 0;
  CHECK(CudaResultOf(session.Finish(session.memory->Allocate(kContext, 4 * kMiB)).status()) ==
        kCudaErrorOutOfMemory);
}

TEST_CASE("Memory stays on the card while another device reaches a pool of the session") {
  Session session;
  auto peer = *session.device.CreateAddressSpace(kBase << 1, 1ull << 36);
  session.Allocate(4 * kMiB);
  REQUIRE(session.memory->CreatePool(kPool, 0).ok());
  REQUIRE(session.memory->SharePool(kPool, *peer).ok());
  CHECK(session.memory->movable() == 0);
  CopiedMoves moves;
  CHECK(moves.Out(session, kMiB).value() == 0);
  CHECK(session.memory->mapped() == 4 * kMiB);
  REQUIRE(session.memory->UnsharePool(kPool, *peer).ok());
  CHECK(session.memory->movable() == 4 * kMiB);
  CHECK(moves.Out(session, kMiB).value() == 4 * kMiB);
}

TEST_CASE("A session's limit is used and given back to the last byte") {
  Session session(kGranule, 1ull << 40, /*limit=*/8 * kMiB);
  const auto full = [&](uint64_t bytes) {
    return CudaResultOf(session.Finish(session.memory->Allocate(kContext, bytes)).status()) ==
           kCudaErrorOutOfMemory;
  };
  const DeviceAddress a = session.Allocate(6 * kMiB);
  CHECK(full(2 * kMiB + 1));
  const DeviceAddress b = session.Allocate(2 * kMiB);
  CHECK(full(1));
  CHECK(session.Free(a).ok());
  CHECK(session.Free(b).ok());
  session.Allocate(8 * kMiB);
}

TEST_CASE("An allocation takes its bytes from the quota and gives all of them back") {
  Session session;
  auto quota = std::make_shared<Quota>(
      8 * kMiB, [](const Quota&, uint64_t) { return CudaError(kCudaErrorOutOfMemory, "full"); });
  session.memory->set_quota(quota);
  const DeviceAddress a = session.Allocate(6 * kMiB);
  CHECK(quota->used() == 6 * kMiB);
  CHECK(quota->left() == 2 * kMiB);
  CHECK(CudaResultOf(session.Finish(session.memory->Allocate(kContext, 4 * kMiB)).status()) ==
        kCudaErrorOutOfMemory);
  CHECK(session.memory->used() == 6 * kMiB);
  session.Allocate(2 * kMiB);
  CHECK(quota->left() == 0);
  CHECK(session.Free(a).ok());
  CHECK(quota->used() == 2 * kMiB);
  quota->set_limit(kMiB);
  CHECK(quota->left() == 0);
}

TEST_CASE("What is left of a free range waits for the work on all of it") {
  Session session;
  const DeviceAddress a = session.Allocate(64 << 10);
  session.Work(1);
  REQUIRE(session.memory->FreeAsync(a, 1).ok());
  auto part =
      session.Start(session.memory->AllocateAsync(kContext, 16 << 10, 1, DeviceMemory::kNoPool));
  REQUIRE(part->has_value());
  CHECK((*part)->value() == a);
  auto rest = session.Start(session.memory->Allocate(kContext, 16 << 10));
  CHECK_FALSE(rest->has_value());
  session.device.RunAll();
  session.executor.Poll();
  REQUIRE(rest->has_value());
  CHECK((*rest)->value() == a + (16 << 10));
}

TEST_CASE("Free ranges that join wait for the work on each of them") {
  for (const bool upper_first : {false, true}) {
    Session session;
    const DeviceAddress lower = session.Allocate(16 << 10), upper = session.Allocate(16 << 10);
    const DeviceAddress first = upper_first ? upper : lower;
    session.Allocate(16 << 10);
    session.Work(1);
    REQUIRE(session.memory->FreeAsync(first, 1).ok());
    REQUIRE(session.memory->FreeAsync(lower + upper - first, 2).ok());
    auto both = session.Start(session.memory->Allocate(kContext, 32 << 10));
    CHECK_FALSE(both->has_value());
    session.device.RunAll();
    session.executor.Poll();
    REQUIRE(both->has_value());
    CHECK((*both)->value() == lower);
  }
}

TEST_CASE("Memory that is used again counts no longer as free") {
  Session session;
  session.memory->set_quick_reuse(4 * kMiB);
  const DeviceAddress a = session.Allocate(4 * kMiB);
  session.Allocate(4 * kMiB);
  for (int i = 0; i < 3; ++i) {
    REQUIRE(session.memory->FreeAsync(a, 1).ok());
    CHECK(session.Finish(session.memory->AllocateAsync(kContext, 4 * kMiB, 1)).value() == a);
  }
  session.Work(1);
  REQUIRE(session.memory->FreeAsync(a, 1).ok());
  session.device.RunAll();
  session.executor.Poll();
  CHECK(session.memory->mapped() == 8 * kMiB);
}

TEST_CASE("A range that a failed allocation gives back still waits for its earlier work") {
  Session session;
  const DeviceAddress a = session.Allocate(64 << 10);
  session.Allocate(64 << 10);  // the free range has no neighbour
  session.Work(1);
  REQUIRE(session.memory->FreeAsync(a, 1).ok());
  constexpr StreamId kNoStream = 99;
  CHECK_FALSE(session
                  .Finish(session.memory->AllocateAsync(kContext, 64 << 10, kNoStream,
                                                        DeviceMemory::kNoPool))
                  .ok());
  auto again = session.Start(session.memory->Allocate(kContext, 64 << 10));
  CHECK_FALSE(again->has_value());
  session.device.RunAll();
  session.executor.Poll();
  REQUIRE(again->has_value());
  CHECK((*again)->value() == a);
}

}  // namespace
}  // namespace detshare
