#include "server/backends/soft/ptx/cost_counters.h"

#include <algorithm>

namespace detshare::soft::ptx {

uint64_t CostCounters::TotalInstructions() const {
  uint64_t total = 0;
  for (uint64_t n : instructions) total += n;
  return total;
}

void CostCounters::Add(const CostCounters& other) {
  for (size_t i = 0; i < instructions.size(); ++i) instructions[i] += other.instructions[i];
  global_bytes_read += other.global_bytes_read;
  global_bytes_written += other.global_bytes_written;
  global_sectors += other.global_sectors;
  barriers += other.barriers;
  sleep_ns = std::max(sleep_ns, other.sleep_ns);
}

}  // namespace detshare::soft::ptx
