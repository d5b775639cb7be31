#include "server/base/thread_priority.h"

#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdint>
#include <cstring>
#include <thread>

namespace detshare {
namespace {

// Reads the calling thread's slice in nanoseconds; 0 before Linux 6.12.
uint64_t Slice() {
  unsigned char attributes[48] = {};
  REQUIRE(syscall(SYS_sched_getattr, 0, attributes, sizeof attributes, 0) == 0);
  uint64_t slice = 0;
  std::memcpy(&slice, attributes + 24, sizeof slice);  // sched_attr.sched_runtime
  return slice;
}

TEST_CASE(
    "A thread gets the shortest slice and keeps its nice value, and no other thread changes") {
  const uint64_t usual = Slice();
  uint64_t slice = 0;
  int nice = 0;
  std::thread([&] {
    setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), 3);
    UseShortestSlice();
    slice = Slice();
    nice = getpriority(PRIO_PROCESS, static_cast<id_t>(gettid()));
  }).join();
  CHECK(nice == 3);
  CHECK(Slice() == usual);
  if (usual == 0) {
    WARN("this kernel has no slices of threads");
    CHECK(slice == 0);
  } else {
    CHECK(slice == 100'000);
  }
}

TEST_CASE(
    "A thread that may raises its priority and lowers it again, and no other thread changes") {
  AllowRaisedPriority();
  const int usual = getpriority(PRIO_PROCESS, 0);
  bool raised = false, lowered = false;
  int high = 0, low = 0, policy = 0, policy_after = 0;
  std::thread([&] {
    raised = RaisePriority(true);
    high = getpriority(PRIO_PROCESS, static_cast<id_t>(gettid()));
    policy = sched_getscheduler(0) & ~SCHED_RESET_ON_FORK;
    lowered = RaisePriority(false);
    low = getpriority(PRIO_PROCESS, static_cast<id_t>(gettid()));
    policy_after = sched_getscheduler(0) & ~SCHED_RESET_ON_FORK;
  }).join();
  if (!raised) WARN("this process may not raise priorities");
  CHECK((policy == SCHED_RR) == (raised && high == usual));
  CHECK((high == usual || high == -10));
  CHECK(policy_after == SCHED_OTHER);
  CHECK(lowered);
  CHECK(low == 0);
  CHECK(getpriority(PRIO_PROCESS, 0) == usual);
}

}  // namespace
}  // namespace detshare
