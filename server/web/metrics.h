// What Prometheus reads: the one table of metrics, and their values.
#pragma once

#include <span>
#include <string>

#include "server/web/exposition.h"
#include "server/web/observation.h"

namespace detshare {

// All that are exposed, in this order. docs/metrics.md shows the same table; a test compares them.
std::span<const Metric> AllMetrics();

std::string MetricsText(const Observation& observation);

}  // namespace detshare
