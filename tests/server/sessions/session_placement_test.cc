#include "server/sessions/session_placement.h"

#include <catch2/catch.hpp>
#include <string>
#include <utility>
#include <vector>

#include "server/sessions/tenant_habits.h"

namespace detshare {
namespace {

using policy::DeviceLoad;
using policy::PlacementRequest;
using Devices = std::vector<int>;

constexpr uint64_t kRoom = 100;  // bytes of each device
constexpr uint64_t kNever = 0;   // no memory can leave a device

PlacementRequest Asking(const std::string& tenant, uint64_t memory = 0) {
  PlacementRequest request;
  request.tenant.name = tenant;
  request.memory = memory;
  return request;
}

// Devices that have only what was placed on them.
struct Host {
  explicit Host(size_t count, const char* name = policy::kDefaultPlacement)
      : devices(count, DeviceLoad{kRoom}), placement(*policy::CreatePlacement(name), clock) {}

  PlacementGroup Group(const std::string& run, size_t count = 1) const {
    PlacementGroup group;
    group.tenant = "t";
    group.run = run;
    for (size_t i = 0; i < devices.size(); ++i) group.among.push_back(static_cast<int>(i));
    group.count = count;
    return group;
  }
  absl::StatusOr<Devices> Place(const PlacementGroup& group, uint64_t memory = 0,
                                uint64_t more_memory = kNever) {
    if (const Devices* known = placement.Find(group)) return *known;
    return placement.Place(group, Asking(group.tenant, memory), {devices, promised, more_memory});
  }

