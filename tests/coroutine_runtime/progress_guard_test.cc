#include "coroutine_runtime/progress_guard.h"

#include <catch2/catch.hpp>
#include <cstdint>
#include <optional>

namespace detshare {
namespace {

using Need = ProgressGuard::Need;
using policy::kMillisecond;
using policy::kSecond;

struct Guarded {
  ProgressGuard guard;
  policy::Nanoseconds now = 1, in_flight = kMillisecond;
  uint64_t completions = 0;
  bool may_be_stopped = false, waits = false;

  Need Look() { return guard.Look(now, completions, in_flight, may_be_stopped, waits); }
  // Looks every millisecond. Returns after how many of them there is a need; nothing: after none of
  // `most`.
  std::optional<int> AfterMs(Need need, int most = 1000) {
    for (int passed = 0; passed < most; ++passed) {
      if (Look() == need) return passed;
      now += kMillisecond;
    }
    return std::nullopt;
  }
  void Complete() {
    ++completions;
    now += kMillisecond;
  }
};

TEST_CASE_METHOD(Guarded, "Work that stands still beside work of the daemon keeps the device") {
  may_be_stopped = true;
  CHECK(AfterMs(Need::kKeep) == 100);
  now += kMillisecond;
  CHECK(Look() == Need::kKeep);
  Complete();
  CHECK(Look() == Need::kNothing);
  CHECK(AfterMs(Need::kKeep) == 25);
}

TEST_CASE_METHOD(Guarded, "Work that stands still beside nothing of the daemon shares the device") {
  CHECK(AfterMs(Need::kShare) == 100);
  CHECK(guard.share_until() == now + 100 * kMillisecond);
  SECTION("for a second, if that was the cause") {
    Complete();
    CHECK(Look() == Need::kShare);
    // It stood still for 100 ms, and may do so again for a twentieth of the time.
    CHECK(guard.share_until() == now + 2 * kSecond);
    SECTION("and again after that, if it stands still again") {
      now = guard.share_until() + 1;
      Complete();
      CHECK(AfterMs(Need::kShare) == 25);
      Complete();
      CHECK(Look() == Need::kShare);
      CHECK(guard.share_until() == now + kSecond);
    }
    SECTION("and not again, if it goes on") {
      now = guard.share_until() + 1;
      for (int i = 0; i < 1000; ++i) {
        Complete();
        CHECK(Look() == Need::kNothing);
      }
    }
  }
  SECTION("not longer, if it goes on only later") {
    now = guard.share_until() + 1;
    CHECK(Look() == Need::kNothing);
    Complete();
    CHECK(Look() == Need::kNothing);
  }
  SECTION("again for longer, if nothing was complete") {
    now += 1;
    CHECK(AfterMs(Need::kShare) == 300);
    CHECK(guard.share_until() - now >= 400 * kMillisecond);
  }
}

TEST_CASE_METHOD(Guarded, "Work that takes as long as it should does not share the device") {
  in_flight = kSecond;
  CHECK(AfterMs(Need::kShare, 10'000) == 4000);
}

TEST_CASE_METHOD(Guarded, "Work beside short work of the daemon needs nothing") {
  for (int i = 0; i < 1000; ++i) {
    may_be_stopped = i % 100 < 20;
    CHECK(Look() == Need::kNothing);
    now += kMillisecond;
  }
}

TEST_CASE_METHOD(Guarded, "Work that waits for its turn needs nothing") {
  waits = true;
  CHECK(AfterMs(Need::kShare) == std::nullopt);
  waits = false;
  CHECK(Look() == Need::kShare);
}

TEST_CASE_METHOD(Guarded, "What stood still is forgotten when there is no work") {
  CHECK(AfterMs(Need::kShare) == 100);
  guard.Reset();
  Complete();
  CHECK(Look() == Need::kNothing);
}

}  // namespace
}  // namespace detshare
