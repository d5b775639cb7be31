#include "policy/fair/fair.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "policy/partition_pool.h"
#include "policy/saturating.h"
#include "policy/status_macros.h"
#include "policy/tenants.h"

namespace detshare::policy {
namespace {

constexpr Parameter kParameters[] = {
    {.name = "lead",
     .kind = ParameterKind::kDuration,
     .default_value = "4ms",
     .min = "100us",
     .max = "1s",
     .help = "device time that the tenant of the largest weight may be ahead of another"},
    {.name = "longest_stop",
     .kind = ParameterKind::kDuration,
     .default_value = "40ms",
     .min = "100us",
     .max = "1s",
     .help = "longest stop of a tenant that is ahead"},
    {.name = "window",
     .kind = ParameterKind::kDuration,
     .default_value = "500us",
     .min = "10us",
     .max = "1s",
     .help = "device time in flight of each tenant while several have work"},
};

class Fair final : public Policy {
 public:
  Fair(Nanoseconds lead, Nanoseconds longest_stop, Nanoseconds window)
      : lead_(static_cast<double>(lead)), longest_stop_(longest_stop), window_(window) {}

  absl::Status Check(absl::Span<const Tenant> tenants) const override {
    return CheckTenants(tenants);
  }

  std::vector<SmRange> Partitions(const DeviceShape&, absl::Span<const Tenant>) const override {
    return {};
  }

  Decision Decide(const Snapshot& snapshot) override {
    const std::vector<Account*> active = Update(snapshot);
    Decision decision;
    decision.grants.resize(snapshot.coroutines.size());
    if (active.size() > 1) {
      Balance(snapshot.now, active, &decision);
      Place(snapshot, active);
    }
    for (size_t i = 0; i < snapshot.coroutines.size(); ++i) {
      const CoroutineView& coroutine = snapshot.coroutines[i];
      const Account& account = accounts_[coroutine.tenant->name];
      Grant& grant = decision.grants[i];
      const bool shares = active.size() > 1 && account.workers > 0;
      grant.idle.partition = shares ? account.partition
                                    : NearestWithin(snapshot.device, snapshot.partitions,
                                                    *coroutine.tenant, snapshot.device.sm_count);
      grant.idle.long_partition = grant.idle.partition;
      if (shares && account.stopped_until > snapshot.now) {
        grant.idle.window = 0;
        grant.idle.max_throttle = std::max(grant.idle.max_throttle, 2 * longest_stop_);
      } else if (shares) {
        // A small window keeps the device time that was given close to the device time that was
        // used, because work in flight cannot be taken back.
        grant.idle.window = window_;
        grant.budget = std::max<Nanoseconds>(account.budget / account.workers, kMicrosecond);
      }
      grant.contended = grant.idle;
    }
    return decision;
  }

 private:
  // The account of a tenant that has a coroutine on the device.
  struct Account {
    const Tenant* tenant = nullptr;
    double served = 0;              // nanoseconds of device time, divided by the weight
    bool active = false;            // had work at the last decision
    int workers = 0;                // coroutines with work
    bool here = false;              // has a coroutine in the snapshot
    Nanoseconds stopped_until = 0;  // 0: not stopped
    int partition = 0;
    Nanoseconds budget = kForever;
  };

  // Adds the device time that coroutines were given since the last decision to their tenants'
  // accounts. Returns the accounts of the tenants with work, in the order in which their first
  // coroutines were opened.
  std::vector<Account*> Update(const Snapshot& snapshot) {
    for (auto& [name, account] : accounts_) {
      account.here = false;
      account.workers = 0;
    }
    std::map<CoroutineId, Nanoseconds> seen;
    std::vector<Account*> order;
    for (const CoroutineView& coroutine : snapshot.coroutines) {
      Account& account = accounts_[coroutine.tenant->name];
      if (!account.here) order.push_back(&account);
      account.here = true;
      account.tenant = coroutine.tenant;
      account.workers += coroutine.has_work;
      const auto before = seen_.find(coroutine.id);
      const Nanoseconds given =
          before == seen_.end() ? 0 : Minus(coroutine.device_time, before->second);
      if (given > 0) account.served += static_cast<double>(given) / Weight(account);
      seen[coroutine.id] = coroutine.device_time;
    }
    seen_ = std::move(seen);
    std::erase_if(accounts_, [](const auto& entry) { return !entry.second.here; });
    std::erase_if(order, [](const Account* account) { return account->workers == 0; });

    // A tenant whose work begins starts level with the last of the tenants that already had work.
    const Account* last = nullptr;
    for (const Account* account : order) {
      if (account->active && (last == nullptr || account->served < last->served)) last = account;
    }
    for (Account* account : order) {
      if (!account->active && last != nullptr) {
        account->served = std::max(account->served, last->served);
      }
    }
    for (auto& [name, account] : accounts_) {
      account.active = account.workers > 0;
      if (!account.active) account.stopped_until = 0;
    }
    return order;
  }

