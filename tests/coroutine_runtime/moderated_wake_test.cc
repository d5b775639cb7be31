#include "coroutine_runtime/moderated_wake.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstdint>
#include <thread>
#include <vector>

namespace detshare {
namespace {

using policy::Nanoseconds;

// Notes `events` events in the window that begins at `now`, and returns the next window's begin.
Nanoseconds NoteWindow(EventRate& rate, Nanoseconds now, int events) {
  const Nanoseconds between = EventRate::kWindow / (events + 1);
  for (int i = 0; i <= events; ++i) rate.Note(i > 0, now + i * between);
  return now + EventRate::kWindow;
}

TEST_CASE("Events are often from a window with many of them to one with few") {
  EventRate rate;
  Nanoseconds now = 5 * EventRate::kWindow;
  CHECK_FALSE(rate.often());
  now = NoteWindow(rate, now, EventRate::kBegin - 1);
  now = NoteWindow(rate, now, EventRate::kBegin);
  CHECK_FALSE(rate.often());  // not before the window's end
  for (int i = 0; i < 3; ++i) {
    now = NoteWindow(rate, now, EventRate::kEnd);
    CHECK(rate.often());
  }
  now = NoteWindow(rate, now, EventRate::kEnd - 1);
  CHECK(rate.often());
  NoteWindow(rate, now, EventRate::kEnd);
  CHECK_FALSE(rate.often());
}

TEST_CASE("Many events long ago are not often") {
  EventRate rate;
  const Nanoseconds now = NoteWindow(rate, EventRate::kWindow, EventRate::kBegin);
  rate.Note(true, now + EventRate::kWindow);
  CHECK_FALSE(rate.often());
}

TEST_CASE("A wait ends for each kind of wake-up, for its limit and for good") {
  const RealClock clock;
  ModeratedWake wake(clock);
  CHECK_FALSE(wake.Take());
  wake.Wake();
  CHECK(wake.Wait(policy::kForever));
  CHECK(wake.Take());
  wake.WakeNow();
  wake.WakeNow();
  CHECK(wake.Wait(policy::kForever));
  CHECK(wake.Take());
  CHECK_FALSE(wake.Take());
  CHECK(wake.Wait(policy::kMicrosecond));
  CHECK(wake.Wait(-1));
  CHECK_FALSE(wake.Take());
  wake.Stop();
  CHECK_FALSE(wake.Wait(policy::kForever));
}

// A thread that waits without a limit and counts what it takes.
struct Waiting {
  const RealClock clock{};
  ModeratedWake wake{clock};
  int stored = 0;  // by a caller before it wakes the thread
  std::atomic<int> seen{0};
  std::thread thread{[this] {
    while (wake.Wait(policy::kForever)) {
      if (wake.Take()) seen.store(stored, std::memory_order_release);
    }
  }};
  ~Waiting() {
    wake.Stop();
    thread.join();
  }
};

TEST_CASE("No wake-up is lost, however fast they come and whatever their kind") {
  Waiting waiting;
  for (int i = 1; i <= 4000; ++i) {
    waiting.stored = i;
    i % 64 == 0 ? waiting.wake.WakeNow() : waiting.wake.Wake();
    while (waiting.seen.load(std::memory_order_acquire) != i) std::this_thread::yield();
    // The rate falls and rises again.
    if (i % 1500 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(25));
  }
}

// Stands still, and counts how often it is asked.
struct CountingClock final : Clock {
  Nanoseconds NowNanoseconds() const override {
    asked.fetch_add(1, std::memory_order_relaxed);
    return 0;
  }
  mutable std::atomic<uint64_t> asked{0};
};

TEST_CASE("A wait never goes on without something to take, whatever calls come at the same time") {
  const CountingClock clock;
  ModeratedWake wake(clock);
  uint64_t turns = 0;
  std::thread waiting([&] {
    while (wake.Wait(policy::kForever)) {
      wake.Take();
      ++turns;
    }
  });
  std::vector<std::thread> callers;
  for (int i = 0; i < 3; ++i) {
    callers.emplace_back([&] {
      for (int call = 0; call < 100'000; ++call) call % 4 == 0 ? wake.Wake() : wake.WakeNow();
    });
  }
  for (std::thread& caller : callers) caller.join();
  wake.Stop();
  waiting.join();
  // Twice in each Wait(), which asks again when it went on for nothing, and once in each Take().
  CHECK(clock.asked <= 3 * (turns + 1));
}

}  // namespace
}  // namespace detshare
