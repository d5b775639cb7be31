#include "coroutine_runtime/device_scheduler.h"

#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include "coroutine_runtime/by_tenant.h"
#include "coroutine_runtime/device_turn.h"
#include "policy/registry.h"
#include "tests/coroutine_runtime/engine_peers.h"
#include "tests/coroutine_runtime/scripted_policy.h"

namespace detshare {
namespace {

using policy::kForever;
using policy::kMicrosecond;
using policy::kMillisecond;
using policy::Nanoseconds;

struct Fixture {
  FakeDevice device;
  ManualClock clock;
  ScriptedPolicy* policy = nullptr;
  std::vector<std::string> failures;  // to open the urgent group
  std::unique_ptr<DeviceScheduler> scheduler;
  std::unique_ptr<QueuePool> pool;  // destroyed before the scheduler

  Fixture() { clock.Advance(1); }
  void Make(std::vector<policy::SmRange> ranges, uint32_t migrate_every = 0) {
    auto owned = std::make_unique<ScriptedPolicy>();
    owned->ranges = std::move(ranges);
    policy = owned.get();
    DeviceScheduler::Options options;
    options.own_thread = false;
    options.migrate_every = migrate_every;
    options.not_opened = [this](const absl::Status& why) { failures.emplace_back(why.message()); };
    scheduler = *DeviceScheduler::Create(device, std::move(owned), {}, clock, options);
    pool = std::make_unique<QueuePool>(device);
  }
  // The first session goes first. The second session has these limits.
  void GiveSecond(policy::Limits idle, policy::Limits contended, Nanoseconds budget = kForever) {
    policy->decide = [=](const policy::Snapshot&, policy::Decision* decision) {
      if (decision->grants.size() < 2) return;
      decision->grants[1].rank = 1;
      decision->grants[1].idle = idle;
      decision->grants[1].contended = contended;
      decision->grants[1].budget = budget;
    };
  }
  static policy::Limits Window(Nanoseconds window) {
    policy::Limits limits;
    limits.window = window;
    return limits;
  }
};

constexpr Nanoseconds kDuration = ScheduledSession::kDuration;

TEST_CASE_METHOD(
    Fixture,
    "A new session is bound at once, and the sessions that it moves at their next record") {
  Make({{0, 8}, {8, 8}});
  policy->watches = false;
  policy->decide = [](const policy::Snapshot&, policy::Decision* decision) {
    for (policy::Grant& grant : decision->grants) grant.idle.partition = 2;
    if (!decision->grants.empty()) decision->grants.back().idle.partition = 1;
  };
  ScheduledSession one(device, *pool, *scheduler, 1);
  CHECK(one.Launch() == 0);
  {
    ScheduledSession two(device, *pool, *scheduler, 2);
    CHECK(two.Launch() == 0);
    CHECK(one.TryLaunch());
    CHECK(device.operations.back().first_sm == 8);
    CoroutineState state;
    REQUIRE(scheduler->StateOf(1, &state));
    CHECK(state.partition == "sm8-15");
    REQUIRE(scheduler->StateOf(2, &state));
    CHECK(state.partition == "sm0-7");
    CHECK_FALSE(state.followed);
    const auto views = scheduler->Partitions();
    REQUIRE(views.size() == 3);
    CHECK(views[0].name == "all");
    CHECK(views[0].sm_count == 16);
    CHECK(views[0].sessions == 0);
    CHECK(views[1].sessions == 1);
    CHECK(views[2].first_sm == 8);
  }
  CHECK(one.TryLaunch());
  CHECK(device.operations.back().first_sm == 0);
  CoroutineState state;
  CHECK_FALSE(scheduler->StateOf(2, &state));
}

TEST_CASE_METHOD(Fixture,
                 "While the device makes a partition, sessions come, go and get decisions") {
  Make({});
  ScheduledSession one(device, *pool, *scheduler, 1);
  auto next = std::make_unique<ScriptedPolicy>();
  next->ranges = {{8, 8}};
  device.before_partition = [&](int) {
    // The former policy is in force.
    ScheduledSession two(device, *pool, *scheduler, 2);
    CHECK(policy->seen.size() == 2);
    CHECK(scheduler->Partitions().size() == 1);
  };
  REQUIRE(scheduler->SetPolicy(std::move(next)).ok());
  CHECK(scheduler->Partitions().size() == 2);
}

TEST_CASE_METHOD(Fixture, "A policy that comes while the device makes a partition gets its own") {
  Make({});
  auto slow = std::make_unique<ScriptedPolicy>(), quick = std::make_unique<ScriptedPolicy>();
  slow->ranges = {{8, 8}, {8, 8}};
  quick->ranges = {{0, 8}, {8, 8}};
  device.before_partition = [&](int first) {
    if (first == 8 && quick != nullptr) REQUIRE(scheduler->SetPolicy(std::move(quick)).ok());
  };
  REQUIRE(scheduler->SetPolicy(std::move(slow)).ok());
  const auto views = scheduler->Partitions();
  REQUIRE(views.size() == 3);
  CHECK(views[1].first_sm == 0);
  CHECK(views[2].first_sm == 8);
}

TEST_CASE_METHOD(Fixture, "A policy whose partition the device refuses does not come into force") {
  Make({});
  ScheduledSession one(device, *pool, *scheduler, 1);
  const int asked = policy->asked;
  auto next = std::make_unique<ScriptedPolicy>();
  next->ranges = {{8, 8}};
  device.refuses_partitions = true;
  CHECK_FALSE(scheduler->SetPolicy(std::move(next)).ok());
  CHECK(scheduler->Partitions().size() == 1);
  ScheduledSession two(device, *pool, *scheduler, 2);
  CHECK(policy->asked == asked + 1);
}

TEST_CASE("Policy static runs on the partitions that it announced") {
  FakeDevice device;
  ManualClock clock;
  policy::Tenant a;
  a.name = "a";
  a.sm_percent = 50;
  DeviceScheduler::Options options;
  options.own_thread = false;
  auto scheduler =
      *DeviceScheduler::Create(device, *policy::CreatePolicy("static", {}), {a}, clock, options);
  QueuePool pool(device);
  ScheduledSession one(device, pool, *scheduler, 1, "other"), two(device, pool, *scheduler, 2, "a");
  CHECK(one.Launch() == 8);
  CHECK(two.Launch() == 0);
}

TEST_CASE_METHOD(
    Fixture,
    "No coroutine is followed or throttled while it is alone or the policy asks for no limits") {
  Make({});
  GiveSecond(Window(0), Window(0));
  ScheduledSession one(device, *pool, *scheduler, 1);
  CHECK(one.LaunchAll(100) == 100);
  CHECK(device.fences.empty());
  policy->watches = false;
  ScheduledSession two(device, *pool, *scheduler, 2);
  CHECK(two.LaunchAll(100) == 100);
  CHECK(device.fences.empty());
  CHECK(policy->asked == 2);  // once for each session that came
}

TEST_CASE_METHOD(Fixture,
                 "A window bounds the work in flight, and is exceeded by one operation at most") {
  Make({});
  GiveSecond(Window(10 * kDuration), Window(10 * kDuration));
  ScheduledSession one(device, *pool, *scheduler, 1), two(device, *pool, *scheduler, 2);
  CHECK(two.LaunchAll(100) == 10);
  CHECK(two.LaunchAll(100) == 0);
  CHECK(one.LaunchAll(100) == 100);  // it has no window
  // Nothing has run, so nothing more may go. When all work has run, the window is free again.
  device.RunAll();
  CHECK(two.LaunchAll(100) == 10);
  // Fences in the middle show which part of the work in flight is complete.
  CHECK(device.fences.size() >= 2);
}

TEST_CASE_METHOD(Fixture, "Work of two turn groups is never in the hardware at the same time") {
  Make({});
  policy->watches = false;
  policy->takes_turns = true;
  policy->decide = [](const policy::Snapshot& snapshot, policy::Decision* decision) {
    for (size_t i = 0; i < decision->grants.size(); ++i)
      decision->grants[i].turn_group = std::min<uint64_t>(snapshot.coroutines[i].id, 2);
  };
  ScheduledSession one(device, *pool, *scheduler, 1);
  // The work of a session that is alone counts when another session comes.
  CHECK(one.LaunchAll(10) == 10);
  ScheduledSession two(device, *pool, *scheduler, 2), three(device, *pool, *scheduler, 3);
  CHECK(two.LaunchAll(10) == 0);
  clock.Advance(policy::kSecond);  // longer than any throttle
  CHECK(two.LaunchAll(10) == 0);
  CHECK(one.LaunchAll(10) == 10);
  one.Pause();  // puts a fence behind the work
  CHECK(two.LaunchAll(10) == 0);
  device.RunAll();
  CHECK(two.LaunchAll(10) == 0);
  one.Pause();  // finds it complete
  CHECK(two.LaunchAll(10) == 10);
  CHECK(three.LaunchAll(10) == 10);  // of the same group
  CHECK(one.LaunchAll(10) == 0);
  two.Pause();
  three.Pause();
  device.RunAll();
  two.Pause();
  CHECK(one.LaunchAll(10) == 0);
  three.Pause();
  CHECK(one.LaunchAll(10) == 10);
}

TEST_CASE_METHOD(Fixture, "A window of 0 lets one operation through after each maximum throttle") {
  Make({});
  policy::Limits none = Window(0);
  none.max_throttle = 5 * kMillisecond;
  GiveSecond(none, none);
  ScheduledSession one(device, *pool, *scheduler, 1), two(device, *pool, *scheduler, 2);
  CHECK(two.LaunchAll(100) == 0);
  clock.Advance(5 * kMillisecond - 1);
  CHECK(two.LaunchAll(100) == 0);
  clock.Advance(1);
  CHECK(two.LaunchAll(100) == 1);
  clock.Advance(5 * kMillisecond);
  CHECK(two.LaunchAll(100) == 1);
  CoroutineState state;
  REQUIRE(scheduler->StateOf(2, &state));
  CHECK(state.figures.passes == 2);
  CHECK(state.figures.throttled_by_window == 10 * kMillisecond);
}

TEST_CASE_METHOD(Fixture,
                 "A contended coroutine has its contended limits until the first one has no work") {
  Make({});
  GiveSecond(Window(kForever), Window(0));
  ScheduledSession one(device, *pool, *scheduler, 1), two(device, *pool, *scheduler, 2);
  CHECK(two.LaunchAll(20) == 20);
  one.Launch();
  CHECK(two.LaunchAll(20) == 0);
  CHECK(one.LaunchAll(20) == 20);  // the session that goes first is never contended
  // The other session sees the end of its work without the policy and without another thread.
  const int asked = policy->asked;
  one.Pause();
  CHECK(two.LaunchAll(20) == 0);
  device.RunAll();
  CHECK(two.LaunchAll(20) == 0);
  one.Pause();
  CHECK(two.LaunchAll(20) == 20);
  CHECK(policy->asked == asked);
}

struct TailFixture : Fixture {
  // The first session restricts the second one for half of a burst. A burst of four launches is
  // long.
  TailFixture() {
    Make({});
    policy->decide = [](const policy::Snapshot&, policy::Decision* decision) {
      if (decision->grants.size() < 2) return;
      decision->grants[0].contention_phase = 0.5;
      decision->grants[1].rank = 1;
      decision->grants[1].idle.long_operation = 4 * kDuration;
      decision->grants[1].contended.window = 0;
      decision->grants[1].tail = decision->grants[1].idle;
      decision->grants[1].tail->window = 2 * kDuration;
    };
    one = std::make_unique<ScheduledSession>(device, *pool, *scheduler, 1);
    two = std::make_unique<ScheduledSession>(device, *pool, *scheduler, 2);
  }
  void End(ScheduledSession& session) {
    session.Pause();
    device.RunAll();
    session.Pause();
  }
  std::unique_ptr<ScheduledSession> one, two;  // destroyed before the scheduler
};

TEST_CASE_METHOD(TailFixture,
                 "A burst restricts others for a part of its typical length, then less") {
  one->LaunchAll(4);
  clock.Advance(kMillisecond);
  CHECK(two->LaunchAll(20) == 0);  // the length of a burst is not known yet
  End(*one);
  CHECK(two->LaunchAll(20) == 20);
  End(*two);

  one->LaunchAll(4);
  clock.Advance(2 * kDuration - 1);
  CHECK(two->LaunchAll(20) == 0);
  clock.Advance(1);
  CHECK(two->LaunchAll(20) == 2);
  End(*one);
  End(*two);
  CHECK(two->LaunchAll(20) == 20);
  End(*two);

  // The end of a burst that is longer than usual is not known.
  one->LaunchAll(6);
  clock.Advance(kMillisecond);
  CHECK(two->LaunchAll(20) == 0);
}

TEST_CASE_METHOD(TailFixture,
                 "A burst that begins beside a long operation restricts others to its end") {
  one->LaunchAll(4);
  End(*one);
  const auto begins_beside = [&](int launches) {
    CHECK(two->LaunchAll(launches) == launches);
    one->LaunchAll(4);
    clock.Advance(kMillisecond);
    device.RunAll();
    two->Pause();  // its work in the hardware is complete; the other session does not know that yet
    return two->LaunchAll(20);
  };
  SECTION("a long one") { CHECK(begins_beside(4) == 0); }
  SECTION("short ones") { CHECK(begins_beside(3) == 2); }
}

TEST_CASE_METHOD(Fixture, "A session that ends or faults restricts no other") {
  Make({});
  GiveSecond(Window(kForever), Window(0));
  auto one = std::make_unique<ScheduledSession>(device, *pool, *scheduler, 1);
  ScheduledSession two(device, *pool, *scheduler, 2);
  one->Launch();
  CHECK_FALSE(two.TryLaunch());
  SECTION("a fault") {
    static_cast<FakeAddressSpace&>(*one->space).fault_result = CudaError(700, "fault");
    one->Pause();
    CHECK(two.TryLaunch());
  }
  SECTION("the end") {
    one.reset();
    CHECK(two.TryLaunch());
  }
}

TEST_CASE_METHOD(Fixture, "A rank that changes while there is work restricts others at once") {
  Make({});
  int first_rank = 0;
  policy->decide = [&](const policy::Snapshot&, policy::Decision* decision) {
    if (decision->grants.size() < 2) return;
    decision->grants[0].rank = first_rank;
    decision->grants[1].rank = 1;
    decision->grants[1].contended.window = 0;
  };
  ScheduledSession one(device, *pool, *scheduler, 1), two(device, *pool, *scheduler, 2);
  one.Launch();
  CHECK_FALSE(two.TryLaunch());
  first_rank = 2;
  one.coroutine->WatchWork(false);  // publishes that it has work
  CHECK(scheduler->AskIfDue());
  one.coroutine->WatchWork(false);
  CHECK(two.TryLaunch());
}

TEST_CASE_METHOD(Fixture,
                 "The work of coroutines is counted by tenant, and the counts stay when they end") {
  Make({});
  policy::Limits none = Window(0);
  none.max_throttle = 5 * kMillisecond;
  GiveSecond(none, none);
  ScheduledSession one(device, *pool, *scheduler, 1, "first");
  {
    ScheduledSession two(device, *pool, *scheduler, 2, "second");
    CHECK(one.LaunchAll(3) == 3);
    CHECK(two.LaunchAll(100) == 0);
    clock.Advance(5 * kMillisecond);
    CHECK(two.LaunchAll(100) == 1);
    one.Pause();
    device.RunAll();
    clock.Advance(kMillisecond);
    one.Pause();
    const auto totals = scheduler->Totals();
    REQUIRE(totals.size() == 2);
    CHECK(totals.at("first").work.device_time == 3 * kDuration);
    CHECK(totals.at("first").work.bursts.total() == 1);
    CHECK(totals.at("second").work.device_time == kDuration);
    CHECK(totals.at("second").work.passes == 1);
    CHECK(totals.at("second").work.throttles.total() == 1);
    CHECK(totals.at("second").work.throttles.sum == 5 * kMillisecond);
    CHECK(totals.at("second").work.throttled_by_window == 5 * kMillisecond);
  }
  const auto totals = scheduler->Totals();
  CHECK(totals.at("second").work.device_time == kDuration);
  CHECK(totals.at("second").work.throttles.sum >= 5 * kMillisecond);
  CHECK(totals.at("first").work.device_time == 3 * kDuration);
}

TEST_CASE_METHOD(Fixture,
                 "A burst that takes longer than promised is counted, from the promise on") {
  Make({});
  ScheduledSession one(device, *pool, *scheduler, 1, "a"), two(device, *pool, *scheduler, 2, "b");
  const auto burst = [&](Nanoseconds time) {
    one.Launch();
    one.Pause();
    clock.Advance(time);
    device.RunAll();
    one.Pause();
  };
  burst(20 * kMillisecond);
  policy::Tenant promised;
  promised.name = "a";
  promised.slo_latency = 10 * kMillisecond;
  SECTION("while the policy stays") { REQUIRE(scheduler->SetTenants({promised}).ok()); }
  SECTION("with another policy") {
    REQUIRE(scheduler->SetPolicyAndTenants(std::make_unique<ScriptedPolicy>(), {promised}).ok());
  }
  burst(9 * kMillisecond);
  burst(11 * kMillisecond);
  burst(12 * kMillisecond);
  const auto totals = scheduler->Totals();
  CHECK(totals.at("a").work.bursts.total() == 4);
  CHECK(totals.at("a").work.late_bursts == 2);
  CHECK(totals.at("a").tenant.slo_latency == 10 * kMillisecond);
  CHECK(totals.at("b").work.bursts.total() == 0);
}

TEST_CASE_METHOD(Fixture, "A decision that gives another partition counts as a resize") {
  Make({{0, 8}});
  int partition = 0;
  policy->decide = [&](const policy::Snapshot&, policy::Decision* decision) {
    for (policy::Grant& grant : decision->grants) grant.idle.partition = partition;
  };
  ScheduledSession one(device, *pool, *scheduler, 1, "a");
  CHECK(scheduler->Totals().at("a").work.resizes == 0);
  partition = 1;
  ScheduledSession two(device, *pool, *scheduler, 2, "b");
  CHECK(scheduler->Totals().at("a").work.resizes == 1);
  CHECK(scheduler->Totals().at("b").work.resizes == 0);
}

TEST_CASE_METHOD(Fixture,
                 "A used-up budget throttles its coroutine until the policy gives another one") {
  Make({});
  GiveSecond({}, {}, 5 * kDuration);
  ScheduledSession one(device, *pool, *scheduler, 1), two(device, *pool, *scheduler, 2);
  CHECK(two.LaunchAll(100) == 5);
  two.coroutine->WatchWork(false);
  CHECK(scheduler->AskIfDue());
  CHECK(policy->seen[1].throttled_since != 0);
  CHECK(policy->seen[1].has_work);
  CHECK(two.LaunchAll(100) == 5);
  CoroutineState state;
  REQUIRE(scheduler->StateOf(2, &state));
  CHECK(state.figures.device_time == 10 * kDuration);
}

TEST_CASE_METHOD(
    Fixture, "Long operations run on the partition for long ones once their duration is known") {
  Make({{8, 8}});
  policy->decide = [](const policy::Snapshot&, policy::Decision* decision) {
    if (decision->grants.size() < 2) return;
    decision->grants[1].idle.long_partition = 1;
    decision->grants[1].idle.long_operation = kMillisecond;
    decision->grants[1].contended = decision->grants[1].idle;
  };
  ScheduledSession one(device, *pool, *scheduler, 1), two(device, *pool, *scheduler, 2);
  LaunchShape shape;
  shape.grid.x = 64;
  CHECK(two.Launch(1, shape) == 0);
  two.kernel.set_code(77);
  two.Known(shape)->Add(0, 2 * kMillisecond, false);
  CHECK(two.Launch(1, shape) == 8);
  CHECK(two.Launch(1, {}) == 0);
  // Copies stay where the stream is.
  REQUIRE(two.coroutine->Copy(1, {.width = 8}).ok());
  CHECK(device.operations.back().first_sm == 0);
  two.Launch(1, shape);
  REQUIRE(two.coroutine->Copy(1, {.width = 8}).ok());
  CHECK(device.operations.back().first_sm == 8);
}

TEST_CASE_METHOD(Fixture, "How long operations take is learned while they run") {
  Make({});
  ScheduledSession one(device, *pool, *scheduler, 1), two(device, *pool, *scheduler, 2);
  two.kernel.set_code(77);
  for (int i = 0; i < 4; ++i) {
    two.Launch();
    two.Pause();
    device.RunAll();
    two.Pause();
  }
  OperationDurations* const known = two.Known();
  CHECK(known->known());
  // The fake device's clock advances by a millisecond for each marker.
  CHECK(known->Estimate(0) == kMillisecond);
}

TEST_CASE_METHOD(Fixture,
                 "A cooperative grid or cluster that does not fit runs on the smallest partition "
                 "that holds it") {
  Make({{0, 2}, {2, 6}, {8, 8}});
  policy->watches = false;
  policy->decide = [](const policy::Snapshot&, policy::Decision* decision) {
    for (policy::Grant& grant : decision->grants) grant.idle.partition = 1;
  };
  ScheduledSession one(device, *pool, *scheduler, 1);
  device.cooperative_limit = 1;
  const auto where = [&](LaunchShape shape) {
    const int first = one.Launch(1, shape);
    return first;
  };
  LaunchShape grid;
  grid.cooperative = true;  // FakeKernel fits one block on an SM
  grid.grid.x = 2;
  CHECK(one.coroutine->partition().sm_count() == 2);
  CHECK(GpuCoroutine::SmsFor(one.kernel, grid) == 2);
  grid.grid.x = 5;
  CHECK(one.coroutine->Holding(one.coroutine->partition(), 5).first_sm() == 2);
  grid.grid.x = 8;
  CHECK(one.coroutine->Holding(one.coroutine->partition(), 8).first_sm() == 8);
  grid.grid.x = 9;
  CHECK(where(grid) == 0);
  LaunchShape cluster;
  cluster.cluster = {4, 1, 1};
  cluster.grid.x = 8;
  CHECK(where(cluster) == 2);
  cluster.cluster = {4, 2, 1};
  CHECK(where(cluster) == 8);
  CHECK(where({}) == 0);
}

TEST_CASE_METHOD(
    Fixture,
    "Work behind a wait for the client neither counts nor restricts until the wait is over") {
  Make({});
  GiveSecond(Window(5 * kDuration), Window(0));
  ScheduledSession one(device, *pool, *scheduler, 1), two(device, *pool, *scheduler, 2);
  std::atomic<uint64_t> go{0};
  REQUIRE(one.coroutine->MayRun());
  REQUIRE(two.coroutine->MayRun());
  SECTION("of whoever goes first") {
    REQUIRE(one.coroutine->WaitFence(1, &go, 1).ok());
    one.Launch();
    one.Pause();
    CHECK(two.LaunchAll(5) == 5);
    go = 1;
    device.RunAll();
    one.Pause();  // it counts now, until the next fence is reached
    CHECK(two.LaunchAll(5) == 0);
    device.RunAll();
    one.Pause();
    CHECK(two.LaunchAll(5) == 5);
  }
  SECTION("of whoever has a window") {
    REQUIRE(two.coroutine->WaitFence(1, &go, 1).ok());
    CHECK(two.LaunchAll(50) == 50);
    go = 1;
    device.RunAll();
    CHECK(two.LaunchAll(50) == 5);
  }
  SECTION("and what waits for that by an event") {
    REQUIRE(one.coroutine->CreateEvent(1, 1, false).ok());
    REQUIRE(one.coroutine->WaitFence(1, &go, 1).ok());
    REQUIRE(one.coroutine->RecordEvent(1, 1, nullptr, 0).ok());
    REQUIRE(one.coroutine->WaitEvent(2, 1).ok());
    one.Launch(2);
    one.Pause();
    CHECK(two.LaunchAll(5) == 5);
    go = 1;
  }
  device.RunAll();
}

TEST_CASE_METHOD(
    Fixture,
    "The policy is asked when work begins and ends, and at its own time only while there is work") {
  Make({});
  Nanoseconds ask_at = kForever;
  policy->decide = [&](const policy::Snapshot&, policy::Decision* decision) {
    decision->ask_again_at = ask_at;
  };
  ScheduledSession one(device, *pool, *scheduler, 1), two(device, *pool, *scheduler, 2);
  scheduler->AskIfDue();
  CHECK_FALSE(scheduler->AskIfDue());
  ask_at = clock.NowNanoseconds() + kMillisecond;
  one.Launch();
  CHECK_FALSE(scheduler->AskIfDue());
  one.coroutine->WatchWork(false);
  CHECK(scheduler->AskIfDue());
  CHECK(policy->seen[0].has_work);
  CHECK_FALSE(policy->seen[1].has_work);
  clock.Advance(2 * kMillisecond);
  ask_at = clock.NowNanoseconds() + kMillisecond;
  CHECK(scheduler->AskIfDue());
  CHECK_FALSE(scheduler->AskIfDue());
  ask_at = clock.NowNanoseconds() + kMillisecond;
  two.Launch();
  two.coroutine->WatchWork(false);
  CHECK(scheduler->AskIfDue());
  CHECK_FALSE(scheduler->AskIfDue());
  clock.Advance(kMillisecond);
  CHECK(scheduler->AskIfDue());
  device.RunAll();
  one.Pause();
  device.RunAll();
  one.Pause();
  ask_at = kForever;
  CHECK(scheduler->AskIfDue());
  CHECK_FALSE(policy->seen[0].has_work);
  CHECK(policy->seen[0].typical_burst == kDuration);
}

TEST_CASE_METHOD(Fixture,
                 "After an invalid decision a session gets the whole device and a valid rank") {
  Make({});
  policy->decide = [](const policy::Snapshot&, policy::Decision* decision) {
    for (policy::Grant& grant : decision->grants) {
      grant.idle.partition = 99;
      grant.contended.partition = -1;
      grant.rank = 1000;
      grant.prepare = {7};
    }
    decision->grants.resize(1);
  };
  ScheduledSession one(device, *pool, *scheduler, 1), two(device, *pool, *scheduler, 2);
  CHECK(one.Launch() == 0);
  CHECK(two.Launch() == 0);
}

TEST_CASE_METHOD(
    Fixture,
    "An urgent coroutine has queues of a greater priority, ordered with its earlier queues") {
  Make({});
  bool urgent = false;
  policy->decide = [&](const policy::Snapshot&, policy::Decision* decision) {
    for (policy::Grant& grant : decision->grants) grant.urgent = urgent;
  };
  ScheduledSession one(device, *pool, *scheduler, 1), two(device, *pool, *scheduler, 2);
  one.Launch();
  CHECK(device.operations.back().priority == 0);
  urgent = true;
  auto owned = std::make_unique<ScriptedPolicy>();
  owned->decide = policy->decide;
  policy = owned.get();
  REQUIRE(scheduler->SetPolicy(std::move(owned)).ok());
  one.Launch();
  CHECK(device.operations.back().priority == -3);
  CHECK(one.coroutine->counters().migrations == 0);
  device.RunAll();
  REQUIRE(device.operations.size() == 2);
  CHECK(device.operations[1].before.contains(0));
  // A launch that names a priority gets it, within its session's range.
  LaunchShape shape;
  shape.has_priority = true;
  shape.priority = -1;
  one.Launch(1, shape);
  CHECK(device.operations.back().launch_priority == -4);
  device.RunAll();
}

struct GroupsFixture : Fixture {
  bool urgent = false;  // the grant of all sessions

