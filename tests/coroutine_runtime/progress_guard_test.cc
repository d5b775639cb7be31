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
  policy::Nanoseconds now = 1;
  ProgressGuard::Work work{.in_flight = kMillisecond};

  Need Look() { return guard.Look(now, work); }
  // Looks every millisecond. Returns after how many of them there is a need; nothing: after none of
  // `most`.
  std::optional<int> AfterMs(Need need, int most = 1000) {
    for (int passed = 0; passed < most; ++passed) {
      if (Look() == need) return passed;
      now += kMillisecond;
    }
    return std::nullopt;
  }
  void Complete(policy::Nanoseconds estimate = kMillisecond) {
    ++work.completions;
    work.complete += estimate;
    now += kMillisecond;
  }
  // Looks every millisecond, in which so much is complete. Returns whether there was no need.
  bool GoesOn(int milliseconds, policy::Nanoseconds complete) {
    for (int i = 0; i < milliseconds; ++i) {
      Complete(complete);
      if (Look() != Need::kNothing) return false;
    }
    return true;
  }
  // A look every millisecond, for at most a second: something short is complete every 10 ms. Returns
  // after how many there is a need for a part of the device.
  std::optional<int> SlowUntilShare() {
    for (int i = 0; i < 1000; ++i) {
      if (i % 10 == 0) {
        ++work.completions;
        work.complete += 10 * policy::kMicrosecond;
      }
      if (Look() == Need::kShare) return i;
      now += kMillisecond;
    }
    return std::nullopt;
  }
};

TEST_CASE_METHOD(Guarded, "Work that stands still beside work of the daemon keeps the device") {
  work.may_be_stopped = true;
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
  CHECK_FALSE(guard.confirmed());
  SECTION("for a second, if that was the cause") {
    Complete();
    CHECK(Look() == Need::kShare);
    CHECK(guard.confirmed());
    // It stood still for 100 ms, and may do so again for a twentieth of the time.
    CHECK(guard.share_until() == now + 2 * kSecond);
    SECTION("and again after that, if it stands still again") {
      now = guard.share_until() + 1;
      CHECK(AfterMs(Need::kShare) == 25);
      Complete();
      CHECK(Look() == Need::kShare);
      CHECK(guard.share_until() == now + kSecond);
    }
    SECTION("and not again, if it goes on") {
      now = guard.share_until() + 1;
      CHECK(GoesOn(4000, kMillisecond));
    }
  }
  SECTION("not longer, if it goes on only later") {
    now = guard.share_until() + 1;
    CHECK(Look() == Need::kNothing);
    Complete(200 * kMillisecond);
    CHECK(Look() == Need::kNothing);
    CHECK_FALSE(guard.confirmed());
    CHECK(GoesOn(1000, kMillisecond));
  }
  SECTION("for four seconds at most, however long it stood still") {
    work.in_flight = kSecond;
    now = guard.share_until() + 1;
    CHECK(AfterMs(Need::kShare, 10'000) == 4000);
    Complete();
    CHECK(Look() == Need::kShare);
    CHECK(guard.share_until() == now + 4 * kSecond);
  }
  SECTION("again for longer, if nothing was complete") {
    now = guard.share_until() + 1;
    CHECK(AfterMs(Need::kShare) == 400);
    CHECK(guard.share_until() - now >= 400 * kMillisecond);
  }
}

TEST_CASE_METHOD(Guarded, "Work that takes as long as it should does not share the device") {
  work.in_flight = kSecond;
  CHECK(AfterMs(Need::kShare, 10'000) == 4000);
}

TEST_CASE_METHOD(Guarded,
                 "Work that takes less than eight times as long as it should needs nothing") {
  CHECK(GoesOn(10'000, kMillisecond / 8));
}

TEST_CASE_METHOD(Guarded, "Work that only its client makes slow needs nothing") {
  // A few us, twice in a millisecond.
  for (int i = 0; i < 10'000; ++i) {
    ++work.completions;
    REQUIRE(GoesOn(1, 10 * policy::kMicrosecond));
  }
}

TEST_CASE_METHOD(Guarded, "Work that is much too slow shares the device, if that helps") {
  CHECK(SlowUntilShare() == 100);
  CHECK(guard.share_until() == now + 100 * kMillisecond);
  SECTION("It does") {
    // Four times as much in the same time: 100 ms had ten times 110 us.
    Complete(4 * kMillisecond);
    CHECK(Look() == Need::kNothing);
    Complete(kMillisecond);
    CHECK(Look() == Need::kShare);
    CHECK(guard.share_until() == now + 2 * kSecond);
  }
  SECTION("It does not, so the next trials come later") {
    const std::optional<int> second = SlowUntilShare();
    CHECK(second >= 500);
    const auto until_share = [this] {
      while (!SlowUntilShare()) {
      }
    };
    for (int i = 0; i < 10; ++i) {
      until_share();
      CHECK(guard.share_until() - now == 100 * kMillisecond);
    }
    // In the end trials take a hundredth of the time.
    const policy::Nanoseconds before = now;
    until_share();
    CHECK(now - before >= 10 * kSecond);
  }
}

TEST_CASE_METHOD(Guarded, "Work beside short work of the daemon needs nothing while it goes on") {
  for (int i = 0; i < 1000; ++i) {
    work.may_be_stopped = i % 100 < 20;
    if (i % 50 == 49) Complete(10 * kMillisecond);
    CHECK(Look() == Need::kNothing);
    now += kMillisecond;
  }
}

TEST_CASE_METHOD(Guarded,
                 "Work that stands still in the pauses of the daemon's work shares the device") {
  std::optional<int> after;
  for (int i = 0; i < 1000 && !after; ++i) {
    work.may_be_stopped = i % 5 < 2;
    if (Look() == Need::kShare) after = i;
    now += kMillisecond;
  }
  // It may run in 2 of each 5 ms: in the third, the hardware gets back to it.
  CHECK(after >= 240);
  CHECK(after <= 260);
}

TEST_CASE_METHOD(Guarded, "Pauses in which the hardware only gets back to the work do not count") {
  for (int i = 0; i < 10'000; ++i) {
    work.may_be_stopped = i % 10 != 0;
    CHECK(Look() == Need::kNothing);
    now += 100 * policy::kMicrosecond;
  }
}

TEST_CASE_METHOD(Guarded, "Work that waits for its turn needs nothing") {
  work.waits = true;
  CHECK(AfterMs(Need::kShare) == std::nullopt);
  work.waits = false;
  CHECK(AfterMs(Need::kShare) == 100);
}

TEST_CASE_METHOD(Guarded, "Time without work does not count") {
  CHECK(AfterMs(Need::kShare, 60) == std::nullopt);
  guard.Pause();
  now += kSecond;
  CHECK(AfterMs(Need::kShare) == 41);
}

}  // namespace
}  // namespace detshare
