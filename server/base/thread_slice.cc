#include "server/base/thread_slice.h"

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

}  // namespace

void UseShortestSlice() {
  SchedAttributes attributes;
  if (syscall(SYS_sched_getattr, 0, &attributes, sizeof attributes, 0) != 0) return;
  attributes.runtime = 100'000;
  syscall(SYS_sched_setattr, 0, &attributes, 0);
}

}  // namespace detshare
