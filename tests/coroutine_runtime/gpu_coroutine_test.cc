#include "coroutine_runtime/gpu_coroutine.h"

#include <catch2/catch.hpp>
#include <chrono>
#include <deque>
#include <optional>
#include <thread>
#include <vector>

#include "tests/coroutine_runtime/fake_device.h"

namespace detshare {
namespace {

constexpr ContextId kOwnContext = 7;

struct GpuCoroutineFixture {
  std::deque<std::atomic<uint64_t>> fences;
  FakeDevice device;
  std::unique_ptr<Partition> low = *device.CreatePartition(0, 8);
  std::unique_ptr<Partition> high = *device.CreatePartition(8, 8);
  QueuePool pool{device};
  Executor executor;
  Parking parking{executor};
  std::unique_ptr<GpuCoroutine> coroutine;  // destroyed after the space
  std::unique_ptr<AddressSpace> space = *device.CreateAddressSpace(1ull << 40, 1ull << 40);
  FakeKernel kernel;

  GpuCoroutineFixture() {
    coroutine = *GpuCoroutine::Create(device, *space, pool, parking);
    fences.resize(8);
  }
  FakeAddressSpace& fake_space() { return static_cast<FakeAddressSpace&>(*space); }
  void Stream(StreamId id, StreamOptions options = {}) {
    REQUIRE(coroutine->CreateStream(id, kOwnContext, options).ok());
  }
  absl::Status Launch(StreamId id) { return coroutine->Launch(id, kernel, {}, {}); }
  // Runs a task on the executor and keeps its result.
  std::optional<absl::Status> result;
  static Task<void> Keep(Task<absl::Status> task, std::optional<absl::Status>* result) {
    *result = co_await task;
  }
  void Start(Task<absl::Status> task) {
    result.reset();
    executor.Spawn(Keep(std::move(task), &result));
  }
};

TEST_CASE_METHOD(GpuCoroutineFixture, "One stream in use costs no records and no waits") {
  Stream(1, {.legacy_default = true});
  Stream(2);
  for (int i = 0; i < 100; ++i) REQUIRE(Launch(1).ok());
  CHECK(device.calls == 0);
  for (int i = 0; i < 100; ++i) REQUIRE(Launch(2).ok());
  CHECK(device.calls == 2);  // behind the legacy stream, once
}

TEST_CASE_METHOD(GpuCoroutineFixture,
                 "A stream moves at its next operation and idle streams stay") {
  Stream(1);
  Stream(2);
  REQUIRE(Launch(1).ok());
  REQUIRE(Launch(2).ok());
  coroutine->Bind(*high);
  CHECK(device.calls == 0);
  REQUIRE(Launch(1).ok());
  CHECK(device.calls == 2);
  CHECK(device.operations[0].first_sm == 0);
  CHECK(device.operations[2].first_sm == 8);
  CHECK(device.operations[2].before == History{0});
}

TEST_CASE_METHOD(GpuCoroutineFixture,
                 "A stream does without idle queues of other partitions when there are no more") {
  QueuePool few(device, /*limit=*/4);  // of which one session gets two
  coroutine = *GpuCoroutine::Create(device, *space, few, parking);
  Stream(1);
  for (Partition* const partition : {&device.whole(), low.get(), high.get(), low.get()}) {
    coroutine->Bind(*partition);
    REQUIRE(Launch(1).ok());
    device.RunAll();
  }
  REQUIRE(Launch(1).ok());
  coroutine->Bind(*high);
  REQUIRE(Launch(1).ok());
  // Both queues have work.
  coroutine->Bind(device.whole());
  CHECK(CudaResultOf(Launch(1)) == kCudaErrorOutOfMemory);
  device.RunAll();
  CHECK(Launch(1).ok());
  device.RunAll();
  CHECK(device.operations.back().before == History{0, 1, 2, 3, 4, 5});
  coroutine.reset();
}

TEST_CASE_METHOD(GpuCoroutineFixture, "Streams without work give their queues to other streams") {
  constexpr StreamId kLegacy = 100, kStreams = 40;
  QueuePool few(device, /*limit=*/8);
  coroutine = *GpuCoroutine::Create(device, *space, few, parking);
  Stream(kLegacy, {.legacy_default = true});
  for (StreamId id = 1; id <= kStreams; ++id) Stream(id, {.non_blocking = id % 2 == 0});
  std::vector<size_t> last(kStreams + 1);
  const auto launch = [&](StreamId id) {
    REQUIRE(Launch(id).ok());
    const size_t number = device.operations.size() - 1;
    if (number >= kStreams) CHECK(device.operations[number].before.contains(last[id]));
    last[id] = number;
  };
  for (int round = 0; round < 3; ++round) {
    for (StreamId id = 1; id <= kStreams; ++id) {
      launch(id);
      device.RunAll();
    }
  }
  CHECK(device.queues_made <= 8);
  // The legacy stream and the client wait for streams with and without queues.
  REQUIRE(Launch(kLegacy).ok());
  for (StreamId id = 1; id <= kStreams; ++id) REQUIRE(coroutine->Signal(id, &fences[0], id).ok());
  REQUIRE(coroutine->SignalContext(kOwnContext, &fences[1], 1).ok());
  device.RunAll();
  CHECK(fences[1] == 1);
  for (StreamId id = 1; id <= kStreams; ++id) REQUIRE(coroutine->DestroyStream(id).ok());
  device.RunAll();
  coroutine.reset();
}

TEST_CASE_METHOD(GpuCoroutineFixture,
                 "A session with work in many streams leaves queues to others") {
  QueuePool few(device, /*limit=*/16);
  coroutine = *GpuCoroutine::Create(device, *space, few, parking);
  const std::unique_ptr<AddressSpace> other_space =
      *device.CreateAddressSpace(2ull << 40, 1ull << 40);
  std::unique_ptr<GpuCoroutine> other = *GpuCoroutine::Create(device, *other_space, few, parking);
  StreamId refused = 0;
  for (StreamId id = 1; id <= 20 && refused == 0; ++id) {
    Stream(id);
    const absl::Status launched = Launch(id);
    if (launched.ok()) continue;
    CHECK(CudaResultOf(launched) == kCudaErrorOutOfMemory);
    refused = id;
  }
  CHECK(refused == 9);  // the session has half of the pool
  for (StreamId id = 1; id <= 4; ++id) {
    REQUIRE(other->CreateStream(id, kOwnContext, {}).ok());
    CHECK(other->Launch(id, kernel, {}, {}).ok());
  }
  device.RunAll();
  CHECK(Launch(refused).ok());
  device.RunAll();
  other.reset();
  coroutine.reset();
}

TEST_CASE_METHOD(GpuCoroutineFixture,
                 "A stream that comes back to a partition finds its queue again") {
  Stream(1);
  REQUIRE(Launch(1).ok());
  for (int i = 0; i < 50; ++i) {
    coroutine->Bind(i % 2 == 0 ? *high : *low);
    REQUIRE(Launch(1).ok());
  }
  CHECK(device.queues_made == 3);
}

TEST_CASE_METHOD(GpuCoroutineFixture,
                 "A wait for an event means its recording at the time of the call") {
  Stream(1, {.non_blocking = true});
  Stream(2, {.non_blocking = true});
  REQUIRE(coroutine->CreateEvent(1, kOwnContext, false).ok());
  REQUIRE(Launch(1).ok());
  REQUIRE(coroutine->RecordEvent(1, 1, nullptr, 0).ok());
  REQUIRE(coroutine->WaitEvent(2, 1).ok());
  REQUIRE(Launch(1).ok());
  REQUIRE(coroutine->RecordEvent(1, 1, nullptr, 0).ok());
  REQUIRE(Launch(2).ok());
  CHECK(device.operations[2].before == History{0});
  // The marker of a destroyed event serves the next event while a stream still waits for it.
  REQUIRE(coroutine->DestroyEvent(1).ok());
  REQUIRE(coroutine->CreateEvent(2, kOwnContext, false).ok());
  REQUIRE(coroutine->WaitEvent(2, 2).ok());  // never recorded, so there is no wait
  REQUIRE(Launch(2).ok());
  CHECK(device.operations[3].before == History{0, 2});
  device.RunAll();
  CHECK(device.operations[3].done);
}

TEST_CASE_METHOD(GpuCoroutineFixture,
                 "A destroyed stream finishes its work and then gives its queue back") {
  Stream(1);
  REQUIRE(Launch(1).ok());
  REQUIRE(coroutine->DestroyStream(1).ok());
  CHECK(CudaResultOf(Launch(1)) == kCudaErrorInvalidHandle);
  Stream(1);
  REQUIRE(Launch(1).ok());
  CHECK(device.queues_made == 2);
  REQUIRE(coroutine->DestroyStream(1).ok());
  device.RunAll();
  CHECK(device.operations[0].done);
  Stream(1);
  REQUIRE(Launch(1).ok());
  CHECK(device.queues_made == 2);
  CHECK(device.operations[2].before.size() <= 1);
}

TEST_CASE_METHOD(GpuCoroutineFixture,
                 "Idle ends when everything that was submitted before is complete") {
  Stream(1);
  Stream(2, {.non_blocking = true});
  REQUIRE(Launch(1).ok());
  REQUIRE(Launch(2).ok());
  Start(coroutine->Idle());
  executor.Poll();
  CHECK_FALSE(result.has_value());
  // later work
  REQUIRE(coroutine->HostFunction(1, &fences[0], 1, &fences[1], 1).ok());
  device.RunAll();
  CHECK(executor.Poll() == 1);
  REQUIRE(result.has_value());
  CHECK(result->ok());
  CHECK(fences[0] == 1);
  fences[1] = 1;
}

// Streams of which the device or the daemon keeps work back.
struct KeptWaitFixture : GpuCoroutineFixture {
  static constexpr EventId kEvent = 1;
  KeptWaitFixture() {
    Stream(1);
    Stream(2);
    REQUIRE(coroutine->CreateEvent(kEvent, kOwnContext, false).ok());
  }
  // The device, and not the daemon, waits with the stream's work.
  void PassOn(StreamId stream) {
    const auto pass_on = [&](Queue& queue) {
      parking.Submit(queue);
      return absl::OkStatus();
    };
    REQUIRE(coroutine->Submit(stream, device.whole(), pass_on).ok());
  }
  // Lets the daemon and the device do all that they can.
  void RunAll() {
    executor.Poll();
    device.RunAll();
  }
};

TEST_CASE_METHOD(KeptWaitFixture, "A wait for the device's work stays behind work that is kept") {
  REQUIRE(coroutine->WaitFence(2, &fences[0], 5).ok());
  SECTION("The device has the event before the wait") {
    PassOn(2);
    REQUIRE(coroutine->RecordEvent(kEvent, 2, nullptr, 0).ok());
  }
  SECTION("The device gets the event after the wait") {
    REQUIRE(coroutine->RecordEvent(kEvent, 2, nullptr, 0).ok());
  }
  REQUIRE(coroutine->WaitFence(1, &fences[1], 1).ok());
  REQUIRE(Launch(1).ok());
  REQUIRE(coroutine->WaitEvent(1, kEvent).ok());
  REQUIRE(Launch(1).ok());
  PassOn(2);
  // The event now stands for a point that is never reached.
  Stream(3);
  REQUIRE(coroutine->WaitFence(3, &fences[2], 7).ok());
  PassOn(3);
  REQUIRE(coroutine->RecordEvent(kEvent, 3, nullptr, 0).ok());

  RunAll();
  CHECK(device.operations.empty());
  fences[1] = 1;
  RunAll();
  REQUIRE(device.operations.size() == 2);
  CHECK(device.operations[0].done);
  CHECK(device.operations[0].before.empty());
  CHECK_FALSE(device.operations[1].done);
  CHECK(device.operations[1].before == History{-5, 0});
  fences[0] = 5;
  RunAll();
  CHECK(device.operations[1].done);
  fences[2] = 7;
  RunAll();
}

TEST_CASE_METHOD(KeptWaitFixture, "Any number of waits may be kept, and their relays serve again") {
  constexpr EventId kEvents = 40;
  for (int round = 0; round < 2; ++round) {
    const int queues_made = device.queues_made;
    std::deque<std::atomic<uint64_t>> held(kEvents + 1);
    REQUIRE(coroutine->WaitFence(1, &held[0], 1).ok());
    REQUIRE(Launch(1).ok());
    for (EventId event = 1; event <= kEvents; ++event) {
      const StreamId stream = 100 + event;
      if (round == 0) {
        Stream(stream);
        if (event != kEvent) REQUIRE(coroutine->CreateEvent(event, kOwnContext, false).ok());
      }
      REQUIRE(coroutine->WaitFence(stream, &held[event], 1000 + event).ok());
      PassOn(stream);
      REQUIRE(coroutine->RecordEvent(event, stream, nullptr, 0).ok());
      REQUIRE(coroutine->WaitEvent(1, event).ok());
    }
    REQUIRE(Launch(1).ok());
    const int relays = device.queues_made - queues_made - (round == 0 ? 1 + int{kEvents} : 0);
    CHECK(relays == (round == 0 ? 16 : 0));
    held[0] = 1;
    RunAll();
    CHECK(device.operations[device.operations.size() - 2].done);
    const FakeDevice::Operation& last = device.operations.back();
    for (EventId event = kEvents; event >= 1; --event) {
      RunAll();
      CHECK_FALSE(last.done);
      CHECK(last.before.contains(-1000 - static_cast<int64_t>(event)));
      held[event] = 1000 + event;
    }
    RunAll();
    CHECK(last.done);
  }
}

TEST_CASE_METHOD(KeptWaitFixture, "A kept stream does not wait for an event that is reached") {
  REQUIRE(Launch(2).ok());
  REQUIRE(coroutine->RecordEvent(kEvent, 2, nullptr, 0).ok());
  RunAll();
  REQUIRE(coroutine->WaitFence(1, &fences[1], 1).ok());
  REQUIRE(Launch(1).ok());
  const int queues_made = device.queues_made;
  REQUIRE(coroutine->WaitEvent(1, kEvent).ok());
  REQUIRE(Launch(1).ok());
  CHECK(device.queues_made == queues_made);
  fences[1] = 1;
  RunAll();
  CHECK(device.operations.back().done);
}

TEST_CASE_METHOD(GpuCoroutineFixture, "A session without work is idle at once") {
  Stream(1);
  Start(coroutine->Idle());
  REQUIRE(result.has_value());
  CHECK(result->ok());
  REQUIRE(coroutine->Signal(1, &fences[0], 5).ok());
  CHECK(fences[0] == 5);
  REQUIRE(coroutine->SignalContext(kOwnContext, &fences[0], 6).ok());
  CHECK(fences[0] == 6);
}

TEST_CASE_METHOD(GpuCoroutineFixture, "An event on a stream that is known to be idle is complete") {
  Stream(1, {.non_blocking = true});
  REQUIRE(coroutine->CreateEvent(1, kOwnContext, false).ok());
  REQUIRE(coroutine->CreateEvent(2, kOwnContext, true).ok());
  REQUIRE(Launch(1).ok());
  REQUIRE(coroutine->RecordEvent(1, 1, &fences[0], 1).ok());
  CHECK(fences[0] == 0);  // behind the launch
  REQUIRE(coroutine->RecordEvent(1, 1, &fences[0], 2).ok());
  CHECK(fences[0] == 0);
  device.RunAll();
  CHECK(fences[0] == 2);
  REQUIRE(coroutine->RecordEvent(1, 1, &fences[0], 3).ok());
  CHECK(fences[0] == 3);
  REQUIRE(coroutine->Signal(1, &fences[1], 1).ok());
  CHECK(fences[1] == 1);
  CHECK(coroutine->QueryEvent(1).ok());
  // Nothing is left to wait for.
  Stream(2, {.non_blocking = true});
  const int calls = device.calls;
  REQUIRE(coroutine->WaitEvent(2, 1).ok());
  CHECK(device.calls == calls);
  // The device gives the time of a timed event.
  REQUIRE(coroutine->RecordEvent(2, 1, &fences[2], 1).ok());
  CHECK(fences[2] == 0);
  device.RunAll();
  REQUIRE(Launch(1).ok());
  REQUIRE(coroutine->RecordEvent(1, 1, &fences[0], 4).ok());
  CHECK(fences[0] == 3);
  device.RunAll();
  CHECK(fences[0] == 4);
  REQUIRE(coroutine->WaitFence(1, &fences[3], 1).ok());
  REQUIRE(coroutine->RecordEvent(1, 1, &fences[0], 5).ok());
  CHECK(fences[0] == 4);
  fences[3] = 1;
  executor.Poll();
  device.RunAll();
  CHECK(fences[0] == 5);
}

TEST_CASE_METHOD(GpuCoroutineFixture, "A stream is not idle while it must wait for another one") {
  Stream(1, {.legacy_default = true});
  Stream(2);
  for (EventId event : {1, 2}) REQUIRE(coroutine->CreateEvent(event, kOwnContext, false).ok());
  for (int i = 1; i <= 2; ++i) {
    REQUIRE(coroutine->RecordEvent(1, 1, &fences[0], 2 * i).ok());
    REQUIRE(coroutine->RecordEvent(2, 2, &fences[1], 2 * i).ok());
    device.RunAll();
  }
  // The legacy stream waits for blocking streams, and they for it.
  REQUIRE(Launch(2).ok());
  REQUIRE(coroutine->RecordEvent(1, 1, &fences[0], 5).ok());
  CHECK(fences[0] == 4);
  device.RunAll();
  CHECK(fences[0] == 5);
  REQUIRE(coroutine->RecordEvent(2, 2, &fences[1], 5).ok());
  device.RunAll();
  REQUIRE(Launch(1).ok());
  REQUIRE(coroutine->RecordEvent(2, 2, &fences[1], 6).ok());
  CHECK(fences[1] == 5);
  device.RunAll();
  CHECK(fences[1] == 6);
}

TEST_CASE_METHOD(GpuCoroutineFixture, "The end of a lost session's stream is not taken for known") {
  Stream(1, {.non_blocking = true});
  REQUIRE(coroutine->CreateEvent(1, kOwnContext, false).ok());
  REQUIRE(coroutine->RecordEvent(1, 1, &fences[0], 1).ok());
  device.RunAll();
  fake_space().fault_result = CudaError(kCudaErrorUnknown, "lost");
  CHECK_FALSE(coroutine->RecordEvent(1, 1, &fences[0], 2).ok());
  CHECK(fences[0] == 1);
}

TEST_CASE_METHOD(GpuCoroutineFixture,
                 "Destroying a context ends its streams at once and waits for its work") {
  Stream(1, {.legacy_default = true});
  Stream(2);
  REQUIRE(coroutine->CreateEvent(9, kOwnContext, true).ok());
  REQUIRE(Launch(1).ok());
  REQUIRE(Launch(2).ok());
  Start(coroutine->DestroyContext(kOwnContext));
  CHECK(CudaResultOf(Launch(1)) == kCudaErrorInvalidHandle);
  CHECK(CudaResultOf(coroutine->DestroyEvent(9)) == kCudaErrorInvalidHandle);
  CHECK_FALSE(result.has_value());
  device.RunAll();
  executor.Poll();
  REQUIRE(result.has_value());
  CHECK(result->ok());
  // The ids are free, and the queues are reused.
  const int made = device.queues_made;
  Stream(1, {.legacy_default = true});
  REQUIRE(Launch(1).ok());
  CHECK(device.queues_made == made);
}

TEST_CASE_METHOD(GpuCoroutineFixture,
                 "Idle() also waits for the work of a context that is ending") {
  Stream(1);
  REQUIRE(Launch(1).ok());
  REQUIRE(coroutine->WaitFence(1, &fences[0], 1).ok());
  REQUIRE(Launch(1).ok());  // kept, with its kernel
  Start(coroutine->DestroyContext(kOwnContext));
  device.RunAll();
  executor.Poll();
  CHECK_FALSE(result.has_value());
  std::optional<absl::Status> idle;
  executor.Spawn(Keep(coroutine->Idle(), &idle));
  executor.Poll();
  CHECK_FALSE(idle.has_value());
  fences[0] = 1;
  executor.Poll();
  device.RunAll();
  executor.Poll();
  CHECK(result.has_value());
  CHECK(idle.has_value());
}

TEST_CASE_METHOD(GpuCoroutineFixture,
                 "A stream that waits for a word in memory holds up no queue of the device") {
  Stream(1);
  Stream(2);
  uint64_t word = 4;
  device.word = &word;
  const MemoryOp operations[] = {
      {MemoryOp::kWait32, MemoryOp::kEqual, reinterpret_cast<uint64_t>(&word), 5},
      {MemoryOp::kWrite32, 0, reinterpret_cast<uint64_t>(&word), 6}};
  REQUIRE(coroutine->MemoryOps(1, operations).ok());
  REQUIRE(Launch(1).ok());
  REQUIRE(Launch(2).ok());
  // Only the reading of the word and the other stream's launch are on the device.
  CHECK(device.operations.size() == 2);
  const auto read_once = [&] {
    device.RunAll();
    std::this_thread::sleep_until(executor.next_pause_end() == executor.next_pause_end().max()
                                      ? std::chrono::steady_clock::now()
                                      : executor.next_pause_end());
    executor.Poll();
  };
  for (int i = 0; i < 8; ++i) read_once();
  const size_t readings = device.operations.size();
  CHECK(readings > 3);
  CHECK(executor.waiting() == 1);

  word = 5;
  for (int i = 0; i < 3; ++i) read_once();
  CHECK(executor.waiting() == 0);
  CHECK(executor.next_pause_end() == executor.next_pause_end().max());
  // The write and the launch. What the device writes is not modelled.
  CHECK(device.operations.size() == readings + 2);
  word = 0;
  read_once();
  CHECK(device.operations.size() == readings + 2);
  CHECK(parking.error().ok());
}

TEST_CASE_METHOD(GpuCoroutineFixture, "A fault ends operations and waits") {
  Stream(1);
  REQUIRE(Launch(1).ok());
  Start(coroutine->Idle());
  fake_space().fault_result = CudaError(kCudaErrorIllegalAddress, "bad pointer");
  CHECK(CudaResultOf(Launch(1)) == kCudaErrorIllegalAddress);
  executor.AbortWaits();
  executor.Poll();
  REQUIRE(result.has_value());
  CHECK(CudaResultOf(*result) == kCudaErrorIllegalAddress);
  Start(coroutine->DestroyContext(kOwnContext));
  REQUIRE(result.has_value());
  CHECK(CudaResultOf(*result) == kCudaErrorIllegalAddress);
}

TEST_CASE_METHOD(GpuCoroutineFixture,
                 "A cooperative launch that exceeds the partition runs on the device") {
  Stream(1);
  device.cooperative_limit = 4;
  coroutine->Bind(*high);
  LaunchShape shape;
  shape.cooperative = true;
  shape.grid.x = 64;
  REQUIRE(Launch(1).ok());
  REQUIRE(coroutine->Launch(1, kernel, shape, {}).ok());
  REQUIRE(Launch(1).ok());
  CHECK(device.operations[0].first_sm == 8);
  CHECK(device.operations[1].first_sm == 0);
  CHECK(device.operations[2].first_sm == 8);
  CHECK(device.operations[2].before == History{0, 1});
  shape.grid.x = 65;
  CHECK(CudaResultOf(coroutine->Launch(1, kernel, shape, {})) ==
        kCudaErrorCooperativeLaunchTooLarge);
}

TEST_CASE_METHOD(
    GpuCoroutineFixture,
    "A launch that runs on the device instead keeps to the priorities of its session") {
  Stream(1);
  device.cooperative_limit = 4;
  coroutine->Bind(*high);
  LaunchShape shape;
  shape.cooperative = true;
  shape.has_priority = true;
  shape.priority = -5;  // as in an urgent session
  REQUIRE(coroutine->Launch(1, kernel, shape, {}).ok());
  CHECK(device.operations.back().first_sm == 8);
  CHECK(device.operations.back().launch_priority == -2);
  shape.grid.x = 64;
  REQUIRE(coroutine->Launch(1, kernel, shape, {}).ok());
  CHECK(device.operations.back().first_sm == 0);
  CHECK(device.operations.back().launch_priority == -2);
}

TEST_CASE_METHOD(GpuCoroutineFixture,
                 "A point is waited for only if other waits do not order the work already") {
  Stream(1, {.non_blocking = true});
  Stream(2, {.non_blocking = true});
  REQUIRE(Launch(1).ok());
  absl::StatusOr<FencePoint> point = coroutine->Point(1);
  REQUIRE(point.ok());
  CHECK_FALSE(point->reached());
  REQUIRE(coroutine->WaitPoint(1, *point).ok());
  REQUIRE(coroutine->WaitPoint(2, *point).ok());
  REQUIRE(Launch(2).ok());
  CHECK(device.operations[1].before == History{0});
  device.RunAll();
  CHECK(point->reached());
}

TEST_CASE_METHOD(GpuCoroutineFixture, "Elapsed time needs timed events that were reached") {
  Stream(1);
  REQUIRE(coroutine->CreateEvent(1, kOwnContext, true).ok());
  REQUIRE(coroutine->CreateEvent(2, kOwnContext, true).ok());
  REQUIRE(coroutine->CreateEvent(3, kOwnContext, false).ok());
  CHECK(CudaResultOf(coroutine->ElapsedMilliseconds(1, 2).status()) == kCudaErrorInvalidHandle);
  for (EventId event : {1, 2, 3}) REQUIRE(coroutine->RecordEvent(event, 1, nullptr, 0).ok());
  CHECK(CudaResultOf(coroutine->ElapsedMilliseconds(1, 2).status()) == kCudaErrorNotReady);
  device.RunAll();
  CHECK(coroutine->ElapsedMilliseconds(1, 2).value() == 1.0f);
  CHECK(CudaResultOf(coroutine->ElapsedMilliseconds(1, 3).status()) == kCudaErrorInvalidHandle);
}

TEST_CASE_METHOD(GpuCoroutineFixture, "Ids that are unknown, 0 or taken are refused") {
  Stream(1, {.legacy_default = true});
  CHECK(CudaResultOf(coroutine->CreateStream(1, kOwnContext, {})) == kCudaErrorInvalidValue);
  CHECK(CudaResultOf(coroutine->CreateStream(0, kOwnContext, {})) == kCudaErrorInvalidValue);
  CHECK(CudaResultOf(coroutine->CreateStream(2, 0, {})) == kCudaErrorInvalidValue);
  CHECK(CudaResultOf(coroutine->CreateStream(2, kOwnContext, {.legacy_default = true})) ==
        kCudaErrorInvalidValue);
  CHECK(CudaResultOf(coroutine->DestroyStream(1)) == kCudaErrorInvalidHandle);
  CHECK(CudaResultOf(coroutine->DestroyStream(5)) == kCudaErrorInvalidHandle);
  CHECK(CudaResultOf(coroutine->RecordEvent(5, 1, nullptr, 0)) == kCudaErrorInvalidHandle);
  CHECK(CudaResultOf(coroutine->WaitEvent(1, 5)) == kCudaErrorInvalidHandle);
}

TEST_CASE_METHOD(GpuCoroutineFixture, "A launch that the device refuses is not counted") {
  Stream(1);
  device.cooperative_limit = 4;
  const LaunchShape too_large{.grid = {1'000'000, 1, 1}, .cooperative = true};
  CHECK(CudaResultOf(coroutine->Launch(1, kernel, too_large, {})) ==
        kCudaErrorCooperativeLaunchTooLarge);
  CHECK(coroutine->counters().operations == 0);
  CHECK(coroutine->counters().launches == 0);
}

TEST_CASE_METHOD(GpuCoroutineFixture, "The counters count operations, kernels and bytes") {
  Stream(1);
  REQUIRE(Launch(1).ok());
  REQUIRE(coroutine->Copy(1, {.width = 10, .height = 3, .depth = 2}).ok());
  REQUIRE(coroutine->Signal(1, &fences[0], 1).ok());
  const GpuCoroutine::Counters counters = coroutine->counters();
  CHECK(counters.operations == 2);
  CHECK(counters.kernels == 1);
  CHECK(counters.bytes_copied == 60);
}

}  // namespace
}  // namespace detshare