  ManualClock clock;
  std::vector<DeviceLoad> devices;
  std::vector<uint64_t> promised;  // by other processes
  SessionPlacement placement;
};

TEST_CASE("The sessions of a group get the same devices, whatever came in between") {
  Host host(3);
  CHECK(*host.Place(host.Group("a")) == Devices{0});
  CHECK(*host.Place(host.Group("b")) == Devices{1});
  host.devices[0].sessions.assign(5, Asking("u"));
  CHECK(*host.Place(host.Group("a")) == Devices{0});
  CHECK(*host.Place(host.Group("c")) == Devices{2});
  SECTION("and whoever differs in anything is somebody else") {
    const PlacementGroup a = host.Group("a");
    std::vector<PlacementGroup> others(6, a);
    others[0].tenant = "u";
    others[1].uid = 7;
    others[2].endpoint = "d";
    others[3].pid = 8;
    others[4].count = 2;
    others[5].among = {1, 0};
    for (const PlacementGroup& other : others) CHECK(host.placement.Find(other) == nullptr);
  }
}

TEST_CASE("A session's devices are different ones, in their visible order") {
  for (const std::string& name : policy::PlacementNames()) {
    INFO(name);
    Host host(4, name.c_str());
    host.devices[0].sessions.assign(3, Asking("u"));
    host.devices[0].memory_used = 1;
    PlacementGroup group = host.Group("a", 3);
    CHECK(host.Place(group)->size() == 3);
    group.among = {3, 0, 2};
    CHECK(*host.Place(group) == Devices{3, 0, 2});
  }
  Host host(4);
  host.devices[1].sessions.push_back(Asking("u"));
  PlacementGroup group = host.Group("a", 2);
  group.among = {3, 1, 0};
  CHECK(*host.Place(group) == Devices{3, 0});
}

TEST_CASE("Round-robin goes on behind the devices that it has given") {
  Host host(4, "round-robin");
  CHECK(*host.Place(host.Group("a", 2)) == Devices{0, 1});
  CHECK(*host.Place(host.Group("b", 2)) == Devices{2, 3});
  PlacementGroup group = host.Group("c");
  group.among = {2};
  group.count = 1;
  CHECK(*host.Place(group) == Devices{2});
  CHECK(*host.Place(host.Group("d")) == Devices{3});
}

TEST_CASE("A placed group counts at once, and for half a minute without a session") {
  Host host(2);
  CHECK(*host.Place(host.Group("a")) == Devices{0});
  CHECK(*host.Place(host.Group("b")) == Devices{1});
  host.clock.Advance(SessionPlacement::kComing);
  CHECK(*host.Place(host.Group("c")) == Devices{0});
  // A group whose session has ended does not count. While the session exists, its device counts it.
  CHECK(*host.Place(host.Group("d")) == Devices{1});
  host.placement.Opened(host.Group("c"));
  host.placement.Closed(host.Group("c"));
  CHECK(*host.Place(host.Group("e")) == Devices{0});
}

TEST_CASE("A group whose session has ended does not count, however recently it was placed") {
  Host host(2);
  CHECK(*host.Place(host.Group("a")) == Devices{0});
  host.placement.Opened(host.Group("a"));
  host.placement.Closed(host.Group("a"));
  CHECK(*host.Place(host.Group("b")) == Devices{0});
}

TEST_CASE("A placement is remembered for ten minutes, or as long as it has a session") {
  Host host(2);
  REQUIRE(host.Place(host.Group("asks")).ok());
  REQUIRE(host.Place(host.Group("runs")).ok());
  REQUIRE(host.Place(host.Group("gone")).ok());
  host.placement.Opened(host.Group("runs"));
  for (int i = 0; i < 4; ++i) {
    host.clock.Advance(SessionPlacement::kRemembered / 2);
    CHECK(host.placement.Find(host.Group("asks")) != nullptr);
    REQUIRE(host.Place(host.Group("new" + std::to_string(i))).ok());
  }
  CHECK(host.placement.Find(host.Group("gone")) == nullptr);
  CHECK(host.placement.Find(host.Group("runs")) != nullptr);
  host.placement.Closed(host.Group("runs"));
  host.clock.Advance(SessionPlacement::kRemembered);
  REQUIRE(host.Place(host.Group("last")).ok());
  CHECK(host.placement.size() == 1);
}

TEST_CASE("Promises of other processes count, unless nothing else is left") {
  Host host(2);
  host.promised = {80, 0};
  CHECK(*host.Place(host.Group("a"), 50) == Devices{1});
  host.promised = {80, 80};
  CHECK(host.Place(host.Group("b"), 50).ok());
  CHECK_FALSE(host.Place(host.Group("c"), kRoom + 1).ok());
}

TEST_CASE("Round-robin goes on behind the device that another process gave last") {
  Host host(3, "round-robin");
  host.clock.Advance(1000);
  host.devices[1].placed_at = 900;
  CHECK(*host.Place(host.Group("a")) == Devices{2});
  CHECK(*host.Place(host.Group("b")) == Devices{0});
  // A time that has not come yet is nonsense.
  host.devices[1].placed_at = policy::kForever;
  CHECK(*host.Place(host.Group("c")) == Devices{1});
}

TEST_CASE("A client that invents names only displaces its own") {
  Host host(2);
  REQUIRE(host.Place(host.Group("other")).ok());
  PlacementGroup mine = host.Group("begin");
  mine.uid = 5;
  REQUIRE(host.Place(mine).ok());
  host.placement.Opened(mine);
  for (int i = 0; i < 500; ++i) {
    host.clock.Advance(1);
    PlacementGroup group = mine;
    group.run = "run" + std::to_string(i);
    REQUIRE(host.Place(group).ok());
  }
  CHECK(host.placement.size() == SessionPlacement::kMaxWithoutSession + 2);
  CHECK(host.placement.Find(host.Group("other")) != nullptr);
  CHECK(host.placement.Find(mine) != nullptr);
  // Its latest runs are still known.
  mine.run = "run499";
  CHECK(host.placement.Find(mine) != nullptr);
}

TEST_CASE("Without room there is no placement, and the error gives the reason") {
  Host host(3);
  host.devices[0].memory_used = 60;
  host.devices[1].memory_used = 70;
  const absl::Status refused = host.Place(host.Group("a", 2), 50).status();
  CHECK(refused.code() == absl::StatusCode::kResourceExhausted);
  CHECK_THAT(std::string(refused.message()), Catch::Contains("no place for 2 devices"));
  CHECK_THAT(std::string(refused.message()), Catch::Contains("more than 40 free"));
  // Nothing is left of the group.
  CHECK(host.placement.size() == 0);
  CHECK(*host.Place(host.Group("a"), 50) == Devices{2});
}

TEST_CASE("Memory that may leave a device makes room if there is no other room") {
  Host host(2);
  host.devices[0].memory_used = 70;
  host.devices[1].memory_used = 80;
  CHECK_FALSE(host.Place(host.Group("a"), 50, 19).ok());
  CHECK(*host.Place(host.Group("a"), 50, 20) == Devices{0});
  // Never more than a device has.
  CHECK_FALSE(host.Place(host.Group("b"), kRoom + 1, 1000).ok());
}

TEST_CASE("Memory that was promised to others is not free, and counts once for each tenant") {
  Host host(2, "best-fit");
  PlacementGroup one = host.Group("one"), two = host.Group("two");
  one.tenant = "a";
  two.tenant = "a";
  CHECK(*host.Place(one, 60) == Devices{0});
  // The tenant's limit covers both of its groups.
  CHECK(*host.Place(two, 60) == Devices{0});
  PlacementGroup other = host.Group("other");
  other.tenant = "b";
  CHECK(*host.Place(other, 50) == Devices{1});
  // Tenant a has a session by now. The promise is part of that session's memory and counts once.
  PlacementGroup third = host.Group("third");
  third.tenant = "c";
  host.devices[0].sessions.push_back(Asking("a", 60));
  host.devices[0].memory_used = 60;
  CHECK(*host.Place(third, 40) == Devices{0});
}

TEST_CASE("The name of a run has letters and digits") {
  for (const char* name : {"", "0", "0123456789abcdefXYZ"}) CHECK(IsRunName(name));
  CHECK(IsRunName(std::string(64, 'x')));
  CHECK_FALSE(IsRunName(std::string(65, 'x')));
  for (const char* name : {"a b", "a\n", "../x", "\xC3\xA4"}) CHECK_FALSE(IsRunName(name));
}

// ---- the known habits of a tenant

CoroutineState Seen(policy::Nanoseconds burst, policy::Nanoseconds gap, bool has_work,
                    policy::Nanoseconds changed_at) {
  CoroutineState state;
  state.followed = true;
  state.figures.typical_burst = burst;
  state.figures.typical_gap = gap;
  state.figures.has_work = has_work;
  state.figures.changed_at = changed_at;
  return state;
}

TEST_CASE(
    "The load of a program is the share of its bursts, including the present burst or pause") {
  CHECK(HabitOf(Seen(20, 60, true, 1000), 1005).load == Approx(0.25));
  // A burst that goes on, and a pause.
  CHECK(HabitOf(Seen(20, 60, true, 1000), 1180).load == Approx(0.75));
  CHECK(HabitOf(Seen(20, 60, false, 1000), 1080).load == Approx(0.2));
  // A training job that has never paused.
  CHECK(HabitOf(Seen(0, 0, true, 1000), 5000).load == 1);
}

TEST_CASE("A program that was not followed has no known habits") {
  CoroutineState state = Seen(20, 60, true, 1000);
  state.followed = false;
  CHECK(HabitOf(state, 1005).load < 0);
  CHECK(HabitOf(state, 1005).memory_bound < 0);
  CHECK(HabitOf(Seen(0, 0, false, 0), 1005).load < 0);
}

TEST_CASE("The latest known values of a tenant count, and the number of tenants is bounded") {
  TenantHabits habits;
  CHECK(habits.Of("a").load < 0);
  habits.Note("a", {.memory_bound = 0.5, .load = 0.25});
  habits.Note("a", {.memory_bound = -1, .load = 0.75});
  CHECK(habits.Of("a").memory_bound == 0.5);
  CHECK(habits.Of("a").load == 0.75);
  for (int i = 0; i < 1000; ++i) habits.Note("t" + std::to_string(i), {.load = 1});
  CHECK(habits.Of("a").load == 0.75);
  CHECK(habits.Of("t999").load < 0);
}

}  // namespace
}  // namespace detshare
