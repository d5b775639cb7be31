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

void MakeRoom(const Snapshot& snapshot, const std::vector<Precedence>& order, size_t index,
              const BestEffortRules& rules, Grant* grant, Nanoseconds* ask_again_at) {
  const CoroutineView& coroutine = snapshot.coroutines[index];
  const Nanoseconds typical = std::max<Nanoseconds>(0, coroutine.typical_operation);
  // While the longest operation runs, another one may follow.
  const Nanoseconds longest = std::max<Nanoseconds>(0, coroutine.longest_operation);
  grant->idle.window = std::max(
      {rules.window, Times(typical, kOperationsInFlight), Plus(longest, rules.min_window)});
  grant->contended.window = 0;
  const auto look_at = [&](const CoroutineView& first) {
    if (!first.has_work) return;
    const Nanoseconds is_long_at = Plus(first.changed_at, kLongBurst);
    if (snapshot.now >= is_long_at) {
      grant->contended.window = rules.min_window;
    } else {
      *ask_again_at = std::min(*ask_again_at, is_long_at);
    }
  };
  for (size_t i = 0; i < order.size(); ++i) {
    if (order[i].rank < order[index].rank) look_at(snapshot.coroutines[i]);
  }
  for (const OtherEngineView& other : snapshot.other_engines) {
    if (GoesFirst(other, coroutine, order[index].rank, order[index].urgent))
      look_at(other.coroutine);
  }
}

}  // namespace detshare::policy
