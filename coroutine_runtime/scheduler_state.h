// The state of a scheduler's partitions and coroutines.
#pragma once

#include <cstdint>
#include <string>

#include "policy/policy.h"
#include "proto/latency_histogram.h"

namespace detshare {

class Partition;

struct SchedEntityReport {
  bool has_work = false;
  // Its session is bound to the ordinary or to the urgent time-slice group.
  bool bound_ordinary = false, bound_urgent = false;
  int rank = 0;
  policy::Nanoseconds changed_at = 0, in_flight = 0, throttled_since = 0;
  policy::Nanoseconds in_flight_since = 0;  // as in policy::CoroutineView
  policy::Nanoseconds device_time = 0, longest_operation = 0, typical_operation = 0;
  policy::Nanoseconds typical_burst = 0, typical_gap = 0;
  double memory_bound = -1;  // as in policy::CoroutineView
  policy::Nanoseconds throttled_by_window = 0, throttled_by_budget = 0;  // total time
  // Total time in which it was throttled only because of work of other processes.
  policy::Nanoseconds yielded = 0;
  uint64_t operations = 0;         // that were followed
  uint64_t passes = 0;             // operations that passed after a long enough throttle
  Partition* partition = nullptr;  // of the latest kernel or graph
  policy::TokenView tokens;
};

struct PartitionView {
  std::string name;  // "all", "sm0-63", or "urgent": all SMs in the urgent time-slice group
  int first_sm = 0, sm_count = 0;
  int sessions = 0;
};

struct CoroutineState {
  policy::Tenant tenant;
  std::string partition;
  int first_sm = 0, sm_count = 0;  // of the partition
  bool bound = false;              // its work stays in its present time-slice group
  bool followed = false;           // if false, the figures are meaningless
  SchedEntityReport figures;
  LatencyHistogram::Counts bursts{};
};

}  // namespace detshare
