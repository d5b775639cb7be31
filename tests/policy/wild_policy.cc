// A policy whose decisions no scheduler can carry out.
#include <memory>
#include <vector>

#include "policy/shared_object.h"

namespace {

using detshare::policy::Decision;
using detshare::policy::DeviceShape;
using detshare::policy::Grant;
using detshare::policy::kSecond;
using detshare::policy::Limits;
using detshare::policy::Options;
using detshare::policy::Policy;
using detshare::policy::SmRange;
using detshare::policy::Snapshot;
using detshare::policy::Tenant;

class Wild final : public Policy {
 public:
  std::vector<SmRange> Partitions(const DeviceShape&, absl::Span<const Tenant>) const override {
    return {};
  }

  // A grant for the first coroutine only.
  Decision Decide(const Snapshot& snapshot) override {
    const int too_large = static_cast<int>(snapshot.partitions.size());
    Limits limits;
    limits.partition = too_large;
    limits.long_partition = -1;
    limits.yielding_partition = too_large;
    limits.window = -1;
    limits.max_throttle = 0;
    Decision decision;
    Grant& grant = decision.grants.emplace_back();
    grant.rank = detshare::policy::kRanks;
    grant.idle = grant.contended = limits;
    limits.max_throttle = 11 * kSecond;
    grant.tail = limits;
    grant.contention_phase = 0.0 / 0.0;
    grant.budget = 0;
    grant.prepare = {too_large, too_large - 1};
    decision.ask_again_at = snapshot.now;
    return decision;
  }
};

absl::StatusOr<std::unique_ptr<Policy>> Create(const Options&) { return std::make_unique<Wild>(); }

}  // namespace

DETSHARE_POLICY(Create)
