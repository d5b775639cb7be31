#include "server/base/cpu_wait.h"

#include <fcntl.h>
#include <unistd.h>

#include <cinttypes>
#include <cstdio>

namespace detshare {

CpuWait::CpuWait() : fd_(open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC)) {}

CpuWait::~CpuWait() {
  if (fd_ >= 0) close(fd_);
}

int64_t CpuWait::Nanoseconds() const {
  // "265432 1800 3": the time on a CPU, the time of waiting for one, the number of turns.
  char text[128];
  const ssize_t bytes = fd_ >= 0 ? pread(fd_, text, sizeof(text) - 1, 0) : -1;
  if (bytes <= 0) return 0;
  text[bytes] = 0;
  int64_t waited = 0;
  return std::sscanf(text, "%*s %" SCNd64, &waited) == 1 ? waited : 0;
}

}  // namespace detshare
