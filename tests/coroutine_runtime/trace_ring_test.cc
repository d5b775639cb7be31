#include "coroutine_runtime/trace_ring.h"

#include <catch2/catch.hpp>
#include <thread>

namespace detshare {
namespace {

TraceEvent At(int64_t at) {
  TraceEvent event;
  event.at = at;
  return event;
}

TEST_CASE("Nothing is recorded while no trace is taken") {
  TraceRing ring;
  CHECK_FALSE(ring.on());
  ring.Add(At(1));
  CHECK(ring.Name("kernel") == 0);
  CHECK(ring.Fetch().events.empty());
  ring.Start();
  ring.Stop();
  ring.Add(At(2));
  CHECK(ring.Fetch().events.empty());
}

TEST_CASE("Events come out as they went in, and names once") {
  TraceRing ring;
  ring.Start();
  const uint32_t one = ring.Name("one");
  CHECK(one != 0);
  CHECK(ring.Name("one") == one);
  const uint32_t two = ring.Name("two");
  CHECK(two != one);
  for (int i = 0; i < 5; ++i) ring.Add(At(i));
  TraceRing::Fetched fetched = ring.Fetch();
  REQUIRE(fetched.events.size() == 5);
  for (int i = 0; i < 5; ++i) CHECK(fetched.events[i].at == i);
  CHECK(fetched.names.size() == 2);
  ring.Add(At(5));
  fetched = ring.Fetch();
  CHECK(fetched.events.size() == 1);
  CHECK(fetched.names.empty());
  // The next trace gets all names again.
  ring.Stop();
  ring.Add(At(6));
  ring.Start();
  fetched = ring.Fetch();
  CHECK(fetched.events.empty());
  CHECK(fetched.names.size() == 2);
}

TEST_CASE("Events without room are counted, and a reader that stays away ends the trace") {
  TraceRing ring;
  ring.Start();
  for (size_t i = 0; i < TraceRing::kPlaces + 10; ++i) ring.Add(At(static_cast<int64_t>(i)));
  TraceRing::Fetched fetched = ring.Fetch();
  CHECK(fetched.events.size() == TraceRing::kPlaces);
  CHECK(fetched.events.back().at == static_cast<int64_t>(TraceRing::kPlaces) - 1);
  CHECK(fetched.lost == 10);
  CHECK(ring.on());
  for (size_t i = 0; i < 2 * TraceRing::kPlaces; ++i) ring.Add(At(0));
  CHECK_FALSE(ring.on());
}

TEST_CASE("A reader may fetch while the worker writes") {
  TraceRing ring;
  ring.Start();
  constexpr int64_t kEvents = 200'000;
  std::thread worker([&] {
    for (int64_t i = 0; i < kEvents; ++i) {
      ring.Add(At(i));
      if (i % 1000 == 0) {
        ring.Name(std::to_string(i % 7));
        std::this_thread::yield();
      }
    }
  });
  int64_t last = -1;
  uint64_t got = 0, lost = 0;
  bool ordered = true;
  const auto fetch = [&] {
    const TraceRing::Fetched fetched = ring.Fetch();
    for (const TraceEvent& event : fetched.events) {
      ordered &= event.at > last;
      last = event.at;
    }
    got += fetched.events.size();
    lost += fetched.lost;
  };
  while (got + lost < kEvents && ring.on()) fetch();
  worker.join();
  fetch();
  CHECK(ordered);
  if (ring.on()) CHECK(got + lost == kEvents);
}

}  // namespace
}  // namespace detshare
