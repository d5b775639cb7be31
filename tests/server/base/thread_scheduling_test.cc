#include "server/base/thread_scheduling.h"

#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdint>
#include <cstring>
#include <functional>
#include <thread>

namespace detshare {
namespace {

using std::chrono::microseconds;

// Reads the calling thread's slice in nanoseconds; 0 before Linux 6.12.
uint64_t Slice() {
  unsigned char attributes[48] = {};
  REQUIRE(syscall(SYS_sched_getattr, 0, attributes, sizeof attributes, 0) == 0);
  uint64_t slice = 0;
  std::memcpy(&slice, attributes + 24, sizeof slice);  // sched_attr.sched_runtime
  return slice;
}

int Nice() { return getpriority(PRIO_PROCESS, static_cast<id_t>(gettid())); }

cpu_set_t Cpus() {
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  REQUIRE(sched_getaffinity(0, sizeof cpus, &cpus) == 0);
  return cpus;
}

void OnThread(const std::function<void()>& body) { std::thread(body).join(); }

TEST_CASE(
    "A thread gets the shortest slice and keeps its nice value, and no other thread changes") {
  const uint64_t usual = Slice();
  uint64_t slice = 0;
  int nice = 0, wanted = 0;
  OnThread([&] {
    wanted = std::min(Nice() + 3, 19);
    setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), wanted);
    const ThreadScheduling scheduling;
    slice = Slice();
    nice = Nice();
  });
  CHECK(nice == wanted);
  CHECK(Slice() == usual);
  if (usual == 0) {
    WARN("this kernel has no slices of threads");
    CHECK(slice == 0);
  } else {
    CHECK(slice == 100'000);
  }
}

TEST_CASE("A prompt thread has the lowest nice value that it may have, and then its own again") {
  OnThread([] {
    const int before = Nice();
    if (before > 0) {
      WARN("somebody gave this process a nice value above 0, which it keeps");
      return;
    }
    const uint64_t usual = Slice();
    ThreadScheduling scheduling;
    // Whatever this process may do, a limit of -3 allows that much.
    const rlimit limit{23, 23};
    if (setrlimit(RLIMIT_NICE, &limit) != 0) WARN("this process may not raise its limit");
    rlimit now{};
    REQUIRE(getrlimit(RLIMIT_NICE, &now) == 0);
    scheduling.SetPrompt(true);
    CHECK(Nice() <= std::min(before, 20 - static_cast<int>(now.rlim_cur)));
    CHECK(ThreadScheduling::MayBePrompt() == (Nice() == -20));
    CHECK(Slice() == (usual == 0 ? 0 : 500'000));
    int nice_of_child = 0;
    OnThread([&] { nice_of_child = Nice(); });
    CHECK(nice_of_child >= std::min(before, 0));
    scheduling.SetPrompt(false);
    CHECK(Nice() == before);
    CHECK(Slice() == (usual == 0 ? 0 : 100'000));
  });
}

TEST_CASE("A prompt thread keeps a nice value above 0") {
  OnThread([] {
    const int own = std::max(Nice(), 7);
    setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), own);
    ThreadScheduling scheduling;
    scheduling.SetPrompt(true);
    CHECK(Nice() == own);
    scheduling.SetPrompt(false);
    CHECK(Nice() == own);
  });
}

TEST_CASE("A thread keeps on one CPU until it may run anywhere") {
  OnThread([] {
    const cpu_set_t all = Cpus();
    int first = 0;
    while (!CPU_ISSET(first, &all)) ++first;
    ThreadScheduling scheduling;
    for (const int cpu : {CPU_SETSIZE, -7, 1 << 30, -1}) {
      scheduling.KeepOn(cpu);
      const cpu_set_t still = Cpus();
      CHECK(CPU_EQUAL(&still, &all));
    }
    scheduling.KeepOn(first);
    const cpu_set_t one = Cpus();
    CHECK(CPU_COUNT(&one) == 1);
    CHECK(CPU_ISSET(first, &one));
    scheduling.RunAnywhere();
    const cpu_set_t again = Cpus();
    CHECK(CPU_EQUAL(&again, &all));
  });
}

TEST_CASE("Threads alternate while nearly each wake-up leads to a reply") {
  Alternation alternation;
  const auto window = [&](uint32_t replied) {
    for (uint32_t i = 0; i < Alternation::kWindow; ++i) {
      const bool before = alternation.alternates();
      alternation.NoteWake(i < replied);
      if (i + 1 < Alternation::kWindow) REQUIRE(alternation.alternates() == before);
    }
    return alternation.alternates();
  };
  CHECK_FALSE(alternation.alternates());
  CHECK_FALSE(window(Alternation::kMinReplied - 1));
  CHECK(window(Alternation::kMinReplied));
  CHECK(window(Alternation::kWindow));
  CHECK_FALSE(window(0));
}

TEST_CASE("A few late wake-ups in a window are no reason for distrust, one more is") {
  WakeUps wake_ups;
  WakeUps::TimePoint now{std::chrono::hours(1)};
  const auto sleep = [&](microseconds late) { wake_ups.Note(late, now += microseconds(100)); };
  for (int window = 0; window < 3; ++window) {
    for (uint32_t i = 0; i < WakeUps::kWindow; ++i) {
      sleep(i < WakeUps::kMaxLate ? WakeUps::kLate : WakeUps::kLate - microseconds(1));
      REQUIRE(wake_ups.soon(now));
    }
  }
  for (uint32_t i = 0; i < WakeUps::kMaxLate; ++i) sleep(WakeUps::kLate);
  REQUIRE(wake_ups.soon(now));
  sleep(WakeUps::kLate);
  const WakeUps::TimePoint seen = now;
  CHECK_FALSE(wake_ups.soon(seen));
  CHECK_FALSE(wake_ups.soon(seen + WakeUps::kDistrust - microseconds(1)));
  CHECK(wake_ups.soon(seen + WakeUps::kDistrust));
  now = seen + WakeUps::kDistrust;
  for (uint32_t i = 0; i < WakeUps::kMaxLate; ++i) sleep(WakeUps::kLate);
  CHECK(wake_ups.soon(now));
}

}  // namespace
}  // namespace detshare
