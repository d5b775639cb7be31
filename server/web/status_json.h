// The dashboard's data as JSON. docs/observing.md describes it.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "server/web/history.h"
#include "server/web/observation.h"

namespace detshare {

std::string StatusJson(const Observation& seen, const std::map<std::string, RecentTenant>& recent);
// Returns the points after number `after`.
std::string HistoryJson(const History& history, uint64_t after);

}  // namespace detshare
