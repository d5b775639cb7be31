#include "proto/cpu_load.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>

namespace detshare {

CpuLoad::CpuLoad(const char* path, int cpus) : cpus_(cpus), fd_(open(path, O_RDONLY | O_CLOEXEC)) {}

CpuLoad::~CpuLoad() {
  if (fd_ >= 0) close(fd_);
}

CpuLoad& CpuLoad::OfHost() {
  static CpuLoad* const load =
      new CpuLoad("/proc/loadavg", static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN)));
  return *load;
}

bool CpuLoad::Look() const {
  // "0.20 0.18 0.12 1/80 11206": the fourth word has the number of threads that want to run.
  char text[128];
  const ssize_t bytes = fd_ >= 0 ? pread(fd_, text, sizeof(text) - 1, 0) : -1;
  if (bytes <= 0) return false;
  text[bytes] = 0;
  int running = 0;
  return std::sscanf(text, "%*s %*s %*s %d/", &running) == 1 && running > cpus_;
}

bool CpuLoad::Full(int64_t now) {
  int64_t look_at = look_at_.load(std::memory_order_relaxed);
  if (now >= look_at &&
      look_at_.compare_exchange_strong(look_at, now + kInterval, std::memory_order_relaxed) &&
      Look()) {
    full_until_.store(now + kHold, std::memory_order_relaxed);
  }
  return now < full_until_.load(std::memory_order_relaxed);
}

}  // namespace detshare
