#include "policy/priority/ranks.h"

#include <algorithm>

#include "policy/partition_pool.h"

namespace detshare::policy {

std::vector<Precedence> OrderByClass(const Snapshot& snapshot) {
  const LatencyRanks latency(snapshot);
  std::vector<Precedence> order;
  for (const CoroutineView& coroutine : snapshot.coroutines) {
    switch (coroutine.tenant->tenant_class) {
      case TenantClass::kLatency:
        order.push_back({std::min(latency.Of(coroutine), kUnsetRank - 1), /*urgent=*/true});
        break;
      case TenantClass::kUnset:
        order.push_back({kUnsetRank, /*urgent=*/false});
        break;
      case TenantClass::kBatch:
        order.push_back({kBatchRank, /*urgent=*/false});
        break;
    }
  }
  return order;
}

Grant GrantByClass(const Snapshot& snapshot, size_t index, const std::vector<Precedence>& order,
                   const BestEffortRules& rules, Nanoseconds* ask_again_at) {
  const CoroutineView& coroutine = snapshot.coroutines[index];
  const bool others_first = OthersFirst(snapshot, order, index, rules.absent_after, ask_again_at);
  Grant grant;
  if (order[index].urgent) {
    grant.urgent = true;
    grant.idle.partition = grant.idle.long_partition = NearestWithin(
        snapshot.device, snapshot.partitions, *coroutine.tenant, snapshot.device.sm_count);
    grant.idle.max_throttle = rules.max_throttle;
    grant.contended = grant.idle;
    if (others_first) MakeRoom(snapshot, order, index, rules, &grant, ask_again_at);
    SetContentionPhase(coroutine, rules, &grant);
    PauseLongBursts(snapshot, order, index, &grant, ask_again_at);
  } else {
    grant = BestEffortGrant(snapshot, coroutine, rules, others_first);
  }
  grant.rank = order[index].rank;
  return grant;
}

}  // namespace detshare::policy
