#include "coroutine_runtime/sched_entity.h"

#include <catch2/catch.hpp>

#include "tests/coroutine_runtime/engine_peers.h"
#include "tests/coroutine_runtime/fake_device.h"

namespace detshare {
namespace {

TEST_CASE("A coroutine counts as busy for higher ranks only") {
  SchedBoard board;
  board.busy += SchedBoard::One(3);
  CHECK_FALSE(board.BusyBelow(0));
  CHECK_FALSE(board.BusyBelow(3));
  CHECK(board.BusyBelow(4));
  CHECK(board.BusyBelow(7));
}

TEST_CASE("Bursts of one rank that run at once restrict others until the latest of their ends") {
  SchedBoard board;
  board.RestrictUntil(1, 100, /*begins=*/true);
  CHECK_FALSE(board.InContentionBelow(2, 50));  // no coroutine of the rank has work yet
  board.busy += SchedBoard::One(1);
  CHECK(board.InContentionBelow(2, 99));
  CHECK_FALSE(board.InContentionBelow(2, 100));
  CHECK_FALSE(board.InContentionBelow(1, 50));
  // Another burst begins, which ends earlier.
  board.RestrictUntil(1, 70, /*begins=*/true);
  board.busy += SchedBoard::One(1);
  CHECK(board.InContentionBelow(2, 99));
  // The first one is longer than it seemed.
  board.RestrictUntil(1, 200, /*begins=*/false);
  CHECK(board.InContentionBelow(2, 199));
  board.RestrictUntil(1, 150, /*begins=*/false);
  CHECK(board.InContentionBelow(2, 199));
  // Both have ended. The next burst does not inherit their end.
  board.busy -= 2 * SchedBoard::One(1);
  board.RestrictUntil(1, 120, /*begins=*/true);
  board.busy += SchedBoard::One(1);
  CHECK(board.InContentionBelow(2, 119));
  CHECK_FALSE(board.InContentionBelow(2, 120));
}

struct Entity {
  FakeDevice device;
  ManualClock clock;
  SchedBoard board;
  DurationTable durations{device.properties().sm_count};
  int news = 0;
  SchedEntity::News latest = SchedEntity::News::kNone;
  SchedEntity entity{board, durations, clock, [this](SchedEntity::News reason) {
                       ++news;
                       latest = reason;
                     }};

  Entity() { clock.Advance(1000); }
  SchedEntity::Assignment Assignment() {
    SchedEntity::Assignment assignment;
    assignment.followed = true;
    assignment.rank = 1;
    for (SchedEntity::BoundLimits* limits :
         {&assignment.idle, &assignment.contended, &assignment.tail}) {
      limits->partition = limits->long_partition = limits->yielding_partition = &device.whole();
    }
    return assignment;
  }
  void Publish(SchedEntity::Assignment assignment) {
    entity.Publish(std::move(assignment));
    entity.Update();
  }
};

struct GuardedEntity : Entity {
  int keepers = 0, sharers = 0;

