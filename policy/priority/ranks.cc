#include "policy/priority/ranks.h"

#include <algorithm>

#include "policy/partition_pool.h"
#include "policy/saturating.h"

namespace detshare::policy {
namespace {

constexpr double kNextRank = 4;  // the next rank begins at this multiple of a rank's shortest SLO

}  // namespace

std::vector<Precedence> OrderByClass(const Snapshot& snapshot) {
  std::vector<Nanoseconds> slos;
  const auto add_slo = [&](const CoroutineView& coroutine) {
    if (coroutine.tenant->tenant_class != TenantClass::kLatency) return;
    if (coroutine.tenant->slo_latency > 0) slos.push_back(coroutine.tenant->slo_latency);
  };
  for (const CoroutineView& coroutine : snapshot.coroutines) add_slo(coroutine);
  for (const OtherEngineView& other : snapshot.other_engines) add_slo(other.coroutine);
  std::sort(slos.begin(), slos.end());
  std::vector<Nanoseconds> firsts;  // the shortest SLO of each rank
  for (const Nanoseconds slo : slos) {
    if (firsts.empty() || slo >= Times(firsts.back(), kNextRank)) firsts.push_back(slo);
  }
  std::vector<Precedence> order;
  for (const CoroutineView& coroutine : snapshot.coroutines) {
    const bool latency = coroutine.tenant->tenant_class == TenantClass::kLatency;
    int rank = kBatchRank;
    if (coroutine.tenant->tenant_class == TenantClass::kUnset) rank = kUnsetRank;
    if (latency) {
      rank = 0;
      for (size_t later = 1; later < firsts.size(); ++later) {
        if (coroutine.tenant->slo_latency >= firsts[later]) rank = static_cast<int>(later);
      }
      rank = std::min(rank, kUnsetRank - 1);
    }
    order.push_back({rank, latency});
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
    if (others_first) grant.contended.window = rules.min_window;
    SetContentionPhase(coroutine, rules, &grant);
    PauseLongBursts(snapshot, order, index, &grant, ask_again_at);
  } else {
    grant = BestEffortGrant(snapshot, coroutine, rules, others_first);
  }
  grant.rank = order[index].rank;
  return grant;
}

}  // namespace detshare::policy
