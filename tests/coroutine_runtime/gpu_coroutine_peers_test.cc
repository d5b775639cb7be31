// A session's work across devices, and events that sessions share.
#include <catch2/catch.hpp>
#include <memory>

#include "coroutine_runtime/gpu_coroutine.h"
#include "coroutine_runtime/shared_event.h"
#include "tests/coroutine_runtime/fake_device.h"

namespace detshare {
namespace {

FillRequest SomeFill() {
  FillRequest request;
  request.address = 4096;
  return request;
}

// A coroutine with stream 1 in context 1.
struct OnDevice {
  OnDevice(FakeDevice& device, Parking& parking)
      : device(device), queues(device), space(*device.CreateAddressSpace(1 << 30, 1 << 30)) {
    coroutine = *GpuCoroutine::Create(device, *space, queues, parking);
    REQUIRE(coroutine->CreateStream(1, 1, {true, false, 0}).ok());
  }
  // Returns the number of the operation.
  int64_t Fill(StreamId stream = 1) {
    REQUIRE(coroutine->Fill(stream, SomeFill()).ok());
    return static_cast<int64_t>(device.operations.size()) - 1;
  }

  FakeDevice& device;
  QueuePool queues;
  std::unique_ptr<GpuCoroutine> coroutine;  // destroyed after the space
  std::unique_ptr<AddressSpace> space;
};

// Two devices. Their operations have different numbers.
struct GpuCoroutinePeersFixture {
  GpuCoroutinePeersFixture() : here(device_a, parking), there(device_b, parking) {
    for (int i = 0; i < 100; ++i) there.Fill();
  }
  Executor executor{[] {}};
  Parking parking{executor};
  FakeDevice device_a, device_b;
  OnDevice here, there;
};

TEST_CASE("Work at another device comes between the stream's work before and after it") {
  GpuCoroutinePeersFixture f;
  REQUIRE(f.here.coroutine->CreateStream(2, 1, {true, false, 0}).ok());
  const int64_t before = f.here.Fill();
  REQUIRE(f.here.coroutine->FillAt(*f.there.coroutine, 1, SomeFill()).ok());
  const auto abroad = static_cast<int64_t>(f.device_b.operations.size()) - 1;
  const int64_t after = f.here.Fill();
  const int64_t beside = f.here.Fill(2);
  CHECK(f.device_b.operations[abroad].before == History{before});
  CHECK(f.device_a.operations[after].before == History{before, abroad});
  CHECK(f.device_a.operations[beside].before.empty());
  // It makes no other stream at the other device wait.
  REQUIRE(f.there.coroutine->CreateStream(2, 1, {true, false, 0}).ok());
  CHECK(f.device_b.operations[f.there.Fill(2)].before.empty());
}

TEST_CASE("A stream waits for an event of another device") {
  GpuCoroutinePeersFixture f;
  REQUIRE(f.there.coroutine->CreateEvent(1, 1, false).ok());
  CHECK(f.here.coroutine->WaitEventOf(*f.there.coroutine, 1, 1).ok());  // never recorded
  CHECK(f.device_a.operations[f.here.Fill()].before.empty());
  const int64_t awaited = f.there.Fill();
  REQUIRE(f.there.coroutine->RecordEvent(1, 1, nullptr, 0).ok());
  REQUIRE(f.here.coroutine->WaitEventOf(*f.there.coroutine, 1, 1).ok());
  CHECK(f.device_a.operations[f.here.Fill()].before.contains(awaited));
  CHECK_FALSE(f.here.coroutine->WaitEventOf(*f.there.coroutine, 1, 2).ok());
}

Task<void> Await(GpuCoroutine& coroutine, bool* done) {
  const absl::Status status = co_await coroutine.IdleForMemory();
  *done = status.ok();
}

TEST_CASE("Memory is idle when the work of all its users is complete") {
  GpuCoroutinePeersFixture f;
  f.device_b.RunAll();
  f.there.coroutine->AddUser(*f.here.coroutine);
  f.here.Fill();
  bool there = false, here = false;
  f.executor.Spawn(Await(*f.there.coroutine, &there));
  f.device_b.RunAll();
  f.executor.Poll();
  CHECK_FALSE(there);
  f.device_a.RunAll();
  f.executor.Poll();
  CHECK(there);
  // The other direction does not matter.
  f.there.Fill();
  f.executor.Spawn(Await(*f.here.coroutine, &here));
  f.device_a.RunAll();
  f.executor.Poll();
  CHECK(here);
}

struct SharedEventFixture {
  Executor executor{[] {}};
  FakeDevice device;
  Parking parking{executor};
  OnDevice one{device, parking}, other{device, parking};
  std::shared_ptr<SharedEvent> event = *SharedEvent::Create(device);

