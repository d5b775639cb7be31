#include "tools/sim/group_switches.h"

#include <catch2/catch.hpp>

namespace detshare::sim {
namespace {

constexpr double kLatency = 190e3;

TEST_CASE("The first group with work runs at once, and so does a group that has the device") {
  GroupSwitches switches(190'000);
  switches.Update(true, false, 1e6);
  CHECK(switches.urgent());
  CHECK(switches.runs_from() == 1e6);
  switches.Update(false, false, 2e6);
  switches.Update(true, false, 9e6);
  CHECK(switches.urgent());
  CHECK(switches.runs_from() == 1e6);
}

TEST_CASE("A switch to the urgent group takes the latency, or less if the other group is idle") {
  GroupSwitches busy(190'000), idle(190'000), quick(100'000);
  for (GroupSwitches* switches : {&busy, &idle, &quick}) {
    switches->Update(false, true, 0);
    switches->Update(false, switches == &busy, 5e6);
    switches->Update(true, switches == &busy, 5e6);
    CHECK(switches->urgent());
  }
  CHECK(busy.runs_from() == 5e6 + kLatency);
  CHECK(idle.runs_from() == 5e6 + GroupSwitches::kSwitch);
  CHECK(quick.runs_from() == 5e6 + 100e3);
}

TEST_CASE("Ordinary work goes on some time after the end of the urgent work") {
  GroupSwitches switches(190'000);
  switches.Update(true, true, 0);
  switches.Update(false, true, 3e6);
  CHECK_FALSE(switches.urgent());
  CHECK(switches.runs_from() == 3e6 + GroupSwitches::kResume);
  // A turn that begins before the others go on is a new one.
  switches.Update(true, true, 3e6 + 10e3);
  CHECK(switches.runs_from() == 3e6 + 10e3 + kLatency);
  // Work that comes long after the urgent work begins at once.
  switches.Update(false, false, 5e6);
  switches.Update(false, true, 8e6);
  CHECK(switches.runs_from() == 8e6);
}

}  // namespace
}  // namespace detshare::sim