  GroupsFixture() {
    device.EnablePreemption(190 * kMicrosecond);
    device.runs_at_once = true;
    Make({});
    policy->decide = [this](const policy::Snapshot&, policy::Decision* decision) {
      for (policy::Grant& grant : decision->grants) grant.urgent = urgent;
    };
  }
  void Decide(bool is_urgent) {
    urgent = is_urgent;
    REQUIRE(scheduler->SetTenants({}).ok());
  }
  CoroutineState StateOf(policy::CoroutineId session) {
    CoroutineState state;
    REQUIRE(scheduler->StateOf(session, &state));
    return state;
  }
  int SessionsIn(const std::string& partition) {
    for (const PartitionView& view : scheduler->Partitions()) {
      if (view.name == partition) return view.sessions;
    }
    return -1;
  }
};

TEST_CASE_METHOD(
    GroupsFixture,
    "A trace has the work of both time-slice groups, and why streams change the group") {
  device.compares_groups = false;
  ScheduledSession one(device, *pool, *scheduler, 1);
  one.kernel.set_name("kernel");
  one.Launch();
  REQUIRE(scheduler->StartTrace().ok());
  for (const bool is_urgent : {false, true, false}) {
    Decide(is_urgent);
    one.Launch();
    CHECK(device.operations.back().urgent == is_urgent);
  }
  one.Pause();
  device.RunAll();
  one.Pause();
  const std::vector<DeviceScheduler::Traced> traced = scheduler->FetchTrace();
  REQUIRE(traced.size() == 1);
  std::vector<bool> operations;
  std::vector<int> migrations;
  for (const TraceEvent& event : traced[0].fetched.events) {
    if (event.kind == TraceEvent::Kind::kOperation) operations.push_back(event.urgent);
    if (event.kind == TraceEvent::Kind::kMigration) migrations.push_back(event.cause);
  }
  // Times of operations are taken in no particular order.
  CHECK(std::count(operations.begin(), operations.end(), true) == 1);
  CHECK(std::count(operations.begin(), operations.end(), false) == 2);
  CHECK(migrations == std::vector<int>{TraceEvent::kPreempts, TraceEvent::kBackToOrdinary});
  scheduler->StopTrace();
}

TEST_CASE_METHOD(Fixture, "A trace throttles no session that is alone") {
  device.runs_at_once = true;
  Make({});
  policy->decide = [](const policy::Snapshot&, policy::Decision* decision) {
    for (policy::Grant& grant : decision->grants) {
      grant.idle.window = grant.contended.window = 1;
      grant.budget = 1;
    }
  };
  ScheduledSession alone(device, *pool, *scheduler, 1);
  REQUIRE(scheduler->StartTrace().ok());
  CHECK(alone.LaunchAll(5) == 5);
}

TEST_CASE_METHOD(GroupsFixture, "A bound session is shown in the group where its work runs") {
  ScheduledSession one(device, *pool, *scheduler, 1);
  one.Launch();
  CHECK_FALSE(StateOf(1).bound);
  CHECK(StateOf(1).partition == "all");
  Decide(true);
  one.Launch();
  CHECK(StateOf(1).partition == "urgent");
  CHECK(SessionsIn("urgent") == 1);
  one.space->BindToGroup();
  Decide(false);
  one.Launch();
  CHECK(device.operations.back().urgent);
  CHECK(StateOf(1).bound);
  CHECK(StateOf(1).partition == "urgent");
  CHECK(SessionsIn("urgent") == 1);
  CHECK(SessionsIn("all") == 0);
}

// The device can preempt, and nobody has opened its urgent group.
struct ClosedFixture : GroupsFixture {
  std::atomic<int> attempts{0};

