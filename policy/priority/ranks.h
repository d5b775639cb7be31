// Ranks and grants by class and latency SLO (see priority.h).
#pragma once

#include <vector>

#include "policy/best_effort_limits.h"
#include "policy/policy.h"

namespace detshare::policy {

// Latency tenants have ranks 0 to kUnsetRank - 1.
inline constexpr int kUnsetRank = 4;
inline constexpr int kBatchRank = 5;

// The rank of each coroutine: element i is for snapshot.coroutines[i].
std::vector<int> RanksByClass(const Snapshot& snapshot);

// The grant of coroutine `index`, with its rank. `ranks` is the result of RanksByClass(). Lowers
// `ask_again_at` to the time when the grant changes if nothing else happens.
Grant GrantByClass(const Snapshot& snapshot, size_t index, const std::vector<int>& ranks,
                   const BestEffortRules& rules, Nanoseconds* ask_again_at);

}  // namespace detshare::policy
