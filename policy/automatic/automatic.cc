#include "policy/automatic/automatic.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "policy/best_effort_limits.h"
#include "policy/fair/fair.h"
#include "policy/partition_pool.h"
#include "policy/priority/ranks.h"
#include "policy/saturating.h"
#include "policy/status_macros.h"
#include "policy/tenants.h"
#include "policy/tpot_first/tpot_first.h"

namespace detshare::policy {
namespace {

constexpr Parameter kOwnParameters[] = {
    {.name = "learn_after",
     .kind = ParameterKind::kDuration,
     .default_value = "100ms",
     .min = "0",
     .max = "100s",
     .help = "device time of a program before the policy judges its class"},
    {.name = "learn_bursts",
     .kind = ParameterKind::kNumber,
     .default_value = "32",
     .min = "1",
     .max = "1000000",
     .help = "bursts after which the policy sees earlier that users wait for results"},
    {.name = "longest_burst",
     .kind = ParameterKind::kDuration,
     .default_value = "50ms",
     .min = "10us",
     .max = "10s",
     .help = "longest burst of a program whose user waits for results"},
    {.name = "min_gap",
     .kind = ParameterKind::kDuration,
     .default_value = "500us",
     .min = "1us",
     .max = "10s",
     .help = "shortest pause of a program whose user waits for results"},
};

constexpr double kMinGapToBurst = 0.5;
// The policy keeps the verdict "latency" until pauses are shorter, or bursts longer, by this
// factor.
constexpr double kKeep = 0.5;
constexpr double kMemoryBound = 0.6, kMemoryBoundShare = 0.5;

const std::vector<Parameter>& AllParameters() {
  static const auto* const all = [] {
    auto* parameters =
        new std::vector<Parameter>(std::begin(kOwnParameters), std::end(kOwnParameters));
    for (const Parameter& parameter : TpotFirstParameters()) parameters->push_back(parameter);
    return parameters;
  }();
  return *all;
}

class Automatic final : public Policy {
 public:
  Automatic(const ParameterValues& values, std::unique_ptr<Policy> by_class,
            std::unique_ptr<Policy> by_weight)
      : learn_after_(values.Duration("learn_after")),
        learn_bursts_(values.Number("learn_bursts")),
        longest_burst_(values.Duration("longest_burst")),
        min_gap_(values.Duration("min_gap")),
        by_class_(std::move(by_class)),
        by_weight_(std::move(by_weight)) {}

  absl::Status Check(absl::Span<const Tenant> tenants) const override {
    return CheckTenants(tenants);
  }

  std::vector<SmRange> Partitions(const DeviceShape& device,
                                  absl::Span<const Tenant> tenants) const override {
    std::vector<SmRange> partitions = by_class_->Partitions(device, tenants);
    for (const SmRange& range : by_weight_->Partitions(device, tenants))
      partitions.push_back(range);
    return partitions;
  }

  Decision Decide(const Snapshot& snapshot) override {
    // The same snapshot, with the classes that the policy found.
    std::vector<CoroutineView> views(snapshot.coroutines.begin(), snapshot.coroutines.end());
    std::vector<Tenant> tenants(views.size());
    std::map<CoroutineId, Seen> seen;
    std::set<CoroutineId> latency_teams;
    for (size_t i = 0; i < views.size(); ++i) {
      tenants[i] = *views[i].tenant;
      Seen& now = seen[views[i].id] = SeenOf(views[i]);
      tenants[i].tenant_class = now.tenant_class = ClassOf(views[i], now);
      if (views[i].team != 0 && tenants[i].tenant_class == TenantClass::kLatency)
        latency_teams.insert(views[i].team);
    }
    seen_ = std::move(seen);
    bool only_batch = true;
    for (size_t i = 0; i < views.size(); ++i) {
      const bool set_by_operator = views[i].tenant->tenant_class != TenantClass::kUnset;
      if (!set_by_operator && latency_teams.contains(views[i].team))
        tenants[i].tenant_class = TenantClass::kLatency;
      views[i].tenant = &tenants[i];
      only_batch = only_batch && tenants[i].tenant_class == TenantClass::kBatch;
    }
    Snapshot classed = snapshot;
    classed.coroutines = views;
    // Asked for every decision, because it keeps accounts of what tenants were given.
    Decision shares = by_weight_->Decide(classed);
    if (only_batch) {
      // Policies of other engines see the rank.
      for (Grant& grant : shares.grants) grant.rank = kBatchRank;
      return shares;
    }
    Decision decision = by_class_->Decide(classed);
    for (size_t i = 0; i < views.size(); ++i) {
      if (tenants[i].tenant_class == TenantClass::kBatch) {
        LeaveRoom(classed, i, &decision.grants[i]);
      }
    }
    return decision;
  }