  ClosedFixture() {
    device.urgent_is_open = false;
    device.opening = [this] {
      ++attempts;
      return absl::OkStatus();
    };
  }
  void AwaitOpen() {
    while (StateOf(1).partition != "urgent") std::this_thread::yield();
  }
};

TEST_CASE_METHOD(ClosedFixture, "Nobody opens the urgent group for ordinary work") {
  ScheduledSession one(device, *pool, *scheduler, 1);
  one.Launch();
  CHECK(attempts == 0);
  CHECK(SessionsIn("all") == 1);
}

TEST_CASE_METHOD(ClosedFixture,
                 "A session that is urgent from its start begins in the urgent group") {
  Decide(true);
  ScheduledSession one(device, *pool, *scheduler, 1);
  one.space->BindToGroup();
  one.Launch();
  CHECK(device.operations.back().urgent);
  CHECK(attempts == 1);
  ScheduledSession two(device, *pool, *scheduler, 2);
  two.Launch();
  CHECK(device.operations.back().urgent);
  CHECK(attempts == 1);
}

TEST_CASE_METHOD(ClosedFixture, "A session that becomes urgent moves once the group is open") {
  std::promise<void> may_open;
  device.opening = [&] {
    may_open.get_future().wait();
    return absl::OkStatus();
  };
  ScheduledSession one(device, *pool, *scheduler, 1);
  Decide(true);
  one.Launch();
  CHECK_FALSE(device.operations.back().urgent);
  CHECK(StateOf(1).partition == "all");
  may_open.set_value();
  AwaitOpen();
  one.Launch();
  CHECK(device.operations.back().urgent);
}

TEST_CASE_METHOD(
    ClosedFixture,
    "What binds a session before the urgent group is open keeps it in the ordinary one") {
  ScheduledSession one(device, *pool, *scheduler, 1);
  one.kernel.bound = true;
  one.Launch();
  REQUIRE(device.OpenUrgent().ok());
  Decide(true);
  one.Launch();
  CHECK_FALSE(device.operations.back().urgent);
  CHECK(StateOf(1).bound);
}

TEST_CASE_METHOD(ClosedFixture,
                 "If the urgent group cannot be opened, urgent work stays in the ordinary one, and "
                 "the next session leads to another attempt") {
  device.opening = [&]() -> absl::Status {
    if (++attempts == 1) return absl::ResourceExhaustedError("no memory");
    return absl::OkStatus();
  };
  Decide(true);
  ScheduledSession one(device, *pool, *scheduler, 1);
  one.Launch();
  CHECK_FALSE(device.operations.back().urgent);
  CHECK(failures == std::vector<std::string>{"no memory"});
  Decide(true);
  CHECK(attempts == 1);
  ScheduledSession two(device, *pool, *scheduler, 2);
  CHECK(attempts == 2);
  two.Launch();
  CHECK(device.operations.back().urgent);
  one.Launch();
  CHECK(device.operations.back().urgent);
}

TEST_CASE_METHOD(ClosedFixture,
                 "A trace that began before the urgent group was open has the urgent operations") {
  device.runs_at_once = true;
  ScheduledSession one(device, *pool, *scheduler, 1);
  one.kernel.set_name("kernel");
  REQUIRE(scheduler->StartTrace().ok());
  CHECK(attempts == 0);
  REQUIRE(device.OpenUrgent().ok());
  Decide(true);
  one.Launch();
  one.Pause();
  const auto traced = scheduler->FetchTrace();
  REQUIRE(traced.size() == 1);
  const auto& events = traced[0].fetched.events;
  CHECK(std::any_of(events.begin(), events.end(), [](const TraceEvent& event) {
    return event.kind == TraceEvent::Kind::kOperation && event.urgent;
  }));
  scheduler->StopTrace();
}

TEST_CASE_METHOD(GroupsFixture, "A session that is bound to the ordinary group stays there") {
  ScheduledSession one(device, *pool, *scheduler, 1);
  one.space->BindToGroup();
  Decide(true);
  one.Launch();
  CHECK_FALSE(device.operations.back().urgent);
  CHECK(StateOf(1).bound);
  CHECK(StateOf(1).partition == "all");
  CHECK(SessionsIn("urgent") == 0);
}

TEST_CASE_METHOD(GroupsFixture,
                 "Ordinary work that stands still, and goes on with a part of the device, is seen "
                 "to be beside programs "
                 "outside of the daemon") {
  device.runs_at_once = false;
  ScheduledSession one(device, *pool, *scheduler, 1), two(device, *pool, *scheduler, 2);
  one.Launch();
  // A kernel that takes long stands still, too.
  for (int i = 0; i < 30; ++i) {
    clock.Advance(5 * policy::kMillisecond);
    one.Pause();
    CHECK_FALSE(scheduler->BesideNative());
  }
  device.RunAll();
  one.Launch();
  one.Pause();
  CHECK(scheduler->BesideNative());
  // Nobody looks any more: it ends with the time that was meant.
  clock.Advance(5 * policy::kSecond);
  CHECK_FALSE(scheduler->BesideNative());
  device.RunAll();
}

TEST_CASE_METHOD(Fixture, "No session is bound to a group on a device with one group") {
  Make({});
  ScheduledSession one(device, *pool, *scheduler, 1);
  one.space->BindToGroup();
  CoroutineState state;
  REQUIRE(scheduler->StateOf(1, &state));
  CHECK_FALSE(state.bound);
  CHECK(scheduler->Partitions().size() == 1);
}

TEST_CASE_METHOD(Fixture,
                 "An operation of short blocks is not long if urgent work can run in between") {
  Make({{8, 8}});
  policy::Limits limits;
  limits.long_partition = 1;
  limits.long_operation = 100 * kMicrosecond;
  GiveSecond(limits, limits);
  ScheduledSession one(device, *pool, *scheduler, 1), two(device, *pool, *scheduler, 2);
  LaunchShape one_wave, many_waves;
  one_wave.block.x = many_waves.block.x = 1024;
  one_wave.grid.x = 16;
  many_waves.grid.x = 16 * 2 * 1000;
  for (const LaunchShape& shape : {one_wave, many_waves}) {
    for (int i = 0; i < 4; ++i) two.Known(shape)->Add(0, 500 * kMicrosecond, false);
  }
  device.changeable().attributes[39] = 2048;  // threads of an SM
  SECTION("where blocks begin by priority") {
    device.changeable().blocks_by_priority = true;
    CHECK(two.Launch(1, one_wave) == 8);
    CHECK(two.Launch(1, many_waves) == 0);
  }
  SECTION("and as long as it lasts where they do not") {
    CHECK(two.Launch(1, one_wave) == 8);
    CHECK(two.Launch(1, many_waves) == 8);
  }
  device.RunAll();
}

TEST_CASE_METHOD(Fixture, "Long operations whose blocks are short may have more SMs") {
  Make({{8, 8}, {4, 12}});
  policy::Limits limits;
  limits.long_partition = 1;
  limits.long_operation = 100 * kMicrosecond;
  limits.yielding_partition = 2;
  limits.yielding_block = 6 * kMicrosecond;
  GiveSecond(limits, limits);
  ScheduledSession one(device, *pool, *scheduler, 1), two(device, *pool, *scheduler, 2);
  device.changeable().attributes[39] = 2048;  // threads of an SM
  device.changeable().blocks_by_priority = true;
  const auto where = [&](uint32_t waves) {
    LaunchShape shape;
    shape.block.x = 1024;
    shape.grid.x = 16 * 2 * waves;
    for (int i = 0; i < 4; ++i) two.Known(shape)->Add(0, 500 * kMicrosecond, false);
    return two.Launch(1, shape);
  };
  CHECK(where(10) == 8);
  CHECK(where(80) == 8);
  CHECK(where(100) == 4);
  CHECK(where(1000) == 0);
  device.RunAll();
}

TEST_CASE_METHOD(Fixture, "Another policy or other tenants are in force at the next record") {
  Make({});
  ScheduledSession one(device, *pool, *scheduler, 1, "a");
  CHECK(one.Launch() == 0);
  policy::Tenant a;
  a.name = "a";
  a.sm_percent = 101;
  REQUIRE(scheduler->SetPolicy(*policy::CreatePolicy("static", {})).ok());
  CHECK(scheduler->SetTenants({a}).code() == absl::StatusCode::kInvalidArgument);
  a.sm_percent = 50;
  policy::Tenant b;
  b.name = "b";
  b.sm_percent = 25;
  REQUIRE(scheduler->SetTenants({b, a}).ok());
  CHECK(one.TryLaunch());
  CHECK(device.operations.back().first_sm == 4);
  CHECK(scheduler->Partitions().size() == 4);
  REQUIRE(scheduler->SetTenants({b, a}).ok());
  CHECK(scheduler->Partitions().size() == 4);  // made once
}

TEST_CASE_METHOD(Fixture,
                 "A tenant that a reload adds is counted apart, however many came before") {
  Make({});
  policy::CoroutineId next = 1;
  const auto open = [&](const std::string& tenant) {
    ScheduledSession session(device, *pool, *scheduler, next++, tenant);
  };
  for (size_t i = 0; i < kMaxTenantsApart; ++i) open("tenant" + std::to_string(i));
  open("unknown");
  CHECK(scheduler->Totals().contains(kOtherTenants));
  CHECK_FALSE(scheduler->Totals().contains("unknown"));
  policy::Tenant late;
  late.name = "late";
  SECTION("with the tenants alone") { REQUIRE(scheduler->SetTenants({late}).ok()); }
  SECTION("with a policy") {
    REQUIRE(scheduler->SetPolicyAndTenants(std::make_unique<ScriptedPolicy>(), {late}).ok());
  }
  open("late");
  CHECK(scheduler->Totals().contains("late"));
}

TEST_CASE_METHOD(Fixture, "Forced migration moves every operation, in order") {
  Make({}, /*migrate_every=*/1);
  ScheduledSession one(device, *pool, *scheduler, 1);
  std::vector<int> places;
  History before;
  for (int i = 0; i < 9; ++i) {
    if (i % 3 == 2) {
      REQUIRE(one.coroutine->Copy(1, {.width = 8}).ok());
    } else {
      one.Launch();
    }
    places.push_back(device.operations.back().first_sm);
    REQUIRE(device.operations.back().before == before);
    before.insert(static_cast<int64_t>(device.operations.size()) - 1);
  }
  for (size_t i = 1; i < places.size(); ++i) {
    INFO(i);
    CHECK((places[i] == 8 || places[i - 1] == 8 || places[i] == 0));
  }
  CHECK(one.coroutine->counters().migrations == 8);
  CHECK(scheduler->Partitions().size() == 3);
}

TEST_CASE_METHOD(Fixture, "A program that reads results step by step is seen to produce tokens") {
  Make({});
  ScheduledSession one(device, *pool, *scheduler, 1), two(device, *pool, *scheduler, 2);
  std::atomic<uint64_t> fence{0};
  alignas(8) char host[8];
  for (uint64_t step = 1; step <= 12; ++step) {
    for (int i = 0; i < 10; ++i) one.Launch();
    CopyRequest read;
    read.destination = reinterpret_cast<DeviceAddress>(host);
    read.source = one.space->base();
    read.width = 8;
    REQUIRE(one.coroutine->Copy(1, read).ok());
    REQUIRE(one.coroutine->Signal(1, &fence, step).ok());
    one.coroutine->WatchWork(false);
    clock.Advance(10 * kMillisecond);
    device.RunAll();
    one.coroutine->WatchWork(false);
  }
  CoroutineState state;
  REQUIRE(scheduler->StateOf(1, &state));
  CHECK(state.figures.tokens.tokens >= 10);
  const Nanoseconds pace = state.figures.tokens.recent_tpot;
  CHECK((pace > 9'999'000 && pace <= 10 * kMillisecond));  // the mean of several, rounded down
}

TEST_CASE_METHOD(Fixture, "A copy within the host's memory is no result that a program reads") {
  Make({});
  ScheduledSession one(device, *pool, *scheduler, 1), two(device, *pool, *scheduler, 2);
  std::atomic<uint64_t> fence{0};
  alignas(8) char host[16];
  for (uint64_t step = 1; step <= 12; ++step) {
    for (int i = 0; i < 10; ++i) one.Launch();
    CopyRequest copy;
    copy.destination = reinterpret_cast<DeviceAddress>(host);
    copy.source = copy.destination + 8;
    copy.width = 8;
    REQUIRE(one.coroutine->Copy(1, copy).ok());
    REQUIRE(one.coroutine->Signal(1, &fence, step).ok());
    one.coroutine->WatchWork(false);
    clock.Advance(10 * kMillisecond);
    device.RunAll();
    one.coroutine->WatchWork(false);
  }
  CoroutineState state;
  REQUIRE(scheduler->StateOf(1, &state));
  CHECK(state.figures.tokens.tokens == 0);
}

TEST_CASE("The scheduler's thread asks the policy when a worker notifies it") {
  FakeDevice device;
  RealClock clock;
  auto owned = std::make_unique<ScriptedPolicy>();
  std::atomic<bool> saw_work{false};
  owned->decide = [&](const policy::Snapshot& snapshot, policy::Decision*) {
    if (!snapshot.coroutines.empty() && snapshot.coroutines[0].has_work) saw_work = true;
  };
  auto scheduler = *DeviceScheduler::Create(device, std::move(owned), {}, clock, {});
  QueuePool pool(device);
  ScheduledSession one(device, pool, *scheduler, 1), two(device, pool, *scheduler, 2);
  one.Launch();
  one.coroutine->WatchWork(false);
  while (!saw_work) std::this_thread::yield();
  device.RunAll();
}

TEST_CASE_METHOD(Fixture, "An index past the last partition means the whole device") {
  Make({{0, 8}});
  int partition = 1;
  policy->watches = false;
  policy->decide = [&](const policy::Snapshot&, policy::Decision* decision) {
    for (policy::Grant& grant : decision->grants) grant.idle.partition = partition;
  };
  ScheduledSession one(device, *pool, *scheduler, 1);
  CoroutineState state;
  REQUIRE(scheduler->StateOf(1, &state));
  CHECK(state.sm_count == 8);
  for (const int none : {2, -1}) {
    partition = none;
    ScheduledSession other(device, *pool, *scheduler, 2);
    REQUIRE(scheduler->StateOf(1, &state));
    CHECK(state.sm_count == 16);
  }
}

// The schedulers of two processes on one device.
struct ProcessesFixture {
  struct Process {
    std::unique_ptr<EnginePage> page = std::make_unique<EnginePage>();
    EnginePeers peers;
    FakeDevice device;
    ScriptedPolicy* policy = nullptr;
    std::vector<policy::OtherEngineView> others;  // in the latest snapshot
    int rank = 0;                                 // of all sessions
    policy::Limits contended;
    std::unique_ptr<DeviceScheduler> scheduler;
    std::unique_ptr<QueuePool> pool;
  };
  ManualClock clock;
  Process processes[2];