  GuardedEntity() {
    board.keep_ordinary = [this](bool keep) { keepers += keep ? 1 : -1; };
    board.share_ordinary = [this](bool share) { sharers += share ? 1 : -1; };
    Publish(Assignment());
    board.AddUrgent(1);  // another coroutine has work
  }
  // Looks at the work every millisecond. Returns after how many of them the work keeps the device, at
  // most `most`.
  int KeptAfter(int most, bool ordinary = true) {
    for (int passed = 0; passed < most; ++passed) {
      entity.Proceed(ordinary);
      if (keepers == 1) return passed;
      clock.Advance(policy::kMillisecond);
    }
    return most;
  }
};

TEST_CASE_METHOD(GuardedEntity,
                 "Ordinary work that stands still keeps the device until it goes on") {
  entity.Started(policy::kMillisecond, true);
  entity.Started(policy::kMillisecond, true);
  CHECK(KeptAfter(1000) == 100);
  entity.Proceed(true);
  CHECK(keepers == 1);
  SECTION("a part of it ends") {
    entity.Completed(policy::kMillisecond);
    entity.Proceed(true);
    CHECK(keepers == 0);
    SECTION("and soon afterwards it stands still again") { CHECK(KeptAfter(1000) == 25); }
    SECTION("and much later it stands still again") {
      clock.Advance(policy::kSecond);
      entity.Completed(0);
      CHECK(KeptAfter(1000) == 100);
    }
    entity.Completed(policy::kMillisecond);
    entity.Idle();
    entity.Proceed(false);
  }
  SECTION("all of it ends, or moves to the urgent group") { entity.Proceed(false); }
  SECTION("it is not followed any more") { entity.Forget(); }
  CHECK(keepers == 0);
}

TEST_CASE_METHOD(GuardedEntity, "Work that takes as long as it should does not stand still") {
  entity.Started(policy::kSecond, true);
  CHECK(KeptAfter(10'000) == 4'000);
  entity.Forget();
}

TEST_CASE_METHOD(GuardedEntity, "Work makes progress in the pauses of urgent work") {
  entity.Started(policy::kMillisecond, true);
  CHECK(KeptAfter(90) == 90);
  board.AddUrgent(-1);
  CHECK(KeptAfter(300) == 300);
  board.AddUrgent(1);
  CHECK(KeptAfter(1000) == 100);
  entity.Forget();
  CHECK(keepers == 0);
}

TEST_CASE_METHOD(GuardedEntity,
                 "Work that only programs outside of the daemon can stop shares the device") {
  board.AddUrgent(-1);
  SchedEntity other(board, durations, clock, [](SchedEntity::News) {});
  const auto look = [&](int times, bool proceeds = false) {
    for (int i = 0; i < times; ++i) {
      if (proceeds) {
        entity.Completed(policy::kMillisecond);
        entity.Started(policy::kMillisecond, true);
      }
      entity.Proceed(true);
      clock.Advance(policy::kMillisecond);
    }
  };
  entity.Started(policy::kMillisecond, true);
  look(100);
  CHECK(sharers == 0);
  look(1);
  CHECK(sharers == 1);
  look(2000, /*proceeds=*/true);  // for twenty times as long as it stood still
  CHECK(sharers == 1);
  SECTION("until the time is over") { look(2, /*proceeds=*/true); }
  SECTION("until work of another session sees that the time is over") {
    entity.Forget();
    CHECK(sharers == 1);
    clock.Advance(policy::kMillisecond);
    other.Proceed(true);
  }
  CHECK(sharers == 0);
  CHECK(keepers == 0);
  entity.Forget();
}

TEST_CASE("Ordinary work shares the device as long as any session needs it") {
  SchedBoard board;
  int sharers = 0;
  board.share_ordinary = [&sharers](bool share) { sharers += share ? 1 : -1; };
  board.ShareOrdinary(1000, /*known=*/false);
  CHECK(board.native_until == 0);
  board.ShareOrdinary(100, /*known=*/true);
  CHECK(board.native_until == 100);
  board.EndSharing(1000);
  CHECK(sharers == 1);
  board.EndSharing(1001);
  board.EndSharing(1001);
  CHECK(sharers == 0);
}

TEST_CASE_METHOD(GuardedEntity, "Urgent work does not keep the device as ordinary work") {
  entity.Started(policy::kMillisecond, true);
  CHECK(KeptAfter(300, /*ordinary=*/false) == 300);
  entity.Forget();
}

TEST_CASE("A turn group enters when no work of another group is in the hardware") {
  SchedBoard board;
  CHECK(board.EnterTurn(false, 1));
  CHECK(board.EnterTurn(false, 1));
  CHECK_FALSE(board.EnterTurn(false, 2));
  CHECK_FALSE(board.EnterTurn(false, 0));
  CHECK(board.EnterTurn(true, 2));  // preempting work has turns of its own
  board.LeaveTurn(false);
  CHECK_FALSE(board.EnterTurn(false, 2));
  board.LeaveTurn(false);
  CHECK(board.EnterTurn(false, 0));
  CHECK_FALSE(board.EnterTurn(false, 1));
}

TEST_CASE_METHOD(Entity,
                 "A coroutine has its turn from its first record until its work is complete") {
  SchedEntity::Assignment assignment = Assignment();
  assignment.takes_turns = true;
  assignment.turn_group = 7;
  Publish(assignment);
  // Without a record, it keeps nobody out.
  CHECK_FALSE(entity.MayRun());
  REQUIRE(board.EnterTurn(false, 8));
  board.LeaveTurn(false);
  // A record that submits nothing.
  CHECK(entity.Throttle());
  CHECK(entity.report().throttled_since == 0);
  CHECK_FALSE(board.EnterTurn(false, 8));
  entity.Idle();
  REQUIRE(board.EnterTurn(false, 8));
  board.LeaveTurn(false);

  CHECK(entity.Throttle());
  entity.Started(100, true);
  entity.Started(200, true);
  CHECK(entity.report().in_flight_since == 1000);
  CHECK(entity.MayRun());
  clock.Advance(50);
  entity.Completed(100);
  CHECK_FALSE(board.EnterTurn(false, 8));
  entity.Completed(200);
  CHECK(entity.report().in_flight_since == 1050);
  CHECK(board.EnterTurn(false, 8));
}

TEST_CASE_METHOD(Entity, "A throttled coroutine does not pass into the turn of another group") {
  SchedEntity::Assignment assignment = Assignment();
  assignment.takes_turns = true;
  assignment.turn_group = 7;
  for (SchedEntity::BoundLimits* limits :
       {&assignment.idle, &assignment.contended, &assignment.tail}) {
    limits->window = 0;
    limits->max_throttle = 1000;
  }
  Publish(assignment);
  REQUIRE(board.EnterTurn(false, 8));
  CHECK_FALSE(entity.Throttle());
  clock.Advance(5000);
  CHECK_FALSE(entity.Throttle());
  CHECK_FALSE(entity.MayRun());
  // When that group has no work, the coroutine may pass, and keeps the others out meanwhile.
  board.LeaveTurn(false);
  CHECK_FALSE(entity.MayRun());
  CHECK(entity.Throttle());
  CHECK(entity.MayRun());
  CHECK_FALSE(board.EnterTurn(false, 8));
  entity.Started(10, true);
  CHECK_FALSE(entity.MayRun());
  entity.Completed(10);
  CHECK(board.EnterTurn(false, 8));
}

TEST_CASE_METHOD(Entity, "A coroutine whose turn group changes waits for its own work") {
  SchedEntity::Assignment assignment = Assignment();
  assignment.takes_turns = true;
  Publish(assignment);
  CHECK(entity.Throttle());
  entity.Started(100, true);
  assignment.turn_group = 7;
  Publish(assignment);
  CHECK_FALSE(entity.MayRun());
  entity.Completed(100);
  CHECK(entity.Throttle());
  CHECK_FALSE(board.EnterTurn(false, 0));
  // Its urgent work runs in the other time-slice group.
  entity.Started(100, true);
  assignment.preempts = true;
  Publish(assignment);
  CHECK(entity.MayRun());
  CHECK_FALSE(board.EnterTurn(false, 0));
  CHECK_FALSE(board.EnterTurn(true, 0));
  // The session turns out to be bound to the ordinary group.
  entity.NoteBoundTo(/*urgent=*/false);
  entity.Forget();
  REQUIRE(board.EnterTurn(false, 3));
  CHECK_FALSE(entity.Throttle());
}

TEST_CASE_METHOD(Entity, "Work in flight counts when turns begin") {
  SchedEntity::Assignment assignment = Assignment();
  Publish(assignment);
  entity.Started(100, true);
  CHECK(board.turns[0] == 0);
  assignment.takes_turns = true;
  Publish(assignment);
  CHECK_FALSE(board.EnterTurn(false, 8));
  entity.Completed(100);
  CHECK(board.EnterTurn(false, 8));
}

TEST_CASE_METHOD(Entity, "Bursts and the pauses between them are measured") {
  Publish(Assignment());
  entity.Started(100, true);
  entity.Started(300, true);
  clock.Advance(500);
  entity.Completed(400);
  entity.Idle();
  CHECK(entity.report().typical_burst == 400);
  CHECK(entity.report().changed_at == 1500);
  clock.Advance(700);
  entity.Started(800, true);
  CHECK(entity.report().typical_gap == 700);
  entity.Completed(800);
  entity.Idle();
  // Later bursts and pauses move the figures by an eighth of the way.
  CHECK(entity.report().typical_burst == 450);
  clock.Advance(1500);
  entity.Started(1, true);
  CHECK(entity.report().typical_gap == 800);
  CHECK(entity.report().longest_operation == 800);
}

TEST_CASE_METHOD(Entity, "A throttled session has work, though none of it is in the hardware") {
  SchedEntity::Assignment assignment = Assignment();
  assignment.idle.window = 0;
  assignment.idle.max_throttle = 5000;
  Publish(assignment);
  CHECK_FALSE(entity.MayRun());
  CHECK_FALSE(entity.Throttle());
  CHECK(board.throttled == 1);
  entity.Idle();
  CHECK(entity.report().has_work);
  CHECK(board.busy == SchedBoard::One(1));
  clock.Advance(5000);
  CHECK(entity.Throttle());
  CHECK(board.throttled == 0);
  CHECK(entity.MayRun());
  entity.Started(10, true);
  CHECK_FALSE(entity.MayRun());  // one operation, no more
  CHECK(entity.report().throttled_by_window == 5000);
  CHECK(entity.report().throttled_by_budget == 0);
}

TEST_CASE_METHOD(Entity, "A budget that is used up throttles as such, and is news") {
  SchedEntity::Assignment assignment = Assignment();
  assignment.budget = 100;
  assignment.idle.max_throttle = policy::kForever;
  Publish(assignment);
  CHECK(entity.MayRun());
  entity.Started(40, true);
  entity.NotifyScheduler();
  CHECK(latest == SchedEntity::News::kWork);
  const int before = news;
  entity.NotifyScheduler();
  CHECK(news == before);
  entity.Started(60, true);
  entity.NotifyScheduler();
  CHECK(news == before + 1);
  CHECK(latest == SchedEntity::News::kNow);
  CHECK_FALSE(entity.MayRun());
  CHECK_FALSE(entity.Throttle());
  entity.NotifyScheduler();
  CHECK(news == before + 2);
  CHECK(latest == SchedEntity::News::kNow);
  clock.Advance(300);
  Publish(assignment);
  CHECK(entity.MayRun());
  entity.EndThrottle();
  CHECK(entity.report().throttled_by_budget == 300);
  CHECK(entity.report().throttled_by_window == 0);
  CHECK(entity.report().throttled_since == 0);
}

// A session that shares the device with another process.
struct BesideProcess {
  FakeDevice device;
  ManualClock clock;
  EnginePage page, other;
  EnginePeers peers;
  DeviceTurn turn{page.devices[0].turn, peers, 0, clock, [this](bool keep) { keeps = keep; }};
  SchedBoard board;
  DurationTable durations{device.properties().sm_count};
  std::unique_ptr<SchedEntity> entity;
  bool keeps = false;
  int stands_still = 0;

  BesideProcess() {
    board.keep_ordinary =
        board.share_ordinary = [this](bool keep) { stands_still += keep ? 1 : -1; };
    clock.Advance(policy::kSecond);
    peers.own_id = 1;
    AddPeer(peers, 2, other);
    board.turn = &turn;
    entity = std::make_unique<SchedEntity>(board, durations, clock, [](SchedEntity::News) {});
    SchedEntity::Assignment assignment;
    assignment.followed = assignment.shares_device = true;
    entity->Publish(std::move(assignment));
    entity->Update();
    other.devices[0].turn.ticket = 1;  // the other process has the device
  }
  const TurnWords& words() const { return page.devices[0].turn; }
};

TEST_CASE_METHOD(BesideProcess,
                 "A session without work does not wait for the turn of its process any more") {
  entity->Started(100, true);
  CHECK(words().ticket != 0);
  entity->Completed(100);
  entity->Idle();
  CHECK(words().ticket == 0);
}

TEST_CASE_METHOD(
    BesideProcess,
    "A session that becomes urgent does not wait for the turn of its process any more") {
  entity->Started(100, true);
  CHECK(words().ticket != 0);
  SchedEntity::Assignment assignment;
  assignment.followed = assignment.shares_device = assignment.preempts = true;
  entity->Publish(std::move(assignment));
  entity->Update();
  CHECK(words().ticket == 0);
  // Its ordinary work is still in the hardware.
  entity->NoteUnknown(true);
  entity->Proceed(/*ordinary=*/true);
  const uint64_t ticket = words().ticket;
  CHECK(ticket != 0);
  clock.Advance(policy::kMillisecond);
  entity->Proceed(/*ordinary=*/true);
  CHECK(words().ticket == ticket);
}

TEST_CASE_METHOD(BesideProcess,
                 "Work that is in the hardware when another process comes takes its turns there") {
  entity->NoteUnknown(true);
  CHECK(words().busy != 0);
  entity->Proceed(/*ordinary=*/true);
  CHECK(words().ticket != 0);
  CHECK(words().overruns != 0);
  entity->Proceed(/*ordinary=*/true);
  other.devices[0].turn.ticket = 0;
  entity->Proceed(/*ordinary=*/true);  // it has the turn
  other.devices[0].turn.ticket = static_cast<uint64_t>(clock.NowNanoseconds());
  clock.Advance(DeviceTurn::kLength);
  entity->Proceed(/*ordinary=*/true);
  CHECK(words().overruns == 0);
  clock.Advance(DeviceTurn::kGrace);
  entity->Proceed(/*ordinary=*/true);
  CHECK(words().overruns == 1);
  CHECK(words().ticket > other.devices[0].turn.ticket);
  // A turn beside work of the other process that began without one: then this one stops it.
  other.devices[0].turn.overruns = 2;
  other.devices[0].turn.ticket = words().ticket + 1;
  entity->Proceed(/*ordinary=*/true);
  CHECK(words().overruns == 0);
  CHECK(keeps);
  CHECK(stands_still == 0);
  entity->NoteUnknown(false);
  entity->Idle();
  CHECK(words().busy == 0);
  CHECK(words().ticket == 0);
  CHECK_FALSE(keeps);
}

TEST_CASE_METHOD(BesideProcess,
                 "Work that yields has its contended limits beside lower ranks elsewhere") {
  SchedEntity::Assignment assignment;
  assignment.followed = assignment.shares_device = assignment.preempts = true;
  assignment.rank = 2;
  assignment.idle.window = 200;
  assignment.contended.window = 100;
  std::atomic<uint64_t>& busy = other.devices[0].turn.preempting;
  busy = SchedBoard::One(1);
  entity->Publish(assignment);
  entity->Update();
  CHECK(entity->Current().window == 200);
  assignment.yields_to_processes = true;
  entity->Publish(assignment);
  entity->Update();
  CHECK(entity->Current().window == 100);
  busy = SchedBoard::One(2) + SchedBoard::One(5);
  CHECK(entity->Current().window == 200);
}

TEST_CASE_METHOD(BesideProcess, "Other processes see preempting work that is not throttled") {
  SchedEntity::Assignment assignment;
  assignment.followed = assignment.shares_device = true;
  assignment.rank = 2;
  assignment.idle.window = assignment.contended.window = assignment.tail.window = 200;
  entity->Publish(assignment);
  entity->Update();
  entity->Started(100, true);
  CHECK(words().busy == SchedBoard::One(2));
  CHECK(words().preempting == 0);
  assignment.preempts = true;
  entity->Publish(assignment);
  entity->Update();
  CHECK(words().preempting == SchedBoard::One(2));
  assignment.rank = 1;
  entity->Publish(assignment);
  entity->Update();
  CHECK(words().preempting == SchedBoard::One(1));
  entity->Started(100, true);
  CHECK_FALSE(entity->MayRun());
  CHECK_FALSE(entity->Throttle());
  CHECK(words().preempting == SchedBoard::One(1));  // some of it is in the hardware
  entity->Completed(200);
  CHECK(words().preempting == 0);
  CHECK(words().busy == SchedBoard::One(1));
  CHECK(entity->Throttle());  // it goes on
  CHECK(words().preempting == SchedBoard::One(1));
  entity->Idle();
  CHECK(words().preempting == 0);
  // A session that is bound to the ordinary group does not preempt.
  entity->Started(100, true);
  entity->NoteBoundTo(/*urgent=*/false);
  CHECK(words().preempting == 0);
}

TEST_CASE_METHOD(BesideProcess,
                 "Work in flight is not bounded while no other process uses the device") {
  TurnWords& theirs = other.devices[0].turn;
  const auto wait = [&](policy::Nanoseconds time) {
    clock.Advance(time);
    entity->Proceed(/*ordinary=*/true);
  };
  const auto passes = [&] { return entity->MayRun() || entity->Throttle(); };
  theirs.ticket = 0;
  clock.Advance(DeviceTurn::kQuietAfter);
  REQUIRE(passes());
  entity->Started(10 * DeviceTurn::kWindow, true);
  CHECK(entity->MayRun());
  SECTION("Another one wants it, and may want it again") {
    theirs.ticket = static_cast<uint64_t>(clock.NowNanoseconds());
    wait(policy::kMillisecond);
    CHECK_FALSE(passes());
    theirs.ticket = 0;
  }
  SECTION("Another one has urgent work, and may have it again") {
    theirs.busy = SchedBoard::One(0);
    wait(policy::kMillisecond);
    CHECK_FALSE(passes());
    theirs.busy = 0;
  }
  wait(DeviceTurn::kQuietAfter / 2);
  CHECK_FALSE(passes());
  wait(DeviceTurn::kQuietAfter / 2);
  CHECK(entity->MayRun());
  // The policy's window holds.
  SchedEntity::Assignment assignment;
  assignment.followed = assignment.shares_device = true;
  assignment.idle.window = assignment.contended.window = assignment.tail.window =
      DeviceTurn::kWindow;
  entity->Publish(assignment);
  entity->Update();
  CHECK_FALSE(passes());
}

TEST_CASE_METHOD(BesideProcess, "Time in which only other processes throttle work is counted") {
  SchedEntity::Assignment assignment;
  assignment.followed = assignment.shares_device = assignment.preempts = true;
  assignment.yields_to_processes = true;
  assignment.rank = 2;
  assignment.idle.window = assignment.tail.window = 200;
  assignment.contended.window = 100;
  entity->Publish(assignment);
  entity->Update();
  const auto throttle = [&](policy::Nanoseconds time) {
    CHECK_FALSE(entity->MayRun());
    CHECK_FALSE(entity->Throttle());
    clock.Advance(time);
    CHECK_FALSE(entity->Throttle());
    return entity->report().yielded;
  };
  other.devices[0].turn.preempting = SchedBoard::One(0);
  entity->Started(100, true);
  CHECK(throttle(7) == 7);
  // Its own window is full.
  entity->Started(100, true);
  CHECK(throttle(1000) == 7);
  entity->Completed(100);
  other.devices[0].turn.preempting = 0;
  CHECK(entity->MayRun());
  CHECK(entity->report().yielded == 7);
}

TEST_CASE_METHOD(Entity, "A session that is forgotten leaves nothing on the board") {
  SchedEntity::Assignment assignment = Assignment();
  assignment.idle.window = 100;
  assignment.idle.long_operation = 100;
  Publish(assignment);
  entity.Started(100, true);
  CHECK(board.occupied == 1);
  CHECK_FALSE(entity.MayRun());
  CHECK_FALSE(entity.Throttle());
  entity.Forget();
  CHECK(board.busy == 0);
  CHECK(board.occupied == 0);
  CHECK(board.throttled == 0);
  CHECK(entity.report().in_flight == 0);
  CHECK_FALSE(entity.report().has_work);
}

TEST_CASE_METHOD(Entity, "Progress is looked at twice within the smallest window") {
  SchedEntity::Assignment assignment = Assignment();
  Publish(assignment);
  CHECK(entity.fence_every() == 5 * policy::kMillisecond);
  assignment.idle.window = 1000;
  assignment.contended.window = 400;
  assignment.tail.window = 0;
  Publish(assignment);
  CHECK(entity.fence_every() == 200);
}

TEST_CASE_METHOD(Entity, "The share of memory-bound work is that of device time which is known") {
  Publish(Assignment());
  CHECK(entity.report().memory_bound < 0);
  entity.NoteBound(100, -1);
  CHECK(entity.report().memory_bound < 0);
  entity.NoteBound(100, 1);
  entity.NoteBound(300, 0);
  CHECK(entity.report().memory_bound == Approx(0.25));
  CHECK(entity.totals().memory_bound == 100);
}

TEST_CASE_METHOD(Entity,
                 "A burst whose rank changes restricts the others of the new rank at once") {
  SchedEntity::Assignment assignment = Assignment();
  assignment.rank = 5;
  Publish(assignment);
  entity.Started(100, true);
  CHECK_FALSE(board.InContentionBelow(3, 2000));
  assignment.rank = 2;
  Publish(assignment);
  CHECK(board.InContentionBelow(3, 2000));
  CHECK_FALSE(board.InContentionBelow(2, 2000));
}

TEST_CASE_METHOD(Entity, "A session that is bound to the urgent group takes turns there") {
  SchedEntity::Assignment assignment = Assignment();
  assignment.takes_turns = true;
  assignment.turn_group = 7;
  Publish(assignment);
  entity.NoteBoundTo(/*urgent=*/true);
  CHECK(entity.Throttle());
  CHECK(board.EnterTurn(false, 8));
  CHECK_FALSE(board.EnterTurn(true, 8));
}

TEST_CASE_METHOD(Entity, "A token is late if it takes longer than promised for a token") {
  SchedEntity::Assignment assignment = Assignment();
  assignment.promise = {0, /*first_token=*/policy::kMillisecond, /*token=*/policy::kSecond};
  Publish(assignment);
  const auto token = [&] {
    entity.Started(2 * policy::kMillisecond, true);
    clock.Advance(2 * policy::kMillisecond);
    entity.Completed(2 * policy::kMillisecond);
    entity.Idle();
    entity.ResultRead();
  };
  for (int i = 0; i < 20; ++i) token();
  REQUIRE(entity.totals().tokens == 20);
  CHECK(entity.totals().late_tokens == 0);
  assignment.promise = {0, policy::kSecond, policy::kMillisecond};
  Publish(assignment);
  token();
  CHECK(entity.totals().late_tokens == 1);
}

TEST_CASE_METHOD(BesideProcess, "Work that stands still keeps the device only in its own turn") {
  entity->Started(policy::kMillisecond, true);
  const auto look = [&] {
    entity->Proceed(/*ordinary=*/true);
    other.devices[0].turn.urgent = 1;  // all the time
    clock.Advance(101 * policy::kMillisecond);
    entity->Proceed(/*ordinary=*/true);
    return stands_still;
  };
  CHECK(look() == 0);
  other.devices[0].turn.ticket = 0;
  CHECK(look() == 1);
  entity->Completed(policy::kMillisecond);
  entity->Idle();
  entity->Proceed(/*ordinary=*/false);
  CHECK(stands_still == 0);
}

}  // namespace
}  // namespace detshare
