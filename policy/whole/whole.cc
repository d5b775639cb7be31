#include "policy/whole/whole.h"

namespace detshare::policy {
namespace {

class Whole final : public Policy {
 public:
  bool Watches() const override { return false; }
  std::vector<SmRange> Partitions(const DeviceShape&, absl::Span<const Tenant>) const override {
    return {};
  }

  Decision Decide(const Snapshot& snapshot) override {
    Decision decision;
    decision.grants.resize(snapshot.coroutines.size());
    return decision;
  }
};

}  // namespace

absl::StatusOr<std::unique_ptr<Policy>> CreateWhole(const Options&) {
  return std::make_unique<Whole>();
}

}  // namespace detshare::policy
