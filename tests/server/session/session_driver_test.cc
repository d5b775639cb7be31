// The driver of a session, without its worker and with a clock that the test advances.
#include "server/session/session_driver.h"

#include <unistd.h>

#include <catch2/catch.hpp>
#include <memory>
#include <string>

#include "coroutine_runtime/device_scheduler.h"
#include "coroutine_runtime/executor.h"
#include "coroutine_runtime/queue_pool.h"
#include "coroutine_runtime/sched_entity.h"
#include "policy/registry.h"
#include "proto/wire/copy.h"
#include "proto/wire/event.h"
#include "proto/wire/memory.h"
#include "proto/wire/stream.h"
#include "server/base/logging.h"
#include "server/session/server_options.h"
#include "server/session/shared_events.h"
#include "server/session/shared_memory_objects.h"
#include "tests/server/daemon_fixture.h"
#include "tests/server/instant_device.h"
#include "tests/server/shared_memory/ring_test_client.h"
#include "tests/server/test_windows.h"

namespace detshare {
namespace {

using policy::kMicrosecond;
using policy::kMillisecond;

constexpr uint64_t kPart = uint64_t{1} << 30;
constexpr StreamId kStream = 1;
constexpr uint32_t kSlot = 0;

// A session of a latency tenant, and one of another tenant, on a device that can preempt.
struct Fixture {
  Fixture() {
    SetLogLevel(LogLevel::kError);
    device.EnablePreemption();
    options.windows = TestWindows();
    options.tenants = {{.name = "latency", .tenant_class = policy::TenantClass::kLatency},
                       {.name = "batch", .tenant_class = policy::TenantClass::kBatch}};
    DeviceScheduler::Options scheduling;
    scheduling.own_thread = false;
    auto created = DeviceScheduler::Create(device, *policy::CreatePolicy("priority", {}),
                                           options.tenants, clock, scheduling);
    REQUIRE(created.ok());
    scheduler = *std::move(created);
    clock.Advance(policy::kSecond);
    driver = Open(0, "latency");
    other = Open(1, "batch");
    scheduler->AskIfDue();
    client = std::make_unique<RingTestClient>(driver->session().region().header());

    Submit(Op::cuStreamCreateWithPriority, wire::cuStreamCreateWithPriority{kStream, 1, 1, 0});
    Submit(Op::cuMemAlloc_v2, wire::cuMemAlloc_v2{4096}, kSlot);
    Work();
    REQUIRE(client->slot(kSlot).state == kReplyDone);
    wire::cuMemAlloc_v2_Reply reply;
    std::memcpy(&reply, client->slot(kSlot).data, sizeof(reply));
    memory = reply.address;
    NeighbourWorks();
  }
  ~Fixture() {
    driver->Abandon();
    other->Abandon();
  }

  std::unique_ptr<SessionDriver> Open(int slot, const std::string& tenant) {
    SessionConfig config;
    config.id = static_cast<uint64_t>(slot) + 1;
    config.slot = slot;
    config.owner = {getuid(), getgid()};
    config.tenant = config.label = tenant;
    config.directory = directory.path + "/" + tenant;
    config.shared_memory_objects = &shared_memory_objects;
    config.shared_event_tokens = &shared_events;
    config.devices.push_back({.device = &device,
                              .queues = &queues,
                              .scheduler = scheduler.get(),
                              .memory_base = options.windows.device_base + slot * kPart,
                              .memory_bytes = kPart});
    auto opened = SessionDriver::Open(config, options);
    REQUIRE(opened.ok());
    return *std::move(opened);
  }
  void NeighbourWorks() {
    SchedEntity& entity = *other->session().devices()[0].coroutine->entity();
    entity.Update();
    entity.Started(policy::kSecond, /*counts=*/true);
  }