  // Divides the device among the tenants that are not stopped.
  void Place(const Snapshot& snapshot, const std::vector<Account*>& active) {
    std::vector<Account*> running;
    for (Account* account : active) {
      if (account->stopped_until <= snapshot.now) running.push_back(account);
    }
    double weights = 0;
    for (const Account* account : running) weights += Weight(*account);
    Shares shares;
    for (const Account* account : running) {
      shares.push_back(
          {Weight(*account) / weights, {account->tenant->min_sms, account->tenant->max_sms}});
    }
    const Division& division = Divided(snapshot, shares);
    for (size_t i = 0; i < running.size(); ++i) {
      running[i]->partition = division
                                  ? (*division)[i]
                                  : NearestWithin(snapshot.device, snapshot.partitions,
                                                  *running[i]->tenant, snapshot.device.sm_count);
    }
  }

  // Keeps divisions, because the same one is needed as long as the same tenants have work.
  using Shares = std::vector<std::pair<double, std::pair<int, int>>>;
  using Division = std::optional<std::vector<int>>;
  const Division& Divided(const Snapshot& snapshot, const Shares& shares) {
    const bool same = std::equal(snapshot.partitions.begin(), snapshot.partitions.end(),
                                 ranges_.begin(), ranges_.end());
    if (!same || divisions_.size() > 64) divisions_.clear();
    ranges_.assign(snapshot.partitions.begin(), snapshot.partitions.end());
    const auto [entry, added] = divisions_.try_emplace(shares);
    if (added) {
      std::vector<Part> parts;
      for (const auto& [share, bounds] : shares) {
        parts.push_back({share, bounds.first, bounds.second});
      }
      entry->second = Divide(snapshot.device, snapshot.partitions, parts);
      // A tenant that runs alone may still be bound to fewer SMs than the whole device.
      if (parts.size() == 1) entry->second.reset();
    }
    return entry->second;
  }

  void Balance(Nanoseconds now, const std::vector<Account*>& active, Decision* decision) {
    double largest = 0;
    for (const Account* account : active) largest = std::max(largest, Weight(*account));
    const double allowed = lead_ / largest;
    // If tenants are still behind at the end of a stop, they could not use the time. Their accounts
    // move up.
    for (Account* account : active) {
      if (account->stopped_until == 0 || account->stopped_until > now) continue;
      account->stopped_until = 0;
      for (Account* other : active) {
        other->served = std::max(other->served, account->served - allowed / 2);
      }
    }
    const Account* behind =
        *std::min_element(active.begin(), active.end(),
                          [](const Account* a, const Account* b) { return a->served < b->served; });
    for (Account* account : active) {
      const double lead = account->served - behind->served;
      if (account->stopped_until > now && lead < allowed / 2) account->stopped_until = 0;
      if (account->stopped_until == 0 && lead >= allowed) {
        // The stop lasts as long as the others need to come level if they have the device.
        double needed = 0;
        for (const Account* other : active) {
          needed += std::max(0.0, account->served - other->served) * Weight(*other);
        }
        account->stopped_until =
            Plus(now, std::clamp(Times(1, std::min(needed, 9e18)), kMicrosecond, longest_stop_));
      }
      if (account->stopped_until > now) {
        decision->ask_again_at = std::min(decision->ask_again_at, account->stopped_until);
      } else {
        // This much device time brings the tenant as far ahead as it may be.
        account->budget = Times(1, std::min((allowed - lead) * Weight(*account), 9e18));
      }
    }
  }

  static double Weight(const Account& account) {
    const double weight = account.tenant->weight;
    return weight > 0 && weight <= kMaxWeight ? weight : 1;
  }

  const double lead_;
  const Nanoseconds longest_stop_, window_;
  std::map<std::string, Account> accounts_;  // by tenant
  std::map<CoroutineId, Nanoseconds> seen_;  // device time at the last decision
  std::map<Shares, Division> divisions_;     // divisions of ranges_ that were computed already
  std::vector<SmRange> ranges_;              // the snapshot's partitions at the last decision
};

}  // namespace

absl::Span<const Parameter> FairParameters() { return kParameters; }

absl::StatusOr<std::unique_ptr<Policy>> CreateFair(const Options& options) {
  DETSHARE_ASSIGN_OR_RETURN(ParameterValues values,
                            ParameterValues::Read("fair", kParameters, options));
  return std::make_unique<Fair>(values.Duration("lead"), values.Duration("longest_stop"),
                                values.Duration("window"));
}

}  // namespace detshare::policy
