#include "server/backends/soft/ordinary_group.h"

#include <catch2/catch.hpp>
#include <string>

#include "tests/server/test_windows.h"

namespace detshare::soft {
namespace {

struct TwoProcesses {
  TestDirectory directory;
  CardProcesses first, second;
  OrdinaryGroup one{first}, other{second};

  TwoProcesses() {
    REQUIRE(first.Join(directory.path + "/card").ok());
    REQUIRE(second.Join(directory.path + "/card").ok());
  }
};

TEST_CASE_METHOD(
    TwoProcesses,
    "Ordinary kernels of two processes stand still unless one of them keeps the card") {
  CHECK(one.Progresses());
  one.SetWorks(true);
  CHECK(one.Progresses());
  other.SetWorks(true);
  CHECK_FALSE(one.Progresses());
  CHECK_FALSE(other.Progresses());
  one.Keep(true);
  CHECK(one.Progresses());
  CHECK_FALSE(other.Progresses());
  other.Keep(true);
  CHECK(one.Progresses());
  CHECK(other.Progresses());
  one.Keep(false);
  CHECK_FALSE(one.Progresses());
  other.Keep(false);
  other.SetWorks(false);
  CHECK(one.Progresses());
}

TEST_CASE_METHOD(
    TwoProcesses,
    "Ordinary kernels stand still beside urgent ones unless their process keeps the card") {
  one.SetWorks(true);
  OrdinaryGroup& urgent = GENERATE(false, true) ? one : other;  // its own kernels, or another's
  urgent.SetUrgentWorks(true);
  CHECK_FALSE(one.Progresses());
  SECTION("which several may ask for") {
    one.Keep(true);
    one.Keep(true);
    CHECK(one.Progresses());
    one.Keep(false);
    CHECK(one.Progresses());
    one.Keep(false);
    CHECK_FALSE(one.Progresses());
  }
  urgent.SetUrgentWorks(false);
  CHECK(one.Progresses());
}

TEST_CASE("A process that has ended stops nobody") {
  TestDirectory directory;
  const std::string file = directory.path + "/card";
  CardProcesses processes;
  REQUIRE(processes.Join(file).ok());
  const OrdinaryGroup group(processes);
  {
    CardProcesses ended;
    REQUIRE(ended.Join(file).ok());
    OrdinaryGroup other(ended);
    other.SetWorks(true);
    CHECK_FALSE(group.Progresses());
  }
  CHECK(group.Progresses());
}

TEST_CASE("A process that has the card alone is never stopped") {
  const CardProcesses processes;
  OrdinaryGroup group(processes);
  group.SetWorks(true);
  CHECK(group.Progresses());
}

}  // namespace
}  // namespace detshare::soft
