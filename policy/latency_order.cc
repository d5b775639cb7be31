#include "policy/latency_order.h"

#include <algorithm>

#include "policy/saturating.h"

namespace detshare::policy {
namespace {

constexpr double kNextRank = 4;  // the next rank begins at this multiple of a rank's shortest SLO

}  // namespace

LatencyRanks::LatencyRanks(const Snapshot& snapshot) {
  std::vector<Nanoseconds> slos;
  const auto add = [&](const CoroutineView& coroutine, bool urgent) {
    if (!urgent && coroutine.tenant->tenant_class != TenantClass::kLatency) return;
    if (coroutine.tenant->slo_latency > 0) slos.push_back(coroutine.tenant->slo_latency);
  };
  for (const CoroutineView& coroutine : snapshot.coroutines) add(coroutine, /*urgent=*/false);
  // Their policies may have found the class themselves.
  for (const OtherEngineView& other : snapshot.other_engines) add(other.coroutine, other.urgent);
  std::sort(slos.begin(), slos.end());
  for (const Nanoseconds slo : slos) {
    if (firsts_.empty() || slo >= Times(firsts_.back(), kNextRank)) firsts_.push_back(slo);
  }
}

int LatencyRanks::Of(const CoroutineView& coroutine) const {
  int rank = 0;
  for (size_t later = 1; later < firsts_.size(); ++later) {
    if (coroutine.tenant->slo_latency >= firsts_[later]) rank = static_cast<int>(later);
  }
  return rank;
}

void MakeRoom(const CoroutineView& coroutine, const BestEffortRules& rules, Grant* grant) {
  const Nanoseconds typical = std::max<Nanoseconds>(0, coroutine.typical_operation);
  // While the longest operation runs, another one may follow.
  const Nanoseconds longest = std::max<Nanoseconds>(0, coroutine.longest_operation);
  grant->idle.window = std::max(
      {rules.window, Times(typical, kOperationsInFlight), Plus(longest, rules.min_window)});
  grant->contended.window = rules.min_window;
}

}  // namespace detshare::policy
