// Latency tenants beside each other: whose requests go first, and how the others make room.
//
// The hardware stops no urgent work for other urgent work. So a request that comes waits for the urgent work
// of a tenant with a longer SLO that is in the hardware already. A window bounds that work: three operations,
// enough that the device does not run dry. While the request runs, the other tenant gives nothing to the
// hardware. Beside a burst of more than kLongBurst it goes on, one operation at a time.
#pragma once

#include <vector>

#include "policy/best_effort_limits.h"
#include "policy/policy.h"

namespace detshare::policy {

// Policies that rank latency tenants give these ranks to the others. Latency tenants have ranks before these.
inline constexpr int kUnsetRank = 5;
inline constexpr int kBatchRank = 6;

// The ranks of latency tenants by their latency SLOs, from 0 on. A rank ends where an SLO is four times the
// rank's shortest SLO. Tenants without an SLO have rank 0.
class LatencyRanks {
 public:
  explicit LatencyRanks(const Snapshot& snapshot);
  int Of(const CoroutineView& coroutine) const;

 private:
  std::vector<Nanoseconds> firsts_;  // the shortest SLO of each rank
};

// Sets the windows in the grant of coroutine `index`, of a latency tenant, beside coroutines that go first
// (OthersFirst()). Lowers `ask_again_at` to the time when they change if nothing else happens.
void MakeRoom(const Snapshot& snapshot, const std::vector<Precedence>& order, size_t index,
              const BestEffortRules& rules, Grant* grant, Nanoseconds* ask_again_at);

}  // namespace detshare::policy
