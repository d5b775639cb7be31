// Ranks and grants by class and latency SLO, for every policy that goes by them.
#pragma once

#include <vector>

#include "policy/guest_terms.h"
#include "policy/policy.h"

namespace detshare::policy {

// Latency tenants have ranks 0 to kUnsetRank - 1.
inline constexpr int kUnsetRank = 4;
inline constexpr int kBatchRank = 5;

// ranks[i] is of snapshot.coroutines[i].
std::vector<int> RanksByClass(const Snapshot& snapshot);

// The grant of coroutine `index`, rank included, by its class.
Grant GrantByClass(const Snapshot& snapshot, size_t index, const std::vector<int>& ranks,
                   const GuestRules& rules, Nanoseconds* ask_again_at);

}  // namespace detshare::policy
