// Counters for device memory that was moved from its card to the host.
#pragma once

#include <cstdint>

namespace detshare {

struct SwapCounters {
  uint64_t out = 0;  // bytes that are out at present
  uint64_t bytes_out = 0, bytes_in = 0, moves = 0;
  int64_t nanoseconds = 0;  // time spent on moves
};

}  // namespace detshare
