// Times the driver calls that every CUDA program leans on, through one libcuda.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace detshare::bench {

struct MeasureOptions {
  std::string library = "libcuda.so.1";  // what to dlopen
  uint64_t bulk_bytes = uint64_t{1} << 30;
  int launches = 20000;
  int round_trips = 2000;
};

struct Measurement {
  std::string name;  // of kMetrics
  double value = 0;  // in the metric's unit
};

// How a metric is shown and judged.
struct Metric {
  const char* name;
  const char* unit;
  bool smaller_is_better;
  // The budget against native: at most native * factor + extra (smaller is better), or at least
  // native * factor.
  double budget_factor;
  double budget_extra;
};

// All metrics, in the order in which they are shown.
const std::vector<Metric>& Metrics();

// Runs every measurement in this process. Fails with the name of the first CUDA call that failed.
absl::StatusOr<std::vector<Measurement>> Measure(const MeasureOptions& options);

}  // namespace detshare::bench
