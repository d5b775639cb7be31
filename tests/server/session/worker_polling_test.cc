#include "server/session/worker_polling.h"

#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <thread>

#include "server/base/thread_priority.h"

namespace detshare {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

bool IsRaised() {
  return (sched_getscheduler(0) & ~SCHED_RESET_ON_FORK) == SCHED_RR ||
         getpriority(PRIO_PROCESS, static_cast<id_t>(gettid())) == -10;
}

TEST_CASE("Where no worker shall poll, none does, whatever its client does") {
  WorkerPolling polling(microseconds(0));
  CHECK(polling.Time(WorkerPolling::Clock::now(), false).count() == 0);
  CHECK(polling.Time(WorkerPolling::Clock::now(), true).count() == 0);
}

TEST_CASE(
    "A worker that shares its CPU sleeps and goes first, and is as others when nobody waits") {
  AllowRaisedPriority();
  std::atomic<bool> stop{false};
  std::atomic<bool> started{false};
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  CPU_SET(static_cast<size_t>(sched_getcpu()), &cpus);
  std::thread busy([&] {
    sched_setaffinity(0, sizeof cpus, &cpus);
    started.store(true);
    while (!stop.load()) {
    }
  });
  microseconds awaited(-1), usual(-1);
  bool raised = false, worked = true, lowered = true;
  bool may_raise = false;
  std::thread([&] {
    sched_setaffinity(0, sizeof cpus, &cpus);
    may_raise = RaisePriority(true);
    RaisePriority(false);
    while (!started.load()) sched_yield();
    WorkerPolling polling(microseconds(50));
    // Polls until it has had to wait for the CPU.
    do {
      awaited = polling.Time(WorkerPolling::Clock::now(), true);
    } while (may_raise && awaited.count() != 0);
    raised = IsRaised();
    // While it has work, it goes first for some milliseconds only.
    const auto begin = WorkerPolling::Clock::now();
    polling.NoteWork(begin);
    polling.NoteWork(begin + milliseconds(1));
    if (may_raise) CHECK(IsRaised());
    polling.NoteWork(begin + milliseconds(100));
    worked = IsRaised();
    if (may_raise) CHECK(polling.Time(WorkerPolling::Clock::now(), true).count() == 0);
    // One short sleep that takes long shows nothing; several show that the priority does not help.
    for (int i = 0; i < 500; ++i)
      polling.NoteSleep(WorkerPolling::Clock::now() - milliseconds(i % 100 == 0 ? 5 : 0),
                        microseconds(50));
    if (may_raise) CHECK(polling.Time(WorkerPolling::Clock::now(), true).count() == 0);
    for (int i = 0; i < 10; ++i)
      polling.NoteSleep(WorkerPolling::Clock::now() - milliseconds(5), microseconds(50));
    if (may_raise) CHECK(polling.Time(WorkerPolling::Clock::now(), true) == milliseconds(100));
    usual = polling.Time(WorkerPolling::Clock::now(), false);
    lowered = IsRaised();
  }).join();
  stop.store(true);
  busy.join();
  if (!may_raise) WARN("this process may not raise priorities");
  CHECK(raised == may_raise);
  CHECK_FALSE(worked);
  CHECK(awaited == (may_raise ? microseconds(0) : microseconds(milliseconds(100))));
  CHECK(usual <= microseconds(50));
  CHECK_FALSE(lowered);
}

}  // namespace
}  // namespace detshare
