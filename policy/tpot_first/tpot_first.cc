#include "policy/tpot_first/tpot_first.h"

#include <algorithm>

#include "policy/best_effort_limits.h"
#include "policy/latency_order.h"
#include "policy/partition_pool.h"
#include "policy/saturating.h"
#include "policy/status_macros.h"
#include "policy/tenants.h"

namespace detshare::policy {
namespace {

constexpr Parameter kParameters[] = {
    {.name = "tpot",
     .kind = ParameterKind::kDuration,
     .default_value = "50ms",
     .min = "1ms",
     .max = "100s",
     .help = "time per output token for tenants without this objective"},
    {.name = "ttft",
     .kind = ParameterKind::kDuration,
     .default_value = "1s",
     .min = "1ms",
     .max = "1000s",
     .help = "time to first token for tenants without this objective"},
    {.name = "prefill_share",
     .kind = ParameterKind::kPercent,
     .default_value = "50",
     .min = "1",
     .max = "100",
     .help = "share of the SMs for prefills beside decoding"},
    {.name = "relaxed_window",
     .kind = ParameterKind::kDuration,
     .default_value = "0",
     .min = "0",
     .max = "1s",
     .help = "device time in flight of decoding with slack, beside a program that is nearer to its "
             "objective"},
    {.name = "prefill_window",
     .kind = ParameterKind::kDuration,
     .default_value = "1ms",
     .min = "1us",
     .max = "1s",
     .help = "device time in flight of a prefill beside decoding"},
    kBestEffortWindow,
    kBestEffortMinWindow,
    kBestEffortLongOperation,
    kBestEffortLongShare,
    kBestEffortYieldingShare,
    kBestEffortYieldingBlock,
    kBestEffortContendedShare,
    kBestEffortContendedWindow,
    kBestEffortTail,
    kBestEffortTailShare,
    kBestEffortTailWindow,
    kBestEffortMaxThrottle,
    kBestEffortAbsentAfter,
};

// Latency tenants that make no tokens have ranks 0 to kLastLatency.
constexpr int kLastLatency = 1;
constexpr int kUrgent = 1, kNear = 2, kRelaxed = 3, kPrefill = 4;
static_assert(kPrefill < kUnsetRank);
// A decoding program is urgent or near below these slacks, as shares of its TPOT objective.
constexpr double kUrgentSlack = 0.25, kNearSlack = 0.5;
// A prefill rises when it has waited for these shares of its TTFT objective.
constexpr double kRaise = 0.5, kRaiseMore = 0.8;

struct Rules {
  Nanoseconds tpot, ttft;
  double prefill_share;
  Nanoseconds relaxed_window, prefill_window;
  BestEffortRules best_effort;
};

class TpotFirst final : public Policy {
 public:
  explicit TpotFirst(const Rules& rules) : rules_(rules) {}

  absl::Status Check(absl::Span<const Tenant> tenants) const override {
    return CheckTenants(tenants);
  }

  std::vector<SmRange> Partitions(const DeviceShape& device,
                                  absl::Span<const Tenant>) const override {
    return BestEffortPartitions(device, rules_.best_effort);
  }

  Decision Decide(const Snapshot& snapshot) override {
    Decision decision;
    std::vector<Precedence> order;
    bool urgent = false;
    const LatencyRanks latency(snapshot);
    for (const CoroutineView& coroutine : snapshot.coroutines) {
      const int rank = ServesRequests(coroutine)
                           ? std::min(latency.Of(coroutine), kLastLatency)
                           : RankOf(snapshot.now, coroutine, &decision.ask_again_at);
      order.push_back({rank, rank < kRelaxed});
      urgent = urgent || IsUrgentToken(rank, coroutine);
    }
    for (const OtherEngineView& other : snapshot.other_engines) {
      urgent = urgent || (IsUrgentToken(other.rank, other.coroutine) &&
                          StopsOthers(other.coroutine, other.urgent));
    }
    for (size_t i = 0; i < snapshot.coroutines.size(); ++i) {
      const bool others_first =
          OthersFirst(snapshot, order, i, rules_.best_effort.absent_after, &decision.ask_again_at);
      Grant& grant = decision.grants.emplace_back(
          GrantOf(snapshot, snapshot.coroutines[i], order[i], others_first, urgent));
      if (others_first && ServesRequests(snapshot.coroutines[i]))
        MakeRoom(snapshot, order, i, rules_.best_effort, &grant, &decision.ask_again_at);
      PauseLongBursts(snapshot, order, i, &grant, &decision.ask_again_at);
    }
    return decision;
  }

 private:
  static bool IsLatency(const CoroutineView& coroutine) {
    return coroutine.tenant->tenant_class == TenantClass::kLatency;
  }

  // Whether it is a latency tenant's program that makes no tokens.
  static bool ServesRequests(const CoroutineView& coroutine) {
    return IsLatency(coroutine) && !ProducesTokens(coroutine);
  }

  static bool IsUrgentToken(int rank, const CoroutineView& coroutine) {
    return rank == kUrgent && ProducesTokens(coroutine) && coroutine.has_work &&
           !coroutine.tokens.prefill;
  }

