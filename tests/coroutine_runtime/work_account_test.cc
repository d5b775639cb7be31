#include "coroutine_runtime/work_account.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "coroutine_runtime/gpu_coroutine.h"
#include "tests/coroutine_runtime/engine_peers.h"
#include "tests/coroutine_runtime/fake_device.h"

namespace detshare {
namespace {

struct BoardBesideProcess : SchedBoard {
  explicit BoardBesideProcess(DeviceTurn& of_process) { turn = &of_process; }
};

// A coroutine that an entity follows, with stream 1.
struct Followed {
  FakeDevice device;
  ManualClock clock;
  EnginePage page, other;
  EnginePeers peers;
  DeviceTurn turn{page.devices[0].turn, peers, 0, clock, [](bool) {}};
  BoardBesideProcess board{turn};
  DurationTable durations{device.properties().sm_count};
  SchedEntity entity{board, durations, clock, [](SchedEntity::News) {}};
  QueuePool pool{device};
  Executor executor;
  Parking parking;
  std::unique_ptr<GpuCoroutine> coroutine;  // destroyed after the space
  std::unique_ptr<AddressSpace> space = *device.CreateAddressSpace(1ull << 40, 1ull << 40);
  std::unique_ptr<Queue> queue = *device.whole().CreateQueue(0);
  FakeKernel kernel;

