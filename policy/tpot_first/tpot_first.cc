#include "policy/tpot_first/tpot_first.h"

#include <algorithm>
#include <tuple>
#include <vector>

#include "policy/best_effort_limits.h"
#include "policy/partition_pool.h"
#include "policy/saturating.h"
#include "policy/status_macros.h"
#include "policy/tenants.h"

namespace detshare::policy {
namespace {

constexpr Parameter kParameters[] = {
    {"tpot", ParameterKind::kDuration, "50ms", "1ms", "100s",
     "time per output token for tenants without this objective"},
    {"ttft", ParameterKind::kDuration, "1s", "1ms", "1000s",
     "time to first token for tenants without this objective"},
    {"prefill_share", ParameterKind::kPercent, "50", "1", "100",
     "share of the SMs for prefills beside decoding"},
    {"relaxed_window", ParameterKind::kDuration, "0", "0", "1s",
     "device time in flight of decoding with slack, beside a program that is nearer to its "
     "objective"},
    {"prefill_window", ParameterKind::kDuration, "1ms", "1us", "1s",
     "device time in flight of a prefill beside decoding"},
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

constexpr int kUrgent = 0, kNear = 1, kRelaxed = 2, kLater = 3, kPrefill = 4, kUnset = 5,
              kBatch = 6;
// A decoding program is urgent or near below these slacks, as shares of its TPOT objective.
constexpr double kUrgentSlack = 0.25, kNearSlack = 0.5;
// A prefill rises when it has waited for these shares of its TTFT objective.
constexpr double kRaise = 0.5, kRaiseMore = 0.8;
// A step that has missed its deadline waits for steps that can be in time, for this multiple of its
// TPOT objective.
constexpr double kMissedWait = 2;
// Steps have ample time if the device time of a step and of those before it fits this often before
// its deadline.
constexpr double kAmple = 2;

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
  bool TakesTurns(absl::Span<const Tenant> tenants) const override {
    return std::any_of(tenants.begin(), tenants.end(), [](const Tenant& tenant) {
      return tenant.slo_tpot > 0 || tenant.slo_ttft > 0;
    });
  }

  std::vector<SmRange> Partitions(const DeviceShape& device,
                                  absl::Span<const Tenant>) const override {
    return BestEffortPartitions(device, rules_.best_effort);
  }

  Decision Decide(const Snapshot& snapshot) override {
    Decision decision;
    const bool crowded = Crowded(snapshot);
    std::vector<Precedence> order;
    bool urgent = false;
    for (const CoroutineView& coroutine : snapshot.coroutines) {
      int rank = RankOf(snapshot.now, coroutine, &decision.ask_again_at);
      if (crowded && rank == kRelaxed) rank = kNear;
      order.push_back(
          {rank, rank < kRelaxed || (!ProducesTokens(coroutine) && IsLatency(coroutine))});
      urgent = urgent || (rank == kUrgent && coroutine.has_work && !coroutine.tokens.prefill);
    }
    OrderSteps(snapshot, &order, &decision.ask_again_at);
    for (size_t i = 0; i < snapshot.coroutines.size(); ++i) {
      const bool others_first =
          OthersFirst(snapshot, order, i, rules_.best_effort.absent_after, &decision.ask_again_at);
      decision.grants.push_back(
          GrantOf(snapshot, snapshot.coroutines[i], order[i], others_first, urgent));
      if (crowded && ProducesTokens(snapshot.coroutines[i]) && IsStep(snapshot.coroutines[i]))
        decision.grants.back().turn_group = snapshot.coroutines[i].id;
      PauseLongBursts(snapshot, order, i, &decision.grants.back(), &decision.ask_again_at);
    }
    return decision;
  }

 private:
  static bool IsLatency(const CoroutineView& coroutine) {
    return coroutine.tenant->tenant_class == TenantClass::kLatency;
  }

  // Lowers `ask_again_at` to the time when the rank changes if nothing else happens.
  int RankOf(Nanoseconds now, const CoroutineView& coroutine, Nanoseconds* ask_again_at) const {
    const Tenant& tenant = *coroutine.tenant;
    if (!ProducesTokens(coroutine)) {
      if (tenant.tenant_class == TenantClass::kLatency) return kNear;
      return tenant.tenant_class == TenantClass::kBatch ? kBatch : kUnset;
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
    const Nanoseconds tpot = TpotOf(tenant);
    if (!IsStep(coroutine)) {
      const Nanoseconds ttft = tenant.slo_ttft > 0 ? tenant.slo_ttft : rules_.ttft;
      if (passed(Plus(tokens.prefill_since, Times(ttft, kRaiseMore)))) return kUrgent;
      if (passed(Plus(tokens.prefill_since, Times(ttft, kRaise)))) return kNear;
      return kPrefill;
    }
    // The time when no slack is left.
    const Nanoseconds latest =
        Minus(DeadlineOf(now, coroutine), std::max(tokens.decode_work, tokens.step_work));
    if (passed(Minus(latest, Times(tpot, kUrgentSlack)))) return kUrgent;
    if (passed(Minus(latest, Times(tpot, kNearSlack)))) return kNear;
    return kRelaxed;
  }

  Nanoseconds TpotOf(const Tenant& tenant) const {
    return tenant.slo_tpot > 0 ? tenant.slo_tpot : rules_.tpot;
  }

  // When the next token of a program is due. A program without any token yet has all of its slack
  // when its work begins.
  Nanoseconds DeadlineOf(Nanoseconds now, const CoroutineView& coroutine) const {
    const Nanoseconds since = coroutine.tokens.tokens > 0 ? coroutine.tokens.last_at
                              : coroutine.has_work        ? coroutine.changed_at
                                                          : now;
    return Plus(since, TpotOf(*coroutine.tenant));
  }

  // Whether the burst of a program that makes tokens has the deadline of the next token. A prefill
  // has it if the tokens of other requests wait for it, and if it would be in time alone: with
  // continuous batching, a program prefills and decodes in one step.
  bool IsStep(const CoroutineView& coroutine) const {
    const TokenView& tokens = coroutine.tokens;
    return !tokens.prefill ||
           (tokens.tokens > 0 && Plus(tokens.prefill_since, tokens.step_work) <=
                                     Plus(tokens.last_at, TpotOf(*coroutine.tenant)));
  }

  // Whether the steps of several programs leave each other no slack. Then all of them are near, and
  // each has a turn group of its own, so that also steps that begin at the same moment run one after
  // the other. Not beside latency tenants without tokens, which do not wait for steps, and not where
  // steps would wait for other work, because they cannot stop it.
  bool Crowded(const Snapshot& snapshot) const {
    if (!TakesTurns(snapshot.tenants)) return false;
    int programs = 0, preempting = 0, others = 0;
    Nanoseconds work = 0, tpot = kForever;
    for (const CoroutineView& coroutine : snapshot.coroutines) {
      if (!ProducesTokens(coroutine)) {
        if (IsLatency(coroutine) || coroutine.always_preempts) return false;
        ++others;
        continue;
      }
      ++programs;
      preempting += coroutine.preempts || coroutine.always_preempts;
      work = Plus(work, std::max(coroutine.tokens.decode_work, coroutine.tokens.step_work));
      tpot = std::min(tpot, TpotOf(*coroutine.tenant));
    }
    const bool apart = preempting == programs || (preempting == 0 && others == 0);
    return programs > 1 && apart && Times(work, kAmple) > tpot;
  }

  // A step of a program, in the order of steps.
  struct Step {
    bool missed = false;  // it missed its deadline, and waits for the others
    Nanoseconds deadline = 0;
    size_t index = 0;      // of the coroutine
    Nanoseconds work = 0;  // device time
    bool operator<(const Step& other) const {
      return std::tie(missed, deadline, index) <
             std::tie(other.missed, other.deadline, other.index);
    }
  };

  // Steps run one after the other, the first deadline first, unless all have ample time. Side by
  // side each would end as late as the last one in a row. A step that has missed its deadline lets
  // the others be in time.
  void OrderSteps(const Snapshot& snapshot, std::vector<Precedence>* order,
                  Nanoseconds* ask_again_at) const {
    std::vector<Step> steps;
    Nanoseconds next_change = kForever;
    for (size_t i = 0; i < order->size(); ++i) {
      const CoroutineView& coroutine = snapshot.coroutines[i];
      if (!coroutine.has_work || !ProducesTokens(coroutine) || !IsStep(coroutine)) continue;
      Step& step = steps.emplace_back();
      step.index = i;
      step.work = std::max(coroutine.tokens.decode_work, coroutine.tokens.step_work);
      step.deadline = DeadlineOf(snapshot.now, coroutine);
      const Nanoseconds end = Plus(step.deadline, Times(TpotOf(*coroutine.tenant), kMissedWait));
      step.missed = snapshot.now >= step.deadline && snapshot.now < end;
      if (snapshot.now < end)
        next_change = std::min(next_change, step.missed ? end : step.deadline);
    }
    std::sort(steps.begin(), steps.end());
    if (steps.size() < 2) return;
    Nanoseconds work = 0, ample_until = kForever;
    for (const Step& step : steps) {
      work = Plus(work, step.work);
      ample_until = std::min(ample_until, Minus(step.deadline, Times(work, kAmple)));
    }
    if (snapshot.now <= ample_until) next_change = Plus(ample_until, 1);
    *ask_again_at = std::min(*ask_again_at, next_change);
    if (snapshot.now <= ample_until) return;
    // Whether work is urgent in the hardware depends on its own slack alone, because turns depend
    // on that.
    for (size_t i = 1; i < steps.size(); ++i) (*order)[steps[i].index].rank = kLater;
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
    } else if (tokens && (rank == kLater || (rank == kRelaxed && others_first))) {
      // A step that goes first may still have ordinary work in the hardware, and a later one is
      // urgent as well: neither stops the other.
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
