#include "coroutine_runtime/executor.h"

#include <catch2/catch.hpp>
#include <chrono>
#include <memory>
#include <string>
#include <thread>

#include "coroutine_runtime/clock.h"

namespace detshare {
namespace {

using Fence = std::atomic<uint64_t>;

Task<int> Twice(int value) { co_return 2 * value; }

Task<void> Wait(Executor* executor, const Fence* fence, uint64_t value, char name,
                std::string* log) {
  const bool reached = co_await executor->Reached(fence, value);
  log->push_back(reached ? name : '!');
}

Task<void> Sum(int* result) {
  const int a = co_await Twice(3);
  const int b = co_await Twice(a);
  *result = a + b;
}

Task<void> Hold(Executor* executor, const Fence* fence, std::shared_ptr<int> held) {
  co_await executor->Reached(fence, 1);
  *held = 1;
}

TEST_CASE("A spawned task runs at once and awaits other tasks") {
  Executor executor;
  int result = 0;
  executor.Spawn(Sum(&result));
  CHECK(result == 18);
  CHECK(executor.waiting() == 0);
}

TEST_CASE("Tasks go on in the order in which they began to wait, once their fence is reached") {
  Executor executor;
  Fence a{0}, b{0};
  std::string log;
  executor.Spawn(Wait(&executor, &a, 2, 'x', &log));
  executor.Spawn(Wait(&executor, &b, 1, 'y', &log));
  executor.Spawn(Wait(&executor, &a, 1, 'z', &log));
  CHECK(executor.waiting() == 3);
  CHECK(executor.Poll() == 0);
  a = 1;
  CHECK(executor.Poll() == 1);
  CHECK(log == "z");
  b = 5;
  a = 7;
  CHECK(executor.Poll() == 2);
  CHECK(log == "zxy");
  executor.Spawn(Wait(&executor, &a, 7, 'r', &log));
  CHECK(log == "zxyr");  // reached already, so there is no wait
}

Task<void> WaitForOthers(Executor* executor, const Fence* fence) {
  co_await executor->ReachedByOthers(fence, 1);
}

TEST_CASE("Waits for fences that other sessions write are counted") {
  Executor executor;
  Fence own{0}, foreign{0};
  std::string log;
  executor.Spawn(Wait(&executor, &own, 1, 'x', &log));
  CHECK(executor.waiting_for_others() == 0);
  executor.Spawn(WaitForOthers(&executor, &foreign));
  executor.Spawn(WaitForOthers(&executor, &foreign));
  CHECK(executor.waiting() == 3);
  CHECK(executor.waiting_for_others() == 2);
  own = 1;
  executor.Poll();
  CHECK(executor.waiting_for_others() == 2);
  foreign = 1;
  executor.Poll();
  CHECK(executor.waiting_for_others() == 0);
  foreign = 0;
  executor.Spawn(WaitForOthers(&executor, &foreign));
  executor.AbortWaits();
  executor.Poll();
  CHECK(executor.waiting_for_others() == 0);
}

TEST_CASE("Aborted waits return false, and so do later ones") {
  Executor executor;
  Fence fence{0};
  std::string log;
  executor.Spawn(Wait(&executor, &fence, 1, 'x', &log));
  executor.AbortWaits();
  CHECK(log.empty());
  CHECK(executor.Poll() == 1);
  executor.Spawn(Wait(&executor, &fence, 1, 'x', &log));
  CHECK(log == "!!");
}

TEST_CASE("Posted functions run in order, whichever thread posts them, and wake the owner") {
  std::atomic<int> woken{0};
  Executor executor([&] { ++woken; });
  std::string log;
  std::thread([&] {
    executor.Post([&] { log += "a"; });
    executor.Post([&] { log += "b"; });
  }).join();
  executor.Post([&] { executor.Post([&] { log += "d"; }); });
  CHECK(woken == 3);
  CHECK(executor.Poll() == 3);
  CHECK(log == "ab");
  CHECK(executor.Poll() == 1);
  CHECK(log == "abd");
  CHECK(executor.Poll() == 0);
}

Task<void> PauseThenAdd(Executor* executor, std::chrono::nanoseconds time, std::string* log,
                        char mark) {
  co_await executor->Pause(time);
  *log += mark;
}

TEST_CASE("A pause ends in the first poll after its time, and when waits are aborted") {
  constexpr auto kNone = std::chrono::steady_clock::time_point::max();
  Executor executor;
  std::string log;
  CHECK(executor.next_pause_end() == kNone);
  executor.Spawn(PauseThenAdd(&executor, std::chrono::hours(2), &log, 'a'));
  const auto long_end = executor.next_pause_end();
  CHECK(long_end > std::chrono::steady_clock::now() + std::chrono::hours(1));
  executor.Spawn(PauseThenAdd(&executor, std::chrono::microseconds(1), &log, 'b'));
  CHECK(executor.next_pause_end() < long_end);
  CHECK(executor.waiting() == 0);
  std::this_thread::sleep_until(executor.next_pause_end());
  CHECK(executor.Poll() == 1);
  CHECK(log == "b");
  CHECK(executor.next_pause_end() == long_end);
  CHECK(executor.Poll() == 0);
  executor.AbortWaits();
  CHECK(executor.Poll() == 1);
  CHECK(log == "ba");
  CHECK(executor.next_pause_end() == kNone);
}

TEST_CASE("The end of the executor releases what its tasks hold, without running them") {
  auto held = std::make_shared<int>(0);
  Fence fence{0};
  {
    Executor executor;
    executor.Spawn(Hold(&executor, &fence, held));
    CHECK(held.use_count() == 2);
  }
  CHECK(held.use_count() == 1);
  CHECK(*held == 0);
}

TEST_CASE("A manual clock moves only when it is advanced") {
  ManualClock clock;
  CHECK(clock.NowNanoseconds() == 0);
  clock.Advance(5);
  CHECK(clock.NowNanoseconds() == 5);
  const RealClock real;
  const int64_t before = real.NowNanoseconds();
  CHECK(real.NowNanoseconds() >= before);
}

}  // namespace
}  // namespace detshare
