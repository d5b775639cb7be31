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

TEST_CASE("A shared event stands for its last recording by any session") {
  Executor executor([] {});
  FakeDevice device;
  Parking parking{executor};
  OnDevice one(device, parking), other(device, parking);
  const std::shared_ptr<SharedEvent> event = *SharedEvent::Create(device);
  CHECK(*event->Complete());
  CHECK(other.coroutine->WaitShared(1, event).ok());
  CHECK(device.operations[other.Fill()].before.empty());

  const int64_t first = one.Fill();
  uint64_t early = 0, late = 0;
  REQUIRE(one.coroutine->RecordShared(*event, 1, &early).ok());
  CHECK_FALSE(*event->Complete());
  REQUIRE(other.coroutine->WaitShared(1, event).ok());
  const int64_t second = other.Fill();
  CHECK(device.operations[second].before.contains(first));
  REQUIRE(other.coroutine->RecordShared(*event, 1, &late).ok());
  CHECK(late > early);
  event->Reach(early);
  CHECK_FALSE(*event->Complete());
  event->Reach(late);
  CHECK(*event->Complete());
  // A late signal does not undo it.
  event->Reach(early);
  CHECK(*event->Complete());

  // The device knows that the event is reached before the session that recorded it has looked.
  one.Fill();
  REQUIRE(one.coroutine->RecordShared(*event, 1, &late).ok());
  CHECK_FALSE(*event->Complete());
  device.RunAll();
  CHECK(*event->Complete());
  CHECK(event->reached() == late);
}

}  // namespace
}  // namespace detshare
