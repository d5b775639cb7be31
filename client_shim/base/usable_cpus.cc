#include "client_shim/base/usable_cpus.h"

#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <string>

namespace detshare::shim {
namespace {

constexpr char kGroups[] = "/sys/fs/cgroup";

// Returns the first KiB of a file, or nothing if there is no such file.
std::string Beginning(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return {};
  char buffer[1024];
  const ssize_t bytes = read(fd, buffer, sizeof(buffer));
  close(fd);
  return {buffer, static_cast<size_t>(std::max<ssize_t>(bytes, 0))};
}

// The path of this process's group in the version 2 hierarchy, from the line "0::/PATH".
std::string OwnGroup() {
  const std::string groups = Beginning("/proc/self/cgroup");
  const size_t begin = groups.rfind("0::/", 0) == 0 ? 0 : groups.find("\n0::/");
  if (begin == std::string::npos) return {};
  const size_t path = groups.find('/', begin);
  return groups.substr(path, groups.find('\n', path) - path);
}

}  // namespace

int CpusOfQuota(std::string_view cpu_max) {
  uint64_t quota = 0, period = 0;
  const char* const end = cpu_max.data() + cpu_max.size();
  const auto first = std::from_chars(cpu_max.data(), end, quota);
  if (first.ec != std::errc() || first.ptr == end || *first.ptr != ' ') return 0;
  const auto second = std::from_chars(first.ptr + 1, end, period);
  if (second.ec != std::errc() || quota == 0 || period == 0) return 0;
  return static_cast<int>(std::min<uint64_t>((quota - 1) / period + 1, 1 << 20));
}

int UsableCpus() {
  cpu_set_t affinity;
  int cpus = sched_getaffinity(0, sizeof(affinity), &affinity) == 0 ? CPU_COUNT(&affinity) : 1;
  // In a container the group's path may name a place outside the mounted hierarchy. Then the loop
  // finds only the root's file, which is the container's own.
  std::string group = OwnGroup();
  for (;;) {
    const int allowed = CpusOfQuota(Beginning(kGroups + group + "/cpu.max"));
    if (allowed != 0) cpus = std::min(cpus, allowed);
    const size_t slash = group.rfind('/');
    if (slash == std::string::npos) break;
    group.resize(slash);
  }
  return std::max(cpus, 1);
}

}  // namespace detshare::shim
