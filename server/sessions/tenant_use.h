// Totals of what a tenant's sessions have done, and what they have at the moment.
#pragma once

#include <cstdint>

#include "server/session/session_config.h"

namespace detshare {

struct TenantUse {
  uint64_t opened = 0;      // sessions, ever
  uint64_t faulted = 0;     // sessions whose work had a fault
  uint64_t violations = 0;  // sessions that were ended because they broke the protocol
  uint64_t open = 0;        // sessions that are open
  // Counts since the daemon began; memory is that of open sessions.
  SessionCounters counters;

  void Add(const SessionCounters& other) {
    counters.device_memory += other.device_memory;
    counters.pinned_memory += other.pinned_memory;
    counters.operations += other.operations;
    counters.kernels += other.kernels;
    counters.bytes_copied += other.bytes_copied;
    counters.migrations += other.migrations;
    counters.code_bytes += other.code_bytes;
    counters.launches += other.launches;
    counters.graphs += other.graphs;
    counters.copies += other.copies;
    counters.fills += other.fills;
    counters.swap.out += other.swap.out;
    counters.swap.bytes_out += other.swap.bytes_out;
    counters.swap.bytes_in += other.swap.bytes_in;
    counters.swap.moves += other.swap.moves;
    counters.swap.nanoseconds += other.swap.nanoseconds;
  }
};

}  // namespace detshare
