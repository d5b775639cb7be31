// A policy that lets no work pass, for as long as a policy may.
#include <memory>
#include <vector>

#include "policy/shared_object.h"

namespace {

using detshare::policy::Decision;
using detshare::policy::DeviceShape;
using detshare::policy::kSecond;
using detshare::policy::Limits;
using detshare::policy::Options;
using detshare::policy::Policy;
using detshare::policy::SmRange;
using detshare::policy::Snapshot;
using detshare::policy::Tenant;

class Stopping final : public Policy {
 public:
  std::vector<SmRange> Partitions(const DeviceShape&, absl::Span<const Tenant>) const override {
    return {};
  }

  Decision Decide(const Snapshot& snapshot) override {
    Limits limits;
    limits.window = 0;
    limits.max_throttle = 10 * kSecond;
    Decision decision;
    decision.grants.resize(snapshot.coroutines.size());
    for (auto& grant : decision.grants) grant.idle = grant.contended = limits;
    return decision;
  }
};

absl::StatusOr<std::unique_ptr<Policy>> Create(const Options&) {
  return std::make_unique<Stopping>();
}

}  // namespace

DETSHARE_POLICY(Create)
