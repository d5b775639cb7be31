// Measures the driver calls that every CUDA program uses, with one libcuda.
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
  std::string name;  // of an element of Metrics()
  double value = 0;  // in the metric's unit
};

// A metric, with its budget relative to the native driver.
struct Metric {
  const char* name;
  const char* unit;
  bool smaller_is_better;
  // If smaller is better, the budget is at most native * factor + extra, otherwise at least native
  // * factor. A factor of 0: no budget.
  double budget_factor;
  double budget_extra;
};

// All metrics, in the order in which results show them.
const std::vector<Metric>& Metrics();

// Runs every measurement in this process. The error names the first CUDA call that failed.
absl::StatusOr<std::vector<Measurement>> Measure(const MeasureOptions& options);

}  // namespace detshare::bench
