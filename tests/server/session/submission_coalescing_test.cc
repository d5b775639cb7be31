#include "server/session/submission_coalescing.h"

#include <catch2/catch.hpp>
#include <vector>

namespace detshare {
namespace {

using policy::kMicrosecond;
using policy::kMillisecond;
using policy::Nanoseconds;
using Next = SubmissionCoalescing::Next;

// A client that commits records at times, a worker that looks every microsecond and reads everything at
// once, and a device that needs `cost` for each record.
struct Simulation {
  SubmissionCoalescing coalescing;
  Nanoseconds now = kMillisecond;
  Nanoseconds cost = 4 * kMicrosecond;
  Nanoseconds promised = 0;
  uint64_t committed = 0, read = 0;
  bool awaited = false;
  std::vector<Nanoseconds> read_at;  // when the worker read records, one entry for each time
  int releases = 0;

  void Look() {
    now += kMicrosecond;
    const Next next = coalescing.NextStep({.now = now,
                                           .seen = committed,
                                           .ready = read != committed,
                                           .awaited = awaited,
                                           .operations = read,
                                           .device_time = static_cast<Nanoseconds>(read) * cost,
                                           .promised = promised});
    if (next == Next::kRelease) ++releases;
    if (next != Next::kRead || read == committed) return;
    read = committed;
    read_at.push_back(now);
    if (awaited) coalescing.NoteAwaited();
    awaited = false;
  }
  void Pass(Nanoseconds time) {
    for (const Nanoseconds end = now + time; now < end;) Look();
  }
  // Commits records at once, and passes a time in which the client is not silent yet.
  void Commit(int records) {
    read_at.clear();
    committed += static_cast<uint64_t>(records);
    Pass(100 * kMicrosecond);
  }
  // `records` that are `apart`, of which the client waits for the last one, or is silent.
  void Request(int records, Nanoseconds apart, bool waits = true) {
    read_at.clear();
    for (int i = 0; i < records; ++i) {
      ++committed;
      awaited = waits && i + 1 == records;
      Pass(apart);
    }
    Pass(5 * kMillisecond);
  }
  size_t reads() const { return read_at.size(); }
};

TEST_CASE("The first request is read record by record, since its length is unknown") {
  Simulation s;
  s.Request(400, 20 * kMicrosecond);
  CHECK(s.reads() == 400);
  CHECK(s.releases == 0);
}

TEST_CASE("A known request is submitted in collections that delay it by an eighth of its length") {
  Simulation s;
  s.Request(400, 20 * kMicrosecond);
  s.Request(400, 20 * kMicrosecond);
  // 8 ms, of which the device needs a fifth. A collection of 5 ms needs it for an eighth of the request.
  REQUIRE(s.reads() == 2);
  CHECK(s.read_at[1] - s.read_at[0] < 3'100 * kMicrosecond);
  CHECK(s.releases == 2);
}

TEST_CASE("A collection is as long as half of the promised latency allows") {
  Simulation s;
  s.promised = 20 * kMillisecond;
  s.Request(400, 20 * kMicrosecond);
  s.Request(400, 20 * kMicrosecond);
  CHECK(s.reads() == 1);
  s.promised = 10 * kMillisecond;
  s.Request(400, 20 * kMicrosecond);
  CHECK(s.reads() == 2);
}

TEST_CASE("A collection ends at once when the client waits") {
  Simulation s;
  s.Request(400, 20 * kMicrosecond);
  s.Commit(3);
  REQUIRE(s.reads() == 0);
  ++s.committed;
  s.awaited = true;
  s.Look();
  CHECK(s.reads() == 1);
}

TEST_CASE("A collection ends when the client is silent") {
  Simulation s;
  s.Request(400, 20 * kMicrosecond);
  s.read_at.clear();
  ++s.committed;
  const Nanoseconds begin = s.now;
  s.Pass(2 * SubmissionCoalescing::kSilence);
  REQUIRE(s.reads() == 1);
  CHECK(s.read_at[0] - begin <= SubmissionCoalescing::kSilence + 2 * kMicrosecond);
}

TEST_CASE("Records that come while a collection is submitted belong to it") {
  Simulation s;
  s.Request(400, 20 * kMicrosecond);
  SubmissionCoalescing& coalescing = s.coalescing;
  uint64_t seen = s.committed + 1;
  const auto look = [&](Nanoseconds after, bool ready) {
    s.now += after;
    return coalescing.NextStep({.now = s.now,
                                .seen = ++seen,
                                .ready = ready,
                                .operations = 400,
                                .device_time = 400 * s.cost});
  };
  REQUIRE(look(0, true) == Next::kCollect);
  Next next = Next::kCollect;
  for (int i = 0; i < 1000 && next == Next::kCollect; ++i) next = look(20 * kMicrosecond, true);
  REQUIRE(next == Next::kRead);
  CHECK(look(20 * kMicrosecond, true) == Next::kRead);
  CHECK(look(20 * kMicrosecond, true) == Next::kRead);
  CHECK(look(1 * kMicrosecond, false) == Next::kRelease);
  CHECK(look(20 * kMicrosecond, true) == Next::kCollect);
}

TEST_CASE("Requests that keep the device busy are not collected") {
  Simulation s;
  s.cost = 16 * kMicrosecond;
  for (int i = 0; i < 3; ++i) s.Request(400, 20 * kMicrosecond);
  CHECK(s.reads() == 400);
}

TEST_CASE("Records that come faster than a worker submits them are not collected") {
  Simulation s;
  s.cost = 0;
  for (int i = 0; i < 3; ++i) s.Request(1000, 5 * kMicrosecond);
  CHECK(s.reads() == 1000);
}

TEST_CASE("Requests that are too short to give the others a turn are not collected") {
  Simulation s;
  for (int i = 0; i < 3; ++i) s.Request(60, 10 * kMicrosecond);
  CHECK(s.reads() == 60);
}

TEST_CASE("Requests that end with a silence are collected if the silence delays them little") {
  Simulation s;
  for (int i = 0; i < 3; ++i) s.Request(20, 50 * kMicrosecond, /*waits=*/false);
  CHECK(s.reads() == 20);
  Simulation t;
  for (int i = 0; i < 3; ++i) t.Request(400, 20 * kMicrosecond, /*waits=*/false);
  CHECK(t.reads() < 10);
}

TEST_CASE("Tiny requests with a wait between long ones change nothing") {
  Simulation s;
  s.Request(400, 20 * kMicrosecond);
  for (int i = 0; i < 50; ++i) s.Request(3, 20 * kMicrosecond);
  s.Request(400, 20 * kMicrosecond);
  CHECK(s.reads() == 2);
}

TEST_CASE("A program that begins to poll for the results of short requests is soon not collected") {
  Simulation s;
  s.Request(400, 20 * kMicrosecond);
  int collected = 0;
  for (int i = 0; i < 30; ++i) {
    s.Request(3, 20 * kMicrosecond, /*waits=*/false);
    collected += s.reads() == 1 ? 1 : 0;
  }
  CHECK(collected <= 12);
  CHECK(s.reads() == 3);
}

TEST_CASE("A stop ends a collection, and what was learned stays") {
  Simulation s;
  s.Request(400, 20 * kMicrosecond);
  s.Commit(3);
  s.coalescing.Stop();
  s.read = s.committed;
  s.Pass(kMillisecond);
  s.Request(400, 20 * kMicrosecond);
  CHECK(s.reads() == 2);
}

}  // namespace
}  // namespace detshare
