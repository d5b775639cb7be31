#include "tools/sim/turns.h"

#include <catch2/catch.hpp>

namespace detshare::sim {
namespace {

constexpr double kLatency = 190e3;

TEST_CASE("The first group with work runs at once, and so does a group that has the device") {
  Turns turns(190'000);
  turns.Update(true, false, 1e6);
  CHECK(turns.urgent());
  CHECK(turns.runs_from() == 1e6);
  turns.Update(false, false, 2e6);
  turns.Update(true, false, 9e6);
  CHECK(turns.urgent());
  CHECK(turns.runs_from() == 1e6);
}

TEST_CASE("A switch to the urgent group takes the latency, or less if the other group is idle") {
  Turns busy(190'000), idle(190'000), quick(100'000);
  for (Turns* turns : {&busy, &idle, &quick}) {
    turns->Update(false, true, 0);
    turns->Update(false, turns == &busy, 5e6);
    turns->Update(true, turns == &busy, 5e6);
    CHECK(turns->urgent());
  }
  CHECK(busy.runs_from() == 5e6 + kLatency);
  CHECK(idle.runs_from() == 5e6 + Turns::kSwitch);
  CHECK(quick.runs_from() == 5e6 + 100e3);
}

TEST_CASE("Ordinary work goes on some time after the end of the urgent work") {
  Turns turns(190'000);
  turns.Update(true, true, 0);
  turns.Update(false, true, 3e6);
  CHECK_FALSE(turns.urgent());
  CHECK(turns.runs_from() == 3e6 + Turns::kResume);
  // A turn that begins before the others go on is a new one.
  turns.Update(true, true, 3e6 + 10e3);
  CHECK(turns.runs_from() == 3e6 + 10e3 + kLatency);
  // Work that comes long after the urgent work begins at once.
  turns.Update(false, false, 5e6);
  turns.Update(false, true, 8e6);
  CHECK(turns.runs_from() == 8e6);
}

}  // namespace
}  // namespace detshare::sim
