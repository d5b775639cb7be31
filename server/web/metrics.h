// The metrics that Prometheus reads: their table and their values.
#pragma once

#include <span>
#include <string>

#include "server/web/exposition.h"
#include "server/web/observation.h"

namespace detshare {

// Returns all metrics, in the order in which they are exposed. docs/metrics.md shows the same
// table; a test compares them.
std::span<const Metric> AllMetrics();

std::string MetricsText(const Observation& observation);

}  // namespace detshare
