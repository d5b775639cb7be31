#include "server/base/thread_slice.h"

#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
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
  int nice = 0, wanted = 0;
  std::thread([&] {
    const auto own = static_cast<id_t>(gettid());
    wanted = std::min(getpriority(PRIO_PROCESS, own) + 3, 19);
    setpriority(PRIO_PROCESS, own, wanted);
    UseShortestSlice();
    slice = Slice();
    nice = getpriority(PRIO_PROCESS, own);
  }).join();
  CHECK(nice == wanted);
  CHECK(Slice() == usual);
  if (usual == 0) {
    WARN("this kernel has no slices of threads");
    CHECK(slice == 0);
  } else {
    CHECK(slice == 100'000);
  }
}

}  // namespace
}  // namespace detshare