 private:
  // What the policy knows of a program from its own decisions.
  struct Seen {
    // Of the last decision, without regard to teams.
    TenantClass tenant_class = TenantClass::kUnset;
    Nanoseconds changed_at = 0;  // CoroutineView::changed_at
    double bursts = 0;           // at least so many have ended
  };

  Seen SeenOf(const CoroutineView& view) const {
    const auto before = seen_.find(view.id);
    Seen seen = before != seen_.end() ? before->second : Seen{};
    if (!view.has_work && view.changed_at != seen.changed_at) ++seen.bursts;
    seen.changed_at = view.changed_at;
    return seen;
  }

  TenantClass ClassOf(const CoroutineView& view, const Seen& seen) const {
    const Tenant& tenant = *view.tenant;
    if (tenant.tenant_class != TenantClass::kUnset) return tenant.tenant_class;
    if (tenant.slo_latency > 0 || ProducesTokens(view)) return TenantClass::kLatency;
    const bool judged = view.device_time >= learn_after_;
    if (!judged && seen.bursts < learn_bursts_) return TenantClass::kUnset;
    const double slack = seen.tenant_class == TenantClass::kLatency ? kKeep : 1;
    const bool short_bursts =
        view.typical_burst > 0 && view.typical_burst <= Times(longest_burst_, 1 / slack);
    const bool pauses = view.typical_gap >= Times(min_gap_, slack) &&
                        view.typical_gap >= Times(view.typical_burst, kMinGapToBurst * slack);
    if (short_bursts && pauses) return TenantClass::kLatency;
    return judged ? TenantClass::kBatch : TenantClass::kUnset;
  }

  static bool MemoryBound(const CoroutineView& view) { return view.memory_bound >= kMemoryBound; }

  static void LeaveRoom(const Snapshot& snapshot, size_t index, Grant* grant) {
    const CoroutineView& view = snapshot.coroutines[index];
    if (!MemoryBound(view)) return;
    const bool used = std::any_of(
        snapshot.coroutines.begin(), snapshot.coroutines.end(), [&](const CoroutineView& other) {
          return &other != &view && other.tenant->tenant_class == TenantClass::kBatch &&
                 other.has_work && !MemoryBound(other);
        });
    if (!used) return;
    const int half = NearestWithin(snapshot.device, snapshot.partitions, *view.tenant,
                                   kMemoryBoundShare * snapshot.device.sm_count);
    const auto size = [&](int partition) {
      return SmsOf(snapshot.device, snapshot.partitions[partition]);
    };
    for (int* partition :
         {&grant->idle.partition, &grant->idle.long_partition, &grant->idle.yielding_partition}) {
      if (size(*partition) > size(half)) *partition = half;
    }
    PreparePartitions(grant);
  }

  const Nanoseconds learn_after_;
  const double learn_bursts_;
  const Nanoseconds longest_burst_, min_gap_;
  const std::unique_ptr<Policy> by_class_, by_weight_;
  std::map<CoroutineId, Seen> seen_;
};

}  // namespace

absl::Span<const Parameter> AutomaticParameters() { return AllParameters(); }

absl::StatusOr<std::unique_ptr<Policy>> CreateAutomatic(const Options& options) {
  DETSHARE_ASSIGN_OR_RETURN(ParameterValues values,
                            ParameterValues::Read("auto", AllParameters(), options));
  Options of_class = options;
  for (const Parameter& own : kOwnParameters) of_class.parameters.erase(std::string(own.name));
  DETSHARE_ASSIGN_OR_RETURN(std::unique_ptr<Policy> by_class, CreateTpotFirst(of_class));
  absl::StatusOr<std::unique_ptr<Policy>> by_weight = CreateFair({});
  if (!by_weight.ok()) return by_weight.status();
  return std::make_unique<Automatic>(values, std::move(by_class), *std::move(by_weight));
}

}  // namespace detshare::policy