  template <typename Args>
  void Submit(Op op, const Args& args, uint32_t slot = kNoReply) {
    client->Submit(static_cast<uint16_t>(op), &args, sizeof(args), {}, slot);
  }
  void Fill() {
    Submit(Op::cuMemsetD2D32Async, wire::cuMemsetD2D32Async{memory, 0, 16, 1, 7, 1, kStream, 0});
  }
  // What the worker does once.
  void Work() {
    Session& session = driver->session();
    if (!driver->CollectsRecords(/*awaited=*/false)) {
      RingRecord record;
      for (bool any = false; session.reader().Read(&record) == RingReader::Result::kRecord;) {
        driver->MayRun();
        driver->HandleRecord(record);
        times_read += any ? 0 : 1;
        any = true;
      }
    }
    while (session.executor().Poll() != 0) {
    }
    driver->WatchWork(/*pause=*/true);
    REQUIRE(session.violation().empty());
  }
  void Pass(policy::Nanoseconds time) {
    for (policy::Nanoseconds passed = 0; passed < time; passed += kMicrosecond) {
      clock.Advance(kMicrosecond);
      Work();
    }
  }
  // A request of 10 ms, of which the client waits for the last record.
  void Request() {
    times_read = 0;
    for (int i = 0; i < 500; ++i) {
      Fill();
      Pass(20 * kMicrosecond);
    }
    Submit(Op::cuStreamSynchronize, wire::cuStreamSynchronize{kStream, 0, {1, 0, 0}});
    Pass(5 * kMillisecond);
  }

  TestDirectory directory;
  InstantDevice device;
  ManualClock clock;
  ServerOptions options;
  SharedMemoryObjects shared_memory_objects;
  SharedEvents shared_events;
  std::unique_ptr<DeviceScheduler> scheduler;
  QueuePool queues{device};
  std::unique_ptr<SessionDriver> driver, other;
  std::unique_ptr<RingTestClient> client;
  uint64_t memory = 0;
  int times_read = 0;
};

TEST_CASE_METHOD(Fixture, "An urgent session's known request is submitted in few collections") {
  Request();
  CHECK(times_read > 400);
  Request();
  CHECK(times_read < 10);
  CHECK_FALSE(device.held);
}

TEST_CASE_METHOD(Fixture, "Collections are counted and traced") {
  const SchedEntity& entity = *driver->session().devices()[0].coroutine->entity();
  Request();
  CHECK(entity.totals().collections == 0);
  REQUIRE(scheduler->StartTrace().ok());
  scheduler->AskIfDue();
  Request();
  const WorkTotals totals = entity.totals();
  CHECK(totals.collections > 0);
  CHECK(totals.collecting > 5 * kMillisecond);
  int64_t traced = 0;
  for (const DeviceScheduler::Traced& session : scheduler->FetchTrace()) {
    for (const TraceEvent& event : session.fetched.events)
      traced += event.kind == TraceEvent::Kind::kCollection ? event.duration : 0;
  }
  CHECK(traced == totals.collecting);
  scheduler->StopTrace();
}

TEST_CASE_METHOD(Fixture, "A collection ends with a record that somebody may wait for") {
  Request();
  times_read = 0;
  Fill();
  Pass(20 * kMicrosecond);
  REQUIRE(times_read == 0);
  SECTION("an event") {
    Submit(Op::cuEventRecordWithFlags, wire::cuEventRecordWithFlags{1, kStream, 0, 0, {}});
  }
  SECTION("a fence") {
    Submit(Op::cuStreamSynchronize, wire::cuStreamSynchronize{kStream, 0, {2, 0, 0}});
  }
  SECTION("a reply") { Submit(Op::cuMemAlloc_v2, wire::cuMemAlloc_v2{4096}, kSlot); }
  Work();
  CHECK(times_read == 1);
}

TEST_CASE_METHOD(Fixture, "A control call ends a collection") {
  Request();
  times_read = 0;
  Fill();
  Work();
  REQUIRE(times_read == 0);
  CHECK_FALSE(driver->CollectsRecords(/*awaited=*/true));
}

TEST_CASE_METHOD(Fixture, "Nothing is collected while no other session has work") {
  Request();
  SchedEntity& neighbour = *other->session().devices()[0].coroutine->entity();
  neighbour.Completed(neighbour.in_flight());
  neighbour.Idle();
  Request();
  CHECK(times_read > 400);
}

}  // namespace
}  // namespace detshare
