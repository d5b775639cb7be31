#include "policy/whole/whole.h"

namespace detshare::policy {
namespace {

class Whole final : public Policy {
 public:
  std::vector<SmRange> Partitions(const DeviceShape&) const override { return {}; }

  Decision Decide(const Snapshot& snapshot) override {
    Decision decision;
    for (const SessionView& session : snapshot.sessions) decision.bindings[session.session] = {};
    return decision;
  }
};

}  // namespace

absl::StatusOr<std::unique_ptr<Policy>> CreateWhole(const Options&) {
  return std::make_unique<Whole>();
}

}  // namespace detshare::policy
