#include "policy/priority/priority.h"

#include "policy/best_effort_limits.h"
#include "policy/priority/ranks.h"
#include "policy/status_macros.h"
#include "policy/tenants.h"

namespace detshare::policy {
namespace {

constexpr Parameter kParameters[] = {
    kBestEffortWindow,         kBestEffortMinWindow,       kBestEffortLongOperation,
    kBestEffortLongShare,      kBestEffortYieldingShare,   kBestEffortYieldingBlock,
    kBestEffortContendedShare, kBestEffortContendedWindow, kBestEffortTail,
    kBestEffortTailShare,      kBestEffortTailWindow,      kBestEffortMaxThrottle,
    kBestEffortAbsentAfter,
};

class Priority final : public Policy {
 public:
  explicit Priority(const BestEffortRules& rules) : rules_(rules) {}

  absl::Status Check(absl::Span<const Tenant> tenants) const override {
    return CheckTenants(tenants);
  }

  std::vector<SmRange> Partitions(const DeviceShape& device,
                                  absl::Span<const Tenant>) const override {
    return BestEffortPartitions(device, rules_);
  }

  Decision Decide(const Snapshot& snapshot) override {
    const std::vector<Precedence> order = OrderByClass(snapshot);
    Decision decision;
    decision.grants.reserve(snapshot.coroutines.size());
    for (size_t i = 0; i < snapshot.coroutines.size(); ++i) {
      decision.grants.push_back(GrantByClass(snapshot, i, order, rules_, &decision.ask_again_at));
    }
    return decision;
  }

 private:
  const BestEffortRules rules_;
};

}  // namespace

absl::Span<const Parameter> PriorityParameters() { return kParameters; }

absl::StatusOr<std::unique_ptr<Policy>> CreatePriority(const Options& options) {
  DETSHARE_ASSIGN_OR_RETURN(ParameterValues values,
                            ParameterValues::Read("priority", kParameters, options));
  return std::make_unique<Priority>(BestEffortRules::Of(values));
}

}  // namespace detshare::policy
