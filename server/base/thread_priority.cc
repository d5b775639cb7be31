#include "server/base/thread_priority.h"

#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>

namespace detshare {
namespace {

// struct sched_attr of linux/sched/types.h, which cannot be included beside glibc's sched.h.
struct SchedAttributes {
  uint32_t size = sizeof(SchedAttributes);
  uint32_t policy = 0;
  uint64_t flags = 0;
  int32_t nice = 0;
  uint32_t priority = 0;
  uint64_t runtime = 0;  // of an ordinary thread: the slice in nanoseconds
  uint64_t deadline = 0, period = 0;
};

constexpr int kRaised = -10;
constexpr int kLowestRealTime = 1;

void RaiseLimit(__rlimit_resource resource, rlim_t enough) {
  rlimit limit{};
  if (getrlimit(resource, &limit) != 0 || limit.rlim_cur >= enough) return;
  const rlimit wanted{enough, limit.rlim_max < enough ? enough : limit.rlim_max};
  setrlimit(resource, &wanted);
}

}  // namespace

void UseShortestSlice() {
  SchedAttributes attributes;
  if (syscall(SYS_sched_getattr, 0, &attributes, sizeof attributes, 0) != 0) return;
  attributes.runtime = 100'000;
  syscall(SYS_sched_setattr, 0, &attributes, 0);
}

bool RaisePriority(bool raised) {
  // Threads that this thread starts are ordinary ones.
  const sched_param real_time{kLowestRealTime}, ordinary{0};
  if (raised && sched_setscheduler(0, SCHED_RR | SCHED_RESET_ON_FORK, &real_time) == 0) return true;
  const bool lowered = raised || sched_setscheduler(0, SCHED_OTHER, &ordinary) == 0;
  if (setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), raised ? kRaised : 0) != 0)
    return false;
  UseShortestSlice();
  return lowered;
}

void AllowRaisedPriority() {
  RaiseLimit(RLIMIT_RTPRIO, kLowestRealTime);
  RaiseLimit(RLIMIT_NICE, 20 - kRaised);  // it counts from 20 downwards: getrlimit(2)
}

}  // namespace detshare
