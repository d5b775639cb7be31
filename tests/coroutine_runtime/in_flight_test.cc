#include "coroutine_runtime/in_flight.h"

#include <catch2/catch.hpp>
#include <vector>

namespace detshare {
namespace {

TEST_CASE("Work is in flight until its point is reached, and counts once") {
  std::atomic<uint64_t> fence{0};
  InFlight in_flight;
  CHECK(in_flight.empty());
  in_flight.Add({&fence, 1}, 10);
  in_flight.Add({&fence, 2}, 20);
  CHECK_FALSE(in_flight.empty());
  CHECK(in_flight.TakeComplete() == 0);
  fence = 1;
  CHECK(in_flight.TakeComplete() == 10);
  CHECK(in_flight.TakeComplete() == 0);
  fence = 2;
  CHECK(in_flight.TakeComplete() == 20);
  CHECK(in_flight.empty());
}

TEST_CASE("Streams complete independently of each other") {
  std::atomic<uint64_t> slow{0}, fast{0};
  InFlight in_flight;
  in_flight.Add({&slow, 1}, 10);
  in_flight.Add({&fast, 1}, 20);
  fast = 1;
  CHECK(in_flight.TakeComplete() == 20);
  CHECK_FALSE(in_flight.empty());
  slow = 1;
  CHECK(in_flight.TakeComplete() == 10);
}

TEST_CASE("Work beyond the number of places completes with later work, and none is lost") {
  constexpr int kMany = 1000;
  std::vector<std::atomic<uint64_t>> fences(3);
  InFlight in_flight;
  policy::Nanoseconds given = 0;
  for (uint64_t i = 1; i <= kMany; ++i) {
    in_flight.Add({&fences[i % 3], i}, static_cast<policy::Nanoseconds>(i));
    given += static_cast<policy::Nanoseconds>(i);
  }
  // Nothing of what came last is complete before its own point.
  for (auto& fence : fences) fence = kMany - 3;
  const policy::Nanoseconds early = in_flight.TakeComplete();
  CHECK(early < given);
  CHECK_FALSE(in_flight.empty());
  for (auto& fence : fences) fence = kMany;
  CHECK(early + in_flight.TakeComplete() == given);
  CHECK(in_flight.empty());
}

TEST_CASE("Work of a stream without a place does not complete with another stream") {
  std::atomic<uint64_t> first{0}, other{0};
  InFlight in_flight;
  for (uint64_t i = 1; i <= InFlight::kPlaces; ++i) in_flight.Add({&first, i}, 1);
  in_flight.Add({&other, 1}, 5);
  in_flight.Add({&other, 2}, 7);
  first = InFlight::kPlaces;
  other = 1;
  CHECK(in_flight.TakeComplete() == InFlight::kPlaces);
  CHECK_FALSE(in_flight.empty());
  other = 2;
  CHECK(in_flight.TakeComplete() == 12);
  CHECK(in_flight.empty());
  in_flight.Add({&first, InFlight::kPlaces + 1}, 1);
  in_flight.Clear();
  CHECK(in_flight.empty());
}

}  // namespace
}  // namespace detshare