  // Fills that the device has got.
  size_t Fills() const { return device.operations.size(); }
};

TEST_CASE_METHOD(SharedEventFixture,
                 "A shared event stands for its last recording by any session") {
  CHECK(*event->Complete());
  CHECK(event->last() == nullptr);
  CHECK(other.coroutine->WaitShared(1, *event).ok());
  CHECK(device.operations[other.Fill()].before.empty());

  const int64_t first = one.Fill();
  const std::shared_ptr<SharedRecording> early = *one.coroutine->RecordShared(*event, 1);
  CHECK_FALSE(*event->Complete());
  REQUIRE(other.coroutine->WaitShared(1, *event).ok());
  const int64_t second = other.Fill();
  CHECK(device.operations[second].before.contains(first));
  const std::shared_ptr<SharedRecording> late = *other.coroutine->RecordShared(*event, 1);
  CHECK(event->last() == late);
  early->Reach();
  CHECK_FALSE(*event->Complete());
  late->Reach();
  CHECK(*event->Complete());
  // A late signal does not undo it.
  early->Reach();
  CHECK(*event->Complete());

  // The device knows that the event is reached before the session that recorded it has looked.
  one.Fill();
  const std::shared_ptr<SharedRecording> last = *one.coroutine->RecordShared(*event, 1);
  CHECK_FALSE(*event->Complete());
  device.RunAll();
  CHECK(*event->Complete());
  CHECK(last->complete());
}

TEST_CASE_METHOD(SharedEventFixture,
                 "A session waits in the daemon for a recording that the device does not have") {
  std::atomic<uint64_t> go{0};
  REQUIRE(one.coroutine->WaitFence(1, &go, 1).ok());
  REQUIRE(one.coroutine->Fill(1, SomeFill()).ok());
  const std::shared_ptr<SharedRecording> recording = *one.coroutine->RecordShared(*event, 1);
  CHECK_FALSE(recording->marked());
  REQUIRE(other.coroutine->WaitShared(1, *event).ok());
  REQUIRE(other.coroutine->Fill(1, SomeFill()).ok());
  device.RunAll();
  executor.Poll();
  CHECK(Fills() == 0);
  CHECK_FALSE(*event->Complete());
  SECTION("its work is done") {
    go = 1;
    executor.Poll();
    CHECK(Fills() == 1);
    device.RunAll();
    executor.Poll();
    CHECK(Fills() == 1);  // the recording session has not looked
    recording->Reach();
    executor.Poll();
    CHECK(Fills() == 2);
    CHECK(*event->Complete());
    // Nothing waits any more.
    REQUIRE(other.coroutine->WaitShared(1, *event).ok());
    REQUIRE(other.coroutine->Fill(1, SomeFill()).ok());
    CHECK(Fills() == 3);
  }
  SECTION("another recording does not end the wait") {
    REQUIRE(other.coroutine->CreateStream(2, 1, {.non_blocking = true}).ok());
    const std::shared_ptr<SharedRecording> later = *other.coroutine->RecordShared(*event, 2);
    later->Reach();
    executor.Poll();
    CHECK(Fills() == 0);
    CHECK(*event->Complete());
    recording->Reach();  // it is lost with its session
    executor.Poll();
    CHECK(Fills() == 1);
  }
  go = 1;
  executor.Poll();
  device.RunAll();
}

TEST_CASE_METHOD(SharedEventFixture,
                 "A word for which a stream has waited ends no later wait for another session") {
  REQUIRE(other.coroutine->CreateStream(2, 1, {.non_blocking = true}).ok());
  const uint64_t word = uint64_t{1} << 40;
  device.word = &word;
  const MemoryOp wait{.operation = MemoryOp::kWait64,
                      .flags = MemoryOp::kEqual,
                      .address = reinterpret_cast<uint64_t>(&word),
                      .value = word};
  REQUIRE(other.coroutine->MemoryOps(1, {&wait, 1}).ok());
  device.RunAll();
  executor.Poll();
  other.Fill();  // the wait is over
  const size_t before = Fills();

  std::atomic<uint64_t> go{0};
  REQUIRE(one.coroutine->WaitFence(1, &go, 1).ok());
  const std::shared_ptr<SharedRecording> recording = *one.coroutine->RecordShared(*event, 1);
  for (const StreamId stream : {1, 2}) {
    REQUIRE(other.coroutine->WaitShared(stream, *event).ok());
    REQUIRE(other.coroutine->Fill(stream, SomeFill()).ok());
  }
  device.RunAll();
  executor.Poll();
  CHECK(Fills() == before);
  recording->Reach();
  executor.Poll();
  CHECK(Fills() == before + 2);
  go = 1;
  executor.Poll();
  device.RunAll();
}

}  // namespace
}  // namespace detshare
