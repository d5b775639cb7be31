#include "server/base/activity.h"

#include <catch2/catch.hpp>
#include <thread>

namespace detshare {
namespace {

constexpr std::chrono::milliseconds kAtOnce(0);

TEST_CASE("The watch goes on while a session is active") {
  Activity activity;
  activity.Begin();
  for (int i = 0; i < 3; ++i) CHECK(activity.Await(kAtOnce));
}

TEST_CASE("After the last session has ended the watch looks once more") {
  Activity activity;
  activity.Begin();
  activity.Begin();
  activity.End();
  CHECK(activity.Await(kAtOnce));
  CHECK(activity.Await(kAtOnce));
  activity.End();
  CHECK(activity.Await(kAtOnce));
  // The thread would sleep here until something begins.
  std::thread other([&] { activity.Begin(); });
  CHECK(activity.Await(kAtOnce));
  other.join();
}

TEST_CASE("Stop ends a watch that sleeps, and every later one") {
  Activity activity;
  std::thread other([&] { activity.Stop(); });
  CHECK_FALSE(activity.Await(kAtOnce));
  other.join();
  activity.Begin();
  CHECK_FALSE(activity.Await(std::chrono::hours(1)));
}

}  // namespace
}  // namespace detshare