  ProcessesFixture() {
    clock.Advance(policy::kSecond);
    for (int i = 0; i < 2; ++i) {
      Process& process = processes[i];
      process.peers.own_id = static_cast<uint64_t>(i) + 1;
      AddPeer(process.peers, static_cast<uint64_t>(2 - i), *processes[1 - i].page);
      process.device.EnablePreemption(190 * kMicrosecond);
      auto owned = std::make_unique<ScriptedPolicy>();
      process.policy = owned.get();
      process.policy->decide = [&process](const policy::Snapshot& snapshot,
                                          policy::Decision* decision) {
        process.others.assign(snapshot.other_engines.begin(), snapshot.other_engines.end());
        for (policy::Grant& grant : decision->grants) {
          grant.urgent = true;
          grant.rank = process.rank;
          grant.contended = process.contended;
        }
      };
      DeviceScheduler::Options options;
      options.own_thread = false;
      options.page = process.page.get();
      options.peers = &process.peers;
      process.scheduler =
          *DeviceScheduler::Create(process.device, std::move(owned), {}, clock, options);
      process.pool = std::make_unique<QueuePool>(process.device);
    }
  }
  // All work of the session ends.
  static void End(ScheduledSession& session) {
    session.Pause();
    session.device.RunAll();
    session.Pause();
  }
};

TEST_CASE_METHOD(ProcessesFixture, "The policy gives the length of turns between processes") {
  Process& one = processes[0];
  one.policy->engine_turn = 30 * kMillisecond;
  ScheduledSession first(one.device, *one.pool, *one.scheduler, 1);
  CHECK(one.scheduler->turn()->length() == 30 * kMillisecond);
  one.policy->engine_turn = 0;
  ScheduledSession second(one.device, *one.pool, *one.scheduler, 2);
  CHECK(one.scheduler->turn()->length() == DeviceTurn::kLength);
}

TEST_CASE_METHOD(ProcessesFixture, "The policy sees the coroutines of other processes") {
  Process &one = processes[0], &other = processes[1];
  one.rank = 3;
  ScheduledSession first(one.device, *one.pool, *one.scheduler, 1);
  ScheduledSession second(other.device, *other.pool, *other.scheduler, 2);
  REQUIRE(other.others.size() == 1);
  CHECK(other.others[0].coroutine.id == 1);
  CHECK(other.others[0].rank == 3);
  CHECK(other.others[0].urgent);
  CHECK_FALSE(other.others[0].coroutine.has_work);
  // A process without work does not look. One with work looks every few milliseconds.
  other.scheduler->AskIfDue();  // there is news of its beginning, maybe
  first.Launch();
  first.Pause();  // the work goes on, and the scheduler hears of it
  CHECK(one.scheduler->AskIfDue());
  clock.Advance(10 * kMillisecond);
  CHECK_FALSE(other.scheduler->AskIfDue());
  second.Launch();
  second.Pause();
  CHECK(other.scheduler->AskIfDue());
  CHECK(other.others[0].coroutine.has_work);
  End(first);
  one.scheduler->AskIfDue();
  clock.Advance(4 * kMillisecond);
  CHECK_FALSE(other.scheduler->AskIfDue());
  clock.Advance(2 * kMillisecond);
  CHECK(other.scheduler->AskIfDue());
  CHECK_FALSE(other.others[0].coroutine.has_work);
  End(second);
}

TEST_CASE_METHOD(ProcessesFixture,
                 "Preempting work yields to that of a lower rank elsewhere, half of the time") {
  Process &one = processes[0], &other = processes[1];
  other.rank = 3;
  other.contended.window = 0;
  other.contended.max_throttle = policy::kSecond;
  ScheduledSession first(one.device, *one.pool, *one.scheduler, 1);
  ScheduledSession second(other.device, *other.pool, *other.scheduler, 2);
  first.Launch();
  one.scheduler->AskIfDue();
  CHECK_FALSE(second.TryLaunch());
  // The first one's work ends, and begins again.
  End(first);
  CHECK(second.TryLaunch());
  End(second);
  first.Launch();
  Nanoseconds yielded = 0;
  constexpr Nanoseconds kStep = 2 * kMillisecond, kTime = 4 * policy::kSecond;
  for (Nanoseconds time = 0; time < kTime; time += kStep) {
    if (second.TryLaunch()) {
      End(second);
    } else {
      yielded += kStep;
      second.coroutine->WatchWork(/*pause=*/false);
    }
    clock.Advance(kStep);
    other.scheduler->AskIfDue();
  }
  CHECK(static_cast<double>(yielded) / kTime == Approx(0.5).margin(0.05));
  End(first);
}

TEST_CASE_METHOD(Fixture, "The policy knows which sessions wait for each other's work") {
  Make({});
  ScheduledSession one(device, *pool, *scheduler, 1), two(device, *pool, *scheduler, 2),
      three(device, *pool, *scheduler, 3), four(device, *pool, *scheduler, 4);
  const auto teams = [&] {
    scheduler->AskIfDue();
    std::vector<policy::CoroutineId> teams;
    for (const policy::CoroutineView& view : policy->seen) teams.push_back(view.team);
    return teams;
  };
  using Teams = std::vector<policy::CoroutineId>;
  CHECK(teams() == Teams{0, 0, 0, 0});
  scheduler->Cooperate(1, 2);
  CHECK(teams() == Teams{1, 1, 0, 0});
  scheduler->Cooperate(4, 3);
  CHECK(teams() == Teams{1, 1, 4, 4});
  scheduler->Cooperate(2, 3);
  CHECK(teams() == Teams{1, 1, 1, 1});
  const int asked = policy->asked;
  scheduler->Cooperate(3, 1);
  scheduler->Cooperate(3, 77);
  CHECK(teams() == Teams{1, 1, 1, 1});
  CHECK(policy->asked == asked);
}

}  // namespace
}  // namespace detshare
