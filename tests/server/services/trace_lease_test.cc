#include "server/services/trace_lease.h"

#include <atomic>
#include <catch2/catch.hpp>

namespace detshare {
namespace {

constexpr std::chrono::milliseconds kNever = std::chrono::hours(1);

absl::Status Nothing() { return absl::OkStatus(); }

TEST_CASE("A trace whose client uses it no more ends, and another client can begin one") {
  std::atomic<int> ends{0};
  TraceLease lease([&] { ++ends; }, std::chrono::milliseconds(1));
  const uint64_t first = lease.Begin(Nothing).value();
  while (ends == 0) std::this_thread::yield();
  CHECK(absl::IsFailedPrecondition(lease.Use(first, false, [] { FAIL("the trace has ended"); })));
  CHECK(lease.Begin(Nothing).value() != first);
  while (ends == 1) std::this_thread::yield();
}

TEST_CASE("One client at a time takes a trace, until it says that it has the last part") {
  int ends = 0, uses = 0;
  TraceLease lease([&] { ++ends; }, kNever);
  const uint64_t trace = lease.Begin(Nothing).value();
  CHECK(absl::IsFailedPrecondition(lease.Begin(Nothing).status()));
  const auto use = [&](uint64_t number, bool last) {
    return lease.Use(number, last, [&] { ++uses; });
  };
  CHECK(use(trace, false).ok());
  CHECK(absl::IsFailedPrecondition(use(trace + 1, false)));
  CHECK(ends == 0);
  CHECK(use(trace, true).ok());
  CHECK(ends == 1);
  CHECK(uses == 2);
  CHECK(absl::IsFailedPrecondition(use(trace, false)));
  CHECK(lease.Begin(Nothing).ok());
}

TEST_CASE("A trace that cannot begin leaves nothing on") {
  int ends = 0;
  TraceLease lease([&] { ++ends; }, kNever);
  CHECK(absl::IsUnavailable(lease.Begin([] { return absl::UnavailableError("no"); }).status()));
  CHECK(ends == 1);
  CHECK(lease.Begin(Nothing).ok());
}

TEST_CASE("A trace ends with the daemon") {
  int ends = 0;
  {
    TraceLease lease([&] { ++ends; }, kNever);
    REQUIRE(lease.Begin(Nothing).ok());
  }
  CHECK(ends == 1);
}

}  // namespace
}  // namespace detshare
