#include "server/base/cpu_wait.h"

#include <sched.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <thread>

namespace detshare {
namespace {

TEST_CASE("A thread that shares its CPU with a busy one learns that it waits") {
  std::atomic<bool> stop{false};
  std::atomic<int> started{0};
  int64_t before = 0, after = 0;
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  CPU_SET(static_cast<size_t>(sched_getcpu()), &cpus);
  std::thread busy([&] {
    sched_setaffinity(0, sizeof cpus, &cpus);
    started.fetch_add(1);
    while (!stop.load()) {
    }
  });
  std::thread looker([&] {
    sched_setaffinity(0, sizeof cpus, &cpus);
    while (started.load() == 0) sched_yield();
    const CpuWait wait;
    before = wait.Nanoseconds();
    // Ends when the other thread has had the CPU for a millisecond, or if the kernel does not say.
    do {
      after = wait.Nanoseconds();
    } while (after != 0 && after < before + 1'000'000);
  });
  looker.join();
  stop.store(true);
  busy.join();
  if (before == 0 && after == 0) {
    WARN("this kernel does not say how long threads wait");
  } else {
    CHECK(after >= before + 1'000'000);
  }
}

}  // namespace
}  // namespace detshare
