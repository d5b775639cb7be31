#include "server/engines/spare_schedule.h"

#include <poll.h>

#include <catch2/catch.hpp>
#include <chrono>

namespace detshare {
namespace {

using std::chrono::seconds;

const SpareSchedule::Clock::time_point kNow = SpareSchedule::Clock::now();

TEST_CASE("As many spare engines begin as are missing") {
  SpareSchedule schedule;
  CHECK(schedule.TakeDue(0, kNow) == 0);
  schedule.Keep(3);
  CHECK(schedule.TakeDue(1, kNow) == 2);
  CHECK(schedule.TakeDue(3, kNow) == 0);
  CHECK(schedule.TakeDue(4, kNow) == 0);
}

TEST_CASE("Spare engines that fail begin again after pauses that double") {
  SpareSchedule schedule;
  schedule.Keep(1);
  auto now = kNow;
  for (const int pause : {10, 20, 40, 80, 160, 300, 300}) {
    CHECK(schedule.Failed(now, seconds(1)) == seconds(pause));
    CHECK(schedule.TakeDue(0, now + seconds(pause - 1)) == 0);
    now += seconds(pause);
    CHECK(schedule.TakeDue(0, now) == 1);
  }
  SECTION("until one gets its group") { schedule.Succeeded(); }
  SECTION("until one has run for long") {
    CHECK(schedule.Failed(now, seconds(301)) == seconds(10));
    return;
  }
  CHECK(schedule.Failed(now, seconds(1)) == seconds(10));
}

TEST_CASE("Spare engines leave room for a minute") {
  SpareSchedule schedule;
  schedule.Keep(1);
  schedule.LeaveRoom(kNow);
  // A failure does not shorten the pause.
  CHECK(schedule.Failed(kNow, seconds(1)) == seconds(10));
  CHECK(schedule.TakeDue(0, kNow + seconds(59)) == 0);
  CHECK(schedule.TakeDue(0, kNow + seconds(60)) == 1);
}

TEST_CASE("The descriptor of the schedule becomes readable, and again after it was started again") {
  SpareSchedule schedule;
  for (int i = 0; i < 2; ++i) {
    pollfd readable{schedule.fd(), POLLIN, 0};
    CHECK(poll(&readable, 1, 0) == 0);
    schedule.Start(kNow);
    schedule.Start(kNow);
    REQUIRE(poll(&readable, 1, 60'000) == 1);
    schedule.TakeDue(0, kNow);
  }
}

}  // namespace
}  // namespace detshare
