#include "policy/static_shares/static_shares.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>

#include "absl/status/status.h"

namespace detshare::policy {
namespace {

class StaticShares final : public Policy {
 public:
  bool Watches() const override { return false; }
  absl::Status Check(absl::Span<const Tenant> tenants) const override {
    int total = 0;
    std::set<std::string> names;
    for (const Tenant& tenant : tenants) {
      if (tenant.sm_percent < 0 || tenant.sm_percent > 100) {
        return absl::InvalidArgumentError("tenant " + tenant.name +
                                          ": a share is 0 to 100 percent");
      }
      total += tenant.sm_percent;
      if (!names.insert(tenant.name).second) {
        return absl::InvalidArgumentError("tenant " + tenant.name + " is configured twice");
      }
    }
    if (total > 100) {
      return absl::InvalidArgumentError("the tenants' shares are more than 100 percent together");
    }
    return absl::OkStatus();
  }

  std::vector<SmRange> Partitions(const DeviceShape& device,
                                  absl::Span<const Tenant> tenants) const override {
    const Shares shares = Divide(device, tenants);
    std::vector<SmRange> partitions;
    for (const auto& [tenant, range] : shares.declared) {
      if (!range.whole()) partitions.push_back(range);
    }
    if (!shares.others.whole()) partitions.push_back(shares.others);
    std::sort(partitions.begin(), partitions.end(),
              [](const SmRange& a, const SmRange& b) { return a.first < b.first; });
    return partitions;
  }

  Decision Decide(const Snapshot& snapshot) override {
    const Shares shares = Divide(snapshot.device, snapshot.tenants);
    Decision decision;
    for (const CoroutineView& coroutine : snapshot.coroutines) {
      const auto declared = shares.declared.find(coroutine.tenant->name);
      const SmRange range = declared == shares.declared.end() ? shares.others : declared->second;
      Grant& grant = decision.grants.emplace_back();
      grant.idle.partition = grant.idle.long_partition = IndexOf(snapshot.partitions, range);
      grant.contended = grant.idle;
    }
    return decision;
  }

 private:
  struct Shares {
    std::map<std::string, SmRange> declared;
    SmRange others;
  };

  static Shares Divide(const DeviceShape& device, absl::Span<const Tenant> tenants) {
    Shares shares;
    const int groups = device.groups();
    int begin = 0;
    for (const Tenant& tenant : tenants) {
      if (tenant.sm_percent == 0) continue;
      const int wanted = std::max(1, groups * tenant.sm_percent / 100);
      const int end = std::min(begin + wanted, groups);
      // A device may have fewer groups than tenants. The tenants that get none use all of it.
      shares.declared[tenant.name] = begin < end ? device.Groups(begin, end) : SmRange{};
      begin = end;
    }
    if (begin > 0 && begin < groups) shares.others = device.Groups(begin, groups);
    return shares;
  }
};

}  // namespace

absl::StatusOr<std::unique_ptr<Policy>> CreateStaticShares(const Options&) {
  return std::make_unique<StaticShares>();
}

}  // namespace detshare::policy
