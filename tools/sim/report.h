// The results of a simulation as a table, as CSV and as JSON.
#pragma once

#include <string>
#include <vector>

#include "tools/sim/simulation.h"

namespace detshare::sim {

std::string Text(const std::vector<Summary>& summaries);
std::string Csv(const std::vector<Summary>& summaries);
std::string Json(const std::vector<Summary>& summaries);

}  // namespace detshare::sim
