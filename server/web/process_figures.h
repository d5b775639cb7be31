// Reads what the kernel reports about this process.
#pragma once

#include <cstdint>

namespace detshare {

struct ProcessFigures {
  double cpu_seconds = 0;
  uint64_t resident_bytes = 0, virtual_bytes = 0;
  uint64_t open_files = 0, max_files = 0;
  uint64_t threads = 0;
  double start_time = 0;  // seconds since 1970
};

// Reads /proc/self. A figure that cannot be read is 0.
ProcessFigures ReadProcessFigures();

}  // namespace detshare