  // Without `kept`, the device sees all work at once.
  explicit Followed(size_t kept = 0, bool preempts = false) : parking(executor, kept) {
    if (preempts) device.EnablePreemption(1000);
    AddPeer(peers, 2, other);
    coroutine = *GpuCoroutine::Create(device, *space, pool, parking);
    SchedEntity::Assignment assignment;
    assignment.followed = true;
    for (SchedEntity::BoundLimits* limits :
         {&assignment.idle, &assignment.contended, &assignment.tail}) {
      limits->partition = limits->long_partition = limits->yielding_partition = &device.whole();
    }
    auto reference = std::make_shared<TraceReference>();
    reference->ordinary.marker = *device.CreateMarker(/*timed=*/true);
    REQUIRE(queue->Record(*reference->ordinary.marker).ok());
    assignment.trace = std::move(reference);
    entity.Publish(assignment);
    coroutine->Attach(entity);
    REQUIRE(coroutine->CreateStream(1, 1, {.non_blocking = true}).ok());
  }
  // Publishes the assignment again.
  void Follow(bool followed) {
    SchedEntity::Assignment assignment = entity.assignment();
    assignment.followed = assignment.shares_device = followed;
    entity.Publish(std::move(assignment));
  }
  ~Followed() { coroutine->Detach(); }
  const TurnWords& words() const { return page.devices[0].turn; }
};

TEST_CASE_METHOD(Followed, "The account watches work until it is complete") {
  CHECK_FALSE(coroutine->watching_work());
  REQUIRE(coroutine->Launch(1, kernel, {}, {}).ok());
  coroutine->WatchWork(/*pause=*/true);
  CHECK(coroutine->watching_work());
  device.RunAll();
  coroutine->WatchWork(/*pause=*/true);
  CHECK_FALSE(coroutine->watching_work());
}

TEST_CASE_METHOD(Followed, "Work from before it was followed counts until it is complete") {
  auto& fake_space = static_cast<FakeAddressSpace&>(*space);
  Follow(false);
  coroutine->WatchWork(/*pause=*/true);
  REQUIRE(coroutine->Launch(1, kernel, {}, {}).ok());
  fake_space.busy = GENERATE(true, false);
  coroutine->WatchWork(/*pause=*/true);
  CHECK_FALSE(coroutine->watching_work());
  Follow(true);
  coroutine->WatchWork(/*pause=*/true);
  CHECK(coroutine->watching_work() == fake_space.busy);
  CHECK((words().ticket != 0) == fake_space.busy);
  CHECK((words().busy != 0) == fake_space.busy);
  CHECK(entity.in_flight() == 0);
  SECTION("which is looked at now and then") {
    clock.Advance(policy::kMillisecond);
    coroutine->WatchWork(/*pause=*/false);
    CHECK(coroutine->watching_work() == fake_space.busy);
    fake_space.busy = false;
    clock.Advance(policy::kMillisecond);
    coroutine->WatchWork(/*pause=*/false);
  }
  SECTION("or it is not followed again") {
    Follow(false);
    coroutine->WatchWork(/*pause=*/false);
  }
  CHECK_FALSE(coroutine->watching_work());
  CHECK(words().ticket == 0);
  CHECK(words().busy == 0);
  device.RunAll();
}

struct FollowedAndParked : Followed {
  FollowedAndParked() : Followed(Parking::kMaxBytes) {}
};

TEST_CASE_METHOD(FollowedAndParked,
                 "Work that was kept before it was followed counts once the device has it") {
  auto& fake_space = static_cast<FakeAddressSpace&>(*space);
  Follow(false);
  coroutine->WatchWork(/*pause=*/true);
  std::atomic<uint64_t> go{0};
  REQUIRE(coroutine->WaitFence(1, &go, 1).ok());
  REQUIRE(coroutine->Launch(1, kernel, {}, {}).ok());
  Follow(true);
  for (int i = 0; i < 3; ++i) {
    coroutine->WatchWork(/*pause=*/true);
    CHECK_FALSE(coroutine->watching_work());
    CHECK(entity.in_flight() == 0);
    clock.Advance(policy::kMillisecond);
  }
  go = 1;
  executor.Poll();
  fake_space.busy = true;
  coroutine->WatchWork(/*pause=*/true);
  CHECK(words().ticket != 0);
  device.RunAll();
  fake_space.busy = false;
  clock.Advance(policy::kMillisecond);
  coroutine->WatchWork(/*pause=*/true);
  CHECK(words().ticket == 0);
  CHECK_FALSE(coroutine->watching_work());
}

TEST_CASE_METHOD(Followed, "Work behind a wait from before it was followed is parked") {
  Follow(false);
  coroutine->WatchWork(/*pause=*/true);
  std::atomic<uint64_t> go{0};
  REQUIRE(coroutine->WaitFence(1, &go, 1).ok());
  Follow(true);
  coroutine->WatchWork(/*pause=*/true);
  REQUIRE(coroutine->Launch(1, kernel, {}, {}).ok());
  CHECK(entity.in_flight() == 0);
  go = 1;
  device.RunAll();
  coroutine->WatchWork(/*pause=*/true);
  CHECK(entity.in_flight() > 0);
  device.RunAll();
  coroutine->WatchWork(/*pause=*/true);
  CHECK(entity.in_flight() == 0);
}

TEST_CASE_METHOD(Followed, "A traced operation of a destroyed stream is not watched for ever") {
  entity.trace().Start();
  std::atomic<uint64_t> go{0};
  REQUIRE(coroutine->WaitFence(1, &go, 1).ok());
  REQUIRE(coroutine->Copy(1, {}).ok());  // waits for the client, so it is parked
  coroutine->WatchWork(/*pause=*/true);
  CHECK(coroutine->watching_work());
  REQUIRE(coroutine->DestroyStream(1).ok());
  go = 1;
  device.RunAll();
  coroutine->WatchWork(/*pause=*/true);
  CHECK_FALSE(coroutine->watching_work());
}

TEST_CASE_METHOD(Followed, "An operation that waits counts as work until it is complete") {
  const bool traced = GENERATE(false, true);
  if (traced) entity.trace().Start();
  const auto submit = [](Queue&) { return absl::OkStatus(); };
  const DurationCache::Lookup known = entity.Look({7, 0}, {1, 1000});
  for (int i = 0; i < 2; ++i) {
    REQUIRE(coroutine->Submit(1, device.whole(), submit, &known, /*waits=*/true).ok());
    CHECK(entity.in_flight() == (i + 1) * known.operation->Estimate(0));
  }
  coroutine->WatchWork(/*pause=*/true);
  CHECK(coroutine->watching_work());
  CHECK(entity.working());
  device.RunAll();
  coroutine->WatchWork(/*pause=*/true);
  CHECK_FALSE(coroutine->watching_work());
  CHECK_FALSE(entity.working());
  CHECK_FALSE(known.operation->known());  // the time includes the wait
}

TEST_CASE_METHOD(Followed, "No traced operation begins before it was submitted") {
  // The device reaches the reference at once, when the daemon's clock is at 0.
  device.RunAll();
  entity.trace().Start();
  kernel.set_name("Scale");
  device.changeable().virtual_time = GENERATE(false, true);
  // The client waits a second before each operation but the third. An operation of the fake device
  // takes some milliseconds.
  constexpr policy::Nanoseconds kPause = policy::kSecond;
  for (const policy::Nanoseconds pause : {kPause, kPause, policy::Nanoseconds{0}, kPause}) {
    clock.Advance(pause);
    REQUIRE(coroutine->Launch(1, kernel, {}, {}).ok());
  }
  for (int i = 0; i < 4; ++i) {
    device.RunAll();
    coroutine->WatchWork(/*pause=*/true);
  }
  const std::vector<TraceEvent> events = entity.trace().Fetch().events;
  REQUIRE(events.size() == 4);
  for (size_t i = 0; i < events.size(); ++i) CHECK(events[i].at >= events[i].submitted);
  if (!device.properties().virtual_time) return;
  CHECK(events[1].at == events[1].submitted);
  // The operations of a stream do not overlap.
  CHECK(events[1].duration > 0);
  CHECK(events[2].at == events[1].at + events[1].duration);
  CHECK(events[3].at == events[3].submitted);
}

TEST_CASE_METHOD(Followed, "Work that waits for the client in two ways is parked until both end") {
  std::atomic<uint64_t> own{0}, others{0};
  REQUIRE(coroutine->CreateStream(2, 1, {.non_blocking = true}).ok());
  REQUIRE(coroutine->CreateEvent(1, 1, /*timed=*/false).ok());
  REQUIRE(coroutine->WaitFence(2, &others, 1).ok());
  REQUIRE(coroutine->RecordEvent(1, 2, nullptr, 0).ok());
  REQUIRE(coroutine->WaitFence(1, &own, 1).ok());
  REQUIRE(coroutine->WaitEvent(1, 1).ok());
  REQUIRE(coroutine->Launch(1, kernel, {}, {}).ok());
  const auto in_flight = [&] {
    device.RunAll();
    coroutine->WatchWork(/*pause=*/true);
    return entity.in_flight();
  };
  CHECK(in_flight() == 0);
  std::atomic<uint64_t>* first = &own;
  std::atomic<uint64_t>* second = &others;
  SECTION("its own wait ends first") {}
  SECTION("its own wait ends last") { std::swap(first, second); }
  *first = 1;
  CHECK(in_flight() == 0);
  *second = 1;
  CHECK(in_flight() > 0);
  CHECK(in_flight() == 0);
}

TEST_CASE_METHOD(Followed, "An operation beside which others began to work gives an upper bound") {
  const auto time_of = [&](uint32_t blocks, uint64_t others) {
    LaunchShape shape;
    shape.grid.x = blocks;
    REQUIRE(coroutine->Launch(1, kernel, shape, {}).ok());
    board.busy += others;
    device.RunAll();
    for (int i = 0; i < 2; ++i) {
      coroutine->WatchWork(/*pause=*/true);
      device.RunAll();
    }
    board.busy -= others;
    for (const OperationDurations::Record& record : durations.Records()) {
      if (record.blocks == blocks) return record.times[0];
    }
    return 0.0F;
  };
  CHECK(time_of(100, 0) > 0);
  CHECK(time_of(200, SchedBoard::One(5)) < 0);  // a bound is negative
}

TEST_CASE_METHOD(Followed,
                 "The time of a kernel that may have waited for its client is not learned") {
  REQUIRE(coroutine->Launch(1, kernel, {}, {}).ok());
  SchedEntity::Assignment assignment = entity.assignment();
  assignment.idle.window = assignment.contended.window = assignment.tail.window = 0;
  assignment.idle.max_throttle = assignment.contended.max_throttle = assignment.tail.max_throttle =
      100 * policy::kMillisecond;
  entity.Publish(assignment);
  clock.Advance(policy::kSecond);
  REQUIRE_FALSE(entity.MayRun());
  REQUIRE_FALSE(entity.Throttle());
  clock.Advance(100 * policy::kMillisecond);
  REQUIRE(entity.Throttle());
  // The kernel ends soon after an operation passed, or long after that.
  const policy::Nanoseconds after = GENERATE(1, 500) * policy::kMillisecond;
  clock.Advance(after);
  device.RunAll();
  for (int i = 0; i < 2; ++i) {
    coroutine->WatchWork(/*pause=*/true);
    device.RunAll();
  }
  CHECK(durations.Records().empty() == (after == policy::kMillisecond));
}

TEST_CASE_METHOD(Followed, "A call that waits for other sessions gives up the turn") {
  SchedEntity::Assignment assignment = entity.assignment();
  assignment.takes_turns = assignment.shares_device = true;
  assignment.turn_group = 1;
  entity.Publish(assignment);
  coroutine->WatchWork(/*pause=*/true);
  // Whether another group of the board may submit work.
  const auto others_enter = [&] {
    const bool entered = board.EnterTurn(/*preempting=*/false, 2);
    if (entered) board.LeaveTurn(/*preempting=*/false);
    return entered;
  };
  REQUIRE(coroutine->Launch(1, kernel, {}, {}).ok());
  CHECK_FALSE(others_enter());
  CHECK(words().ticket != 0);

  SECTION("once its work is complete") {
    coroutine->SuspendCall();
    CHECK_FALSE(others_enter());
    device.RunAll();
    coroutine->SuspendCall();
    CHECK(others_enter());
    CHECK(words().ticket == 0);
    CHECK(coroutine->ResumeCall());
    CHECK(entity.in_flight() == 0);
  }
  SECTION("and its operation waits for another one") {
    int calls = 0;
    device.submitting = [&] {
      ++calls;
      coroutine->SuspendCall();
      device.RunAll();
      coroutine->SuspendCall();
      CHECK(entity.in_flight() == 0);
      CHECK(words().ticket == 0);
      REQUIRE(board.EnterTurn(/*preempting=*/false, 2));
      CHECK_FALSE(coroutine->ResumeCall());
      coroutine->SuspendCall();
      CHECK_FALSE(coroutine->ResumeCall());
      board.LeaveTurn(/*preempting=*/false);
      CHECK(coroutine->ResumeCall());
      CHECK(entity.in_flight() > 0);
      CHECK_FALSE(others_enter());
      CHECK(words().ticket != 0);
      // The device was not idle, so the call waits again.
      coroutine->SuspendCall();
      CHECK(entity.in_flight() == 0);
      CHECK(others_enter());
      CHECK(coroutine->ResumeCall());
    };
    REQUIRE(coroutine->Launch(1, kernel, {}, {}).ok());
    CHECK(calls == 1);
    CHECK(entity.in_flight() > 0);
    CHECK_FALSE(others_enter());
  }
  SECTION("also if the device refuses the operation in the end") {
    device.cooperative_limit = 1;
    device.submitting = [&] {
      coroutine->SuspendCall();
      device.RunAll();
      coroutine->SuspendCall();
    };
    LaunchShape too_large;
    too_large.cooperative = true;
    too_large.grid.x = 1000;
    CHECK_FALSE(coroutine->Launch(1, kernel, too_large, {}).ok());
    CHECK(entity.in_flight() == 0);
  }
  SECTION("and nothing counts once work is not followed any more") {
    device.submitting = [&] {
      Follow(false);
      coroutine->SuspendCall();
      CHECK(coroutine->ResumeCall());
    };
    REQUIRE(coroutine->Launch(1, kernel, {}, {}).ok());
    CHECK(entity.in_flight() == 0);
  }
  device.submitting = nullptr;
  coroutine->WatchWork(/*pause=*/true);
  device.RunAll();
  coroutine->WatchWork(/*pause=*/true);
  CHECK(entity.in_flight() == 0);
  CHECK(others_enter());
  CHECK(words().ticket == 0);
}

TEST_CASE_METHOD(Followed,
                 "Work behind a launch waits for it, whatever changed while the launch waited") {
  REQUIRE(coroutine->Launch(1, kernel, {}, {}).ok());
  device.submitting = [&] {
    SchedEntity::Assignment assignment = entity.assignment();
    assignment.urgent = assignment.preempts = true;
    entity.Publish(std::move(assignment));
    coroutine->SuspendCall();
    CHECK(coroutine->ResumeCall());
  };
  REQUIRE(coroutine->Launch(1, kernel, {}, {}).ok());
  device.submitting = nullptr;
  REQUIRE(coroutine->Launch(1, kernel, {}, {}).ok());
  REQUIRE(device.operations.size() == 3);
  CHECK(device.operations[2].priority != device.operations[1].priority);
  CHECK(device.operations[1].before == History{0});
  CHECK(device.operations[2].before == History{0, 1});
}

TEST_CASE_METHOD(
    Followed,
    "The legacy stream waits for a launch that waited while the legacy stream was observed") {
  REQUIRE(coroutine->CreateStream(2, 1, {.legacy_default = true}).ok());
  REQUIRE(coroutine->CreateStream(3, 1, {}).ok());
  REQUIRE(coroutine->Launch(2, kernel, {}, {}).ok());
  device.submitting = [&] {
    coroutine->SuspendCall();
    CHECK(coroutine->ResumeCall());
  };
  REQUIRE(coroutine->Launch(3, kernel, {}, {}).ok());
  device.submitting = nullptr;
  SECTION("before its next operation") {
    REQUIRE(coroutine->Launch(2, kernel, {}, {}).ok());
    REQUIRE(device.operations.size() == 3);
    CHECK(device.operations[1].before == History{0});
    CHECK(device.operations[2].before == History{0, 1});
  }
  std::atomic<uint64_t> fence{0};
  SECTION("when the client waits for it") {
    REQUIRE(coroutine->Signal(2, &fence, 1).ok());
    CHECK(device.fences.at({&fence, 1}) == History{0, 1});
  }
  device.RunAll();
}

TEST_CASE_METHOD(Followed, "Work that begins to be followed while it waits is known") {
  auto& fake_space = static_cast<FakeAddressSpace&>(*space);
  Follow(false);
  coroutine->WatchWork(/*pause=*/true);
  device.submitting = [&] {
    Follow(true);
    coroutine->SuspendCall();
    CHECK(coroutine->ResumeCall());
  };
  REQUIRE(coroutine->Launch(1, kernel, {}, {}).ok());
  device.submitting = nullptr;
  fake_space.busy = true;
  for (int i = 0; i < 3; ++i) {
    clock.Advance(policy::kMillisecond);
    coroutine->WatchWork(/*pause=*/true);
    CHECK(coroutine->watching_work());
    CHECK(words().ticket != 0);
  }
  fake_space.busy = false;
  device.RunAll();
}

TEST_CASE_METHOD(FollowedAndParked, "Kept work that waits when it is passed on is known") {
  auto& fake_space = static_cast<FakeAddressSpace&>(*space);
  Follow(false);
  coroutine->WatchWork(/*pause=*/true);
  std::atomic<uint64_t> go{0};
  REQUIRE(coroutine->WaitFence(1, &go, 1).ok());
  REQUIRE(coroutine->Launch(1, kernel, {}, {}).ok());
  Follow(true);
  coroutine->WatchWork(/*pause=*/true);
  clock.Advance(policy::kMillisecond);
  device.submitting = [&] {
    coroutine->SuspendCall();
    CHECK(coroutine->ResumeCall());
  };
  go = 1;
  executor.Poll();
  device.submitting = nullptr;
  fake_space.busy = true;
  clock.Advance(policy::kMillisecond);
  coroutine->WatchWork(/*pause=*/true);
  CHECK(words().ticket != 0);
  fake_space.busy = false;
  device.RunAll();
}

TEST_CASE_METHOD(FollowedAndParked,
                 "The legacy stream waits for a kept launch that waits when it is passed on") {
  REQUIRE(coroutine->CreateStream(2, 1, {.legacy_default = true}).ok());
  REQUIRE(coroutine->CreateStream(3, 1, {}).ok());
  REQUIRE(coroutine->Launch(2, kernel, {}, {}).ok());
  std::atomic<uint64_t> go{0};
  REQUIRE(coroutine->WaitFence(3, &go, 1).ok());
  REQUIRE(coroutine->Launch(3, kernel, {}, {}).ok());
  device.submitting = [&] {
    coroutine->SuspendCall();
    CHECK(coroutine->ResumeCall());
  };
  go = 1;
  executor.Poll();
  device.submitting = nullptr;
  REQUIRE(device.operations.size() == 2);
  REQUIRE(coroutine->Launch(2, kernel, {}, {}).ok());
  REQUIRE(device.operations.size() == 3);
  CHECK(device.operations[2].before == History{0, 1});
  device.RunAll();
}

TEST_CASE("Kept work stays in order while a kept launch waits, also at the limit of what is kept") {
  int tried = 0;
  for (size_t kept = 1000; kept < 20000; kept += 50) {
    Followed followed(kept);
    GpuCoroutine& coroutine = *followed.coroutine;
    FakeDevice& device = followed.device;
    REQUIRE(coroutine.CreateStream(2, 1, {.legacy_default = true}).ok());
    std::atomic<uint64_t> go{0}, other{0};
    REQUIRE(coroutine.WaitFence(1, &go, 1).ok());
    for (uint32_t tag : {1, 2}) {
      LaunchShape shape;
      shape.dynamic_shared_bytes = tag;
      REQUIRE(coroutine.Launch(1, followed.kernel, shape, {}).ok());
    }
    // Behind kept work of the legacy stream.
    REQUIRE(coroutine.WaitFence(2, &other, 1).ok());
    for (StreamId stream = 3; stream < 19; ++stream) {
      REQUIRE(coroutine.CreateStream(stream, 1, {}).ok());
      REQUIRE(coroutine.Launch(stream, followed.kernel, {}, {}).ok());
    }
    if (device.operations.empty()) {
      ++tried;
      bool first = true;
      device.submitting = [&] {
        if (!std::exchange(first, false)) return;
        coroutine.SuspendCall();
        CHECK(coroutine.ResumeCall());
      };
      go = 1;
      followed.executor.Poll();
      device.submitting = nullptr;
      INFO("kept: " << kept);
      std::vector<uint64_t> tags;
      for (const FakeDevice::Operation& operation : device.operations) {
        if (operation.tag != 0) tags.push_back(operation.tag);
      }
      CHECK(tags == std::vector<uint64_t>{1, 2});
    }
    go = other = 1;
    followed.executor.Poll();
    device.RunAll();
  }
  CHECK(tried > 0);
}

TEST_CASE_METHOD(Followed, "What is followed may change several times while an operation waits") {
  auto& fake_space = static_cast<FakeAddressSpace&>(*space);
  coroutine->WatchWork(/*pause=*/true);
  device.submitting = [&] {
    coroutine->SuspendCall();
    Follow(false);
    coroutine->SuspendCall();
    CHECK(coroutine->ResumeCall());
    Follow(true);
    for (int i = 0; i < 3; ++i) {
      coroutine->SuspendCall();
      CHECK(entity.in_flight() >= 0);
    }
    CHECK(coroutine->ResumeCall());
  };
  REQUIRE(coroutine->Launch(1, kernel, {}, {}).ok());
  device.submitting = nullptr;
  fake_space.busy = true;
  for (int i = 0; i < 3; ++i) {
    clock.Advance(policy::kMillisecond);
    coroutine->WatchWork(/*pause=*/true);
    CHECK(coroutine->watching_work());
    CHECK(words().ticket != 0);
  }
  fake_space.busy = false;
  device.RunAll();
}

TEST_CASE_METHOD(FollowedAndParked,
                 "A kept launch that waits when it is passed on gives up the turn") {
  SchedEntity::Assignment assignment = entity.assignment();
  assignment.takes_turns = assignment.shares_device = true;
  assignment.turn_group = 1;
  entity.Publish(assignment);
  coroutine->WatchWork(/*pause=*/true);
  std::atomic<uint64_t> go{0};
  REQUIRE(coroutine->WaitFence(1, &go, 1).ok());
  const int launches = GENERATE(1, 2);
  for (int i = 0; i < launches; ++i) REQUIRE(coroutine->Launch(1, kernel, {}, {}).ok());
  bool first = true;
  device.submitting = [&] {
    if (!std::exchange(first, false)) return;
    for (int i = 0; i < 4; ++i) {
      device.RunAll();
      coroutine->SuspendCall();
    }
    const bool entered = board.EnterTurn(/*preempting=*/false, 2);
    CHECK(entered);
    CHECK(words().ticket == 0);
    if (entered) board.LeaveTurn(/*preempting=*/false);
    CHECK(coroutine->ResumeCall());
  };
  go = 1;
  executor.Poll();
  device.submitting = nullptr;
  REQUIRE(device.operations.size() == static_cast<size_t>(launches));
  device.RunAll();
}

TEST_CASE_METHOD(FollowedAndParked, "Work behind a wait of the legacy stream is parked") {
  REQUIRE(coroutine->CreateStream(2, 1, {.legacy_default = true}).ok());
  REQUIRE(coroutine->CreateStream(3, 1, {}).ok());
  std::atomic<uint64_t> go{0};
  REQUIRE(coroutine->WaitFence(2, &go, 1).ok());
  REQUIRE(coroutine->Launch(3, kernel, {}, {}).ok());
  coroutine->WatchWork(/*pause=*/true);
  device.RunAll();
  CHECK(entity.in_flight() == 0);
  go = 1;
  executor.Poll();
  device.RunAll();
}

struct FollowedAndUrgent : Followed {
  FollowedAndUrgent() : Followed(0, /*preempts=*/true) {}
};

TEST_CASE_METHOD(FollowedAndUrgent,
                 "Ordinary work of an urgent session is guarded, also if its submission waited") {
  bool keeps = false;
  board.keep_ordinary = [&](bool keep) { keeps |= keep; };
  board.share_ordinary = [](bool) {};
  board.urgent = 1;  // another session has urgent work
  SchedEntity::Assignment assignment = entity.assignment();
  assignment.urgent = assignment.preempts = true;
  entity.Publish(assignment);
  coroutine->WatchWork(/*pause=*/true);
  REQUIRE(coroutine->Launch(1, kernel, {}, {}).ok());
  CHECK(space->urgent());
  device.RunAll();
  const bool waits = GENERATE(false, true);
  INFO("waits: " << waits);
  REQUIRE(coroutine
              ->Submit(1, device.whole(),
                       [&](Queue& on) {
                         for (int i = 0; waits && i < 4; ++i) {
                           device.RunAll();
                           clock.Advance(10 * policy::kMillisecond);
                           coroutine->SuspendCall();
                         }
                         CHECK(coroutine->ResumeCall());
                         return on.Launch(*space, kernel, {}, {});
                       })
              .ok());
  for (int i = 0; i < 1000; ++i) {
    clock.Advance(10 * policy::kMillisecond);
    coroutine->WatchWork(/*pause=*/true);
  }
  CHECK(keeps);
  board.urgent = 0;
  device.RunAll();
}

TEST_CASE_METHOD(Followed, "The time of an operation is not learned if its submission waited") {
  const bool waits = GENERATE(false, true);
  device.submitting = [&] {
    device.RunAll();
    device.now += 1000;
    if (!waits) return;
    coroutine->SuspendCall();
    CHECK(coroutine->ResumeCall());
  };
  REQUIRE(coroutine->Launch(1, kernel, {}, {}).ok());
  device.submitting = nullptr;
  device.RunAll();
  for (int i = 0; i < 2; ++i) {
    coroutine->WatchWork(/*pause=*/true);
    device.RunAll();
  }
  CHECK(durations.Records().empty() == waits);
}

TEST_CASE_METHOD(Followed, "Only calls of the session's thread give up its turn") {
  struct Counted : CallWait {
    void Suspend() override { ++suspended; }
    bool Resume() override { return false; }
    int suspended = 0;
  } counted;
  space->SuspendCall();
  CHECK(space->ResumeCall());
  space->set_call_wait(&counted);
  space->SuspendCall();
  CHECK_FALSE(space->ResumeCall());
  std::thread([&] {
    space->SuspendCall();
    CHECK(space->ResumeCall());
  }).join();
  CHECK(counted.suspended == 1);
}

}  // namespace
}  // namespace detshare
