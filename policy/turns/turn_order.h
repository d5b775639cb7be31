// Chooses whose turn it is on a device that only one unit may use at a time, and for how long.
//
// A unit is a set of coroutines that run beside each other. Each tenant has an account of the time
// for which its units had the device, divided by the tenant's weight. The next turn goes to the
// tenant with the lowest account, and within the tenant to the unit with the lowest account. So the
// shares follow the weights, and a tenant whose kernel outlasts its turn pays that back: its next
// turn comes when the others have caught up.
//
// A tenant without work gets no turn and saves nothing up: when its work begins, its account is
// raised to the lowest account of the tenants with work. A debt stays.
//
// Time counts, not the estimated duration of operations. A turn lasts until the last operation of
// its unit is complete, also when the next turn was granted before.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include "absl/types/span.h"
#include "policy/policy.h"

namespace detshare::policy {

// The accounts of units, or of tenants.
template <typename Key>
class ServedTime {
 public:
  // Names the keys that have work from now on.
  template <typename Keys>
  void SetActive(const Keys& active) {
    std::optional<double> lowest;
    for (const Key& key : active) {
      const auto known = accounts_.find(key);
      if (known == accounts_.end() || !known->second.active) continue;
      if (!lowest.has_value() || known->second.served < *lowest) lowest = known->second.served;
    }
    if (lowest.has_value() && *lowest > floor_) floor_ = *lowest;
    for (auto& [key, account] : accounts_) {
      if (active.count(key) == 0) account.active = false;
    }
    for (const Key& key : active) {
      Account& account = accounts_[key];
      if (!account.active && account.served < floor_) account.served = floor_;
      account.active = true;
    }
    std::erase_if(accounts_, [this](const auto& entry) {
      return !entry.second.active && entry.second.served <= floor_;
    });
  }
  void Add(const Key& key, double served) { accounts_[key].served += served; }
  double Of(const Key& key) const {
    const auto known = accounts_.find(key);
    return known != accounts_.end() ? known->second.served : floor_;
  }
  // Drops the accounts of keys for which `here` returns false.
  template <typename Here>
  void Keep(const Here& here) {
    std::erase_if(accounts_, [&](const auto& entry) { return !here(entry.first); });
  }

 private:
  struct Account {
    double served = 0;
    bool active = false;
  };
  std::map<Key, Account> accounts_;
  double floor_ = 0;  // the lowest account of those with work; never falls
};

// Units are told apart by the tenant's name and a number.
struct TurnUnit {
  std::string tenant;
  CoroutineId number = 0;
  double weight = 1;  // the tenant's; the same for all of its units
  bool has_work = false;
  Nanoseconds in_flight = 0;   // device time
  Nanoseconds idle_since = 0;  // if in_flight is 0: since when
};

class TurnOrder {
 public:
  // `slice`: the length of a turn when all weights are equal.
  explicit TurnOrder(Nanoseconds slice) : slice_(slice) {}

  struct Turn {
    // The index of the unit whose turn it is; -1: no unit has work, so the first one that gets work
    // may begin.
    int unit = -1;
    bool contended = false;         // other units have work, too
    Nanoseconds budget = kForever;  // the device time that the unit may still give; above 0
    Nanoseconds ask_again_at = kForever;
  };
  // `now` never goes back.
  Turn Next(Nanoseconds now, absl::Span<const TurnUnit> units);

 private:
  using Key = std::pair<std::string, CoroutineId>;

  // Charges the time since the last call to the units that had the device.
  void Charge(Nanoseconds now, absl::Span<const TurnUnit> units);
  void Charge(const TurnUnit& unit, Nanoseconds time);
  // The unit with work whose account is the lowest; the account counts what is still in flight.
  int Least(absl::Span<const TurnUnit> units) const;
  Nanoseconds Length(absl::Span<const TurnUnit> units, const TurnUnit& holder) const;

  const Nanoseconds slice_;
  ServedTime<std::string> tenants_;                       // nanoseconds divided by the weight
  std::map<std::string, ServedTime<CoroutineId>> units_;  // nanoseconds, by tenant
  std::optional<Key> holder_;                             // the unit of the latest turn
  std::optional<Key> leaving_;  // the unit of an earlier turn that has work in flight
  Nanoseconds used_ = 0;        // time that was charged to holder_ in its turn
  Nanoseconds charged_until_ = 0;
};

}  // namespace detshare::policy
