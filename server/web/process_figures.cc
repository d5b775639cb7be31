#include "server/web/process_figures.h"

#include <dirent.h>
#include <sys/resource.h>
#include <unistd.h>

#include <fstream>
#include <sstream>
#include <string>

namespace detshare {
namespace {

double BootTime() {
  std::ifstream file("/proc/stat");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("btime ", 0) == 0) return std::stod(line.substr(6));
  }
  return 0;
}

uint64_t CountFiles() {
  DIR* const directory = opendir("/proc/self/fd");
  if (directory == nullptr) return 0;
  uint64_t count = 0;
  while (const dirent* entry = readdir(directory)) count += entry->d_name[0] != '.';
  closedir(directory);
  return count - 1;  // without the descriptor that reads this directory
}

}  // namespace

ProcessFigures ReadProcessFigures() {
  ProcessFigures figures;
  std::ifstream file("/proc/self/stat");
  std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  // The name may contain anything, so the fields are read from behind it: the state is field 3.
  const size_t name_end = text.rfind(')');
  if (name_end != std::string::npos) {
    std::istringstream fields(text.substr(name_end + 1));
    std::string skipped;
    for (int field = 3; field < 14; ++field) fields >> skipped;
    const double tick = static_cast<double>(sysconf(_SC_CLK_TCK));
    double user = 0, system = 0, start = 0;
    fields >> user >> system;  // 14, 15
    for (int field = 16; field < 20; ++field) fields >> skipped;
    fields >> figures.threads >> skipped >> start;  // 20, 21, 22
    uint64_t pages = 0;
    fields >> figures.virtual_bytes >> pages;  // 23, 24
    figures.resident_bytes = pages * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
    figures.cpu_seconds = (user + system) / tick;
    if (const double boot = BootTime(); boot != 0) figures.start_time = boot + start / tick;
  }
  figures.open_files = CountFiles();
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0) figures.max_files = limit.rlim_cur;
  return figures;
}

}  // namespace detshare
