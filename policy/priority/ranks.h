// Ranks and grants by class and latency SLO (see priority.h).
#pragma once

#include <vector>

#include "policy/best_effort_limits.h"
#include "policy/latency_order.h"
#include "policy/policy.h"

namespace detshare::policy {

// The rank of each coroutine, and whether it is urgent: element i is for snapshot.coroutines[i].
std::vector<Precedence> OrderByClass(const Snapshot& snapshot);

// The grant of coroutine `index`, with its rank. `order` is the result of OrderByClass(). Lowers
// `ask_again_at` to the time when the grant changes if nothing else happens.
Grant GrantByClass(const Snapshot& snapshot, size_t index, const std::vector<Precedence>& order,
                   const BestEffortRules& rules, Nanoseconds* ask_again_at);

}  // namespace detshare::policy
