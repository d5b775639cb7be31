#include "server/base/host_memory.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <string>

namespace detshare {
namespace {

// Returns the limit of a version 2 control group that has its own file system, or UINT64_MAX if
// there is no limit.
uint64_t ControlGroupLimit() {
  std::ifstream file("/sys/fs/cgroup/memory.max");
  uint64_t limit = UINT64_MAX;  // the file may contain "max"
  if (!(file >> limit)) return UINT64_MAX;
  return limit;
}

}  // namespace

uint64_t HostMemoryBytes() {
  const long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
  const uint64_t machine =
      pages > 0 && page > 0 ? static_cast<uint64_t>(pages) * static_cast<uint64_t>(page) : 0;
  return std::min(machine, ControlGroupLimit());
}

}  // namespace detshare
