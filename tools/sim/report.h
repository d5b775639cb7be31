// What a simulation found, for people and for programs.
#pragma once

#include <string>
#include <vector>

#include "tools/sim/simulation.h"

namespace detshare::sim {

std::string Text(const std::vector<Summary>& summaries);
std::string Csv(const std::vector<Summary>& summaries);
std::string Json(const std::vector<Summary>& summaries);

}  // namespace detshare::sim