  // Lowers `ask_again_at` to the time when the rank changes if nothing else happens.
  int RankOf(Nanoseconds now, const CoroutineView& coroutine, Nanoseconds* ask_again_at) const {
    const Tenant& tenant = *coroutine.tenant;
    if (!ProducesTokens(coroutine)) {
      return tenant.tenant_class == TenantClass::kBatch ? kBatchRank : kUnsetRank;
    }
    const auto passed = [&](Nanoseconds at) {
      if (now >= at) return true;
      if (coroutine.has_work) *ask_again_at = std::min(*ask_again_at, at);
      return false;
    };
    const TokenView& tokens = coroutine.tokens;
    // Most programs become bound to a time-slice group while they start. Servers should be bound to
    // the urgent one.
    if (IsLatency(coroutine) && tokens.tokens == 0 && !tokens.prefill) return kNear;
    const Nanoseconds tpot = tenant.slo_tpot > 0 ? tenant.slo_tpot : rules_.tpot;
    if (tokens.prefill && !InTime(now, tokens, tpot)) {
      const Nanoseconds ttft = tenant.slo_ttft > 0 ? tenant.slo_ttft : rules_.ttft;
      if (passed(Plus(tokens.prefill_since, Times(ttft, kRaiseMore)))) return kUrgent;
      if (passed(Plus(tokens.prefill_since, Times(ttft, kRaise)))) return kNear;
      return kPrefill;
    }
    // `latest` is the time when no slack is left. A program without any token yet has all of its
    // slack when its work begins.
    const Nanoseconds since =
        tokens.tokens > 0 ? tokens.last_at : (coroutine.has_work ? coroutine.changed_at : now);
    const Nanoseconds latest =
        Minus(Plus(since, tpot), std::max(tokens.decode_work, tokens.step_work));
    if (passed(Minus(latest, Times(tpot, kUrgentSlack)))) return kUrgent;
    if (passed(Minus(latest, Times(tpot, kNearSlack)))) return kNear;
    return kRelaxed;
  }

  // Whether a step that begins with a prefill can still give the next token of other requests in
  // time. With continuous batching, a program prefills and decodes in one step.
  static bool InTime(Nanoseconds now, const TokenView& tokens, Nanoseconds tpot) {
    const Nanoseconds end = Plus(tokens.last_at, tpot);
    return tokens.tokens > 0 && now < end && Plus(tokens.prefill_since, tokens.step_work) <= end;
  }

  Grant GrantOf(const Snapshot& snapshot, const CoroutineView& coroutine, const Precedence& place,
                bool others_first, bool urgent) const {
    const int rank = place.rank;
    const bool tokens = ProducesTokens(coroutine);
    Grant grant;
    if (!tokens && !IsLatency(coroutine)) {
      grant = BestEffortGrant(snapshot, coroutine, rules_.best_effort, others_first);
      grant.rank = rank;
      return grant;
    }
    grant.rank = rank;
    grant.urgent = place.urgent;
    const auto partition = [&](double share) {
      return NearestWithin(snapshot.device, snapshot.partitions, *coroutine.tenant,
                           share * snapshot.device.sm_count);
    };
    grant.idle.partition = grant.idle.long_partition = partition(1);
    grant.idle.max_throttle = rules_.best_effort.max_throttle;
    grant.contended = grant.idle;
    if (rank == kPrefill && others_first) {
      grant.idle.window = rules_.prefill_window;
      grant.contended.partition = grant.contended.long_partition = partition(rules_.prefill_share);
      grant.contended.window = urgent ? 0 : rules_.prefill_window;
      PreparePartitions(&grant);
    } else if (tokens && rank == kRelaxed && others_first) {
      grant.contended.window = rules_.relaxed_window;
    }
    // A program that makes tokens gets no shorter contention phase, because its steps differ in
    // length: a prefill takes many times as long as a token.
    if (!tokens) SetContentionPhase(coroutine, rules_.best_effort, &grant);
    return grant;
  }

  const Rules rules_;
};

}  // namespace

bool ProducesTokens(const CoroutineView& coroutine) {
  if (coroutine.tenant->tenant_class == TenantClass::kBatch) return false;
  return coroutine.tokens.tokens > 0 || coroutine.tokens.prefill ||
         coroutine.tenant->slo_tpot > 0 || coroutine.tenant->slo_ttft > 0;
}

absl::Span<const Parameter> TpotFirstParameters() { return kParameters; }

absl::StatusOr<std::unique_ptr<Policy>> CreateTpotFirst(const Options& options) {
  DETSHARE_ASSIGN_OR_RETURN(ParameterValues values,
                            ParameterValues::Read("tpot-first", kParameters, options));
  Rules rules;
  rules.tpot = values.Duration("tpot");
  rules.ttft = values.Duration("ttft");
  rules.prefill_share = values.Fraction("prefill_share");
  rules.relaxed_window = values.Duration("relaxed_window");
  rules.prefill_window = values.Duration("prefill_window");
  rules.best_effort = BestEffortRules::Of(values);
  return std::make_unique<TpotFirst>(rules);
}

}  // namespace detshare::policy
