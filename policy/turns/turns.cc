#include "policy/turns/turns.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "policy/partition_pool.h"
#include "policy/saturating.h"
#include "policy/tenants.h"
#include "policy/turns/turn_order.h"

namespace detshare::policy {
namespace {

// The work in flight within a turn: enough that the device does not run dry while the worker looks
// elsewhere, and a small part of the turn, because estimates of durations may be wrong.
Nanoseconds WindowOf(Nanoseconds slice) {
  return std::clamp<Nanoseconds>(slice / 4, 25 * kMicrosecond, 2 * kMillisecond);
}
// Outside its turn, a coroutine waits for its turn. But its kernel in the hardware may wait for an
// operation that comes behind the turn, and no other turn begins before that kernel ends. So an
// operation passes when the work in the hardware takes this many times its estimate, and at least
// kShortestWait.
constexpr Nanoseconds kLate = 4;
constexpr Nanoseconds kShortestWait = 100 * kMillisecond, kLongestWait = 10 * kSecond;

class Turns final : public Policy {
 public:
  Turns(std::unique_ptr<Policy> policy, Nanoseconds slice, bool all)
      : policy_(std::move(policy)),
        slice_(slice),
        window_(WindowOf(slice)),
        all_(all),
        order_{TurnOrder(slice), TurnOrder(slice)} {}

  absl::Status Check(absl::Span<const Tenant> tenants) const override {
    if (TakesTurns(tenants)) {
      if (absl::Status status = CheckTenants(tenants); !status.ok()) return status;
    }
    return policy_->Check(tenants);
  }
  bool Watches() const override { return policy_->Watches(); }
  bool TakesTurns(absl::Span<const Tenant> tenants) const override {
    return all_ || std::any_of(tenants.begin(), tenants.end(),
                               [](const Tenant& tenant) { return tenant.exclusive; });
  }
  Nanoseconds EngineTurn() const override { return all_ ? slice_ : policy_->EngineTurn(); }
  std::vector<SmRange> Partitions(const DeviceShape& device,
                                  absl::Span<const Tenant> tenants) const override {
    return policy_->Partitions(device, tenants);
  }

  Decision Decide(const Snapshot& snapshot) override {
    const absl::Span<const CoroutineView> coroutines = snapshot.coroutines;
    if (std::none_of(coroutines.begin(), coroutines.end(),
                     [this](const CoroutineView& view) { return Exclusive(view); })) {
      urgent_.clear();
      for (TurnOrder& order : order_) order.Next(snapshot.now, {});
      return policy_->Decide(snapshot);
    }
    std::vector<Place> places(coroutines.size());
    for (size_t i = 0; i < coroutines.size(); ++i) places[i].urgent = Urgent(coroutines[i]);
    Decision decision;
    for (const bool urgent : {false, true}) {
      decision.ask_again_at = std::min(decision.ask_again_at, TakeTurns(snapshot, urgent, &places));
    }
    // The policy decides as if coroutines whose turn it is not had no work.
    std::vector<CoroutineView> views(coroutines.begin(), coroutines.end());
    for (size_t i = 0; i < views.size(); ++i) {
      if (places[i].open) continue;
      views[i].has_work = false;
      views[i].in_flight = views[i].throttled_since = 0;
    }
    Snapshot seen = snapshot;
    seen.coroutines = views;
    Decision inner = policy_->Decide(seen);
    inner.grants.resize(coroutines.size());
    decision.grants = std::move(inner.grants);
    decision.ask_again_at = std::min(decision.ask_again_at, inner.ask_again_at);
    urgent_.clear();
    for (size_t i = 0; i < coroutines.size(); ++i) {
      if (decision.grants[i].urgent) urgent_.insert(coroutines[i].id);
      // The coroutine takes turns with other work from now on.
      if (Urgent(coroutines[i]) != places[i].urgent)
        decision.ask_again_at = std::min(decision.ask_again_at, Plus(snapshot.now, 1));
      Apply(snapshot, coroutines[i], places[i], &decision.grants[i]);
    }
    return decision;
  }

 private:
  // The decision of the turns about a coroutine.
  struct Place {
    bool urgent = false;     // it takes turns with urgent work
    bool open = true;        // it may run
    bool contended = false;  // several units take turns
    CoroutineId group = 0;
    Nanoseconds budget = kForever;
  };

  bool Exclusive(const CoroutineView& view) const { return all_ || view.tenant->exclusive; }
  // Whether its work preempts, by the latest decision about it.
  bool Urgent(const CoroutineView& view) const {
    return StopsOthers(view, urgent_.count(view.id) != 0);
  }

  // Gives turns to the urgent coroutines, or to the others. Returns when to be asked again.
  Nanoseconds TakeTurns(const Snapshot& snapshot, bool urgent, std::vector<Place>* places) {
    const absl::Span<const CoroutineView> coroutines = snapshot.coroutines;
    std::vector<TurnUnit> units;
    std::map<std::pair<std::string, CoroutineId>, int> indices;
    std::vector<int> unit_of(coroutines.size(), -1);
    std::vector<CoroutineId> groups;
    std::set<std::string> sharing;  // tenants of the shared unit that have work
    for (size_t i = 0; i < coroutines.size(); ++i) {
      const CoroutineView& view = coroutines[i];
      if ((*places)[i].urgent != urgent) continue;
      const bool exclusive = Exclusive(view);
      const std::pair<std::string, CoroutineId> key = {exclusive ? view.tenant->name : "",
                                                       all_ ? view.id : 0};
      const auto [entry, added] = indices.try_emplace(key, static_cast<int>(units.size()));
      unit_of[i] = entry->second;
      if (added) {
        units.push_back({key.first, key.second, exclusive ? view.tenant->weight : 0});
        groups.push_back(exclusive ? view.id : 0);  // the oldest of its coroutines
      }
      TurnUnit& unit = units[entry->second];
      unit.has_work |= view.has_work;
      unit.in_flight = Plus(unit.in_flight, std::max<Nanoseconds>(0, view.in_flight));
      unit.idle_since = std::max(unit.idle_since, view.in_flight_since);
      if (!exclusive && view.has_work && sharing.insert(view.tenant->name).second)
        unit.weight += view.tenant->weight;
    }
    for (size_t i = 0; i < coroutines.size(); ++i) {
      if (unit_of[i] >= 0) (*places)[i].group = groups[unit_of[i]];
    }
    // Charged even if there is one unit, so that the order knows the time that passed.
    const TurnOrder::Turn turn = order_[urgent].Next(snapshot.now, units);
    if (units.size() < 2) return kForever;
    for (size_t i = 0; i < coroutines.size(); ++i) {
      if (unit_of[i] < 0) continue;
      Place& place = (*places)[i];
      place.contended = true;
      place.open = turn.unit < 0 || unit_of[i] == turn.unit;
      if (place.open) place.budget = turn.budget;
    }
    return turn.ask_again_at;
  }

  void Apply(const Snapshot& snapshot, const CoroutineView& view, const Place& place,
             Grant* grant) const {
    grant->turn_group = place.group;
    if (view.tenant->exclusive && view.tenant->sm_percent == 0) {
      // It always has the same SMs, because the bits of order-dependent programs depend on them.
      grant->idle.partition = NearestWithin(snapshot.device, snapshot.partitions, *view.tenant,
                                            snapshot.device.sm_count);
    }
    if (!place.contended) return;
    if (!place.open) {
      // The rank keeps its waiting work from restricting the others.
      grant->rank = kRanks - 1;
      grant->idle.window = 0;
      grant->idle.max_throttle =
          view.in_flight > 0 ? std::clamp(Times(view.in_flight, kLate), kShortestWait, kLongestWait)
                             : kLongestWait;
      grant->contended = grant->idle;
      grant->tail.reset();
      return;
    }
    if (Exclusive(view)) {
      // Nothing runs beside it, so it makes no room for others.
      grant->idle.long_partition = grant->idle.yielding_partition = grant->idle.partition;
      grant->idle.long_operation = kForever;
      grant->idle.window = kForever;
      grant->contended = grant->idle;
      grant->tail.reset();
      grant->budget = kForever;
    }
    for (Limits* limits : {&grant->idle, &grant->contended}) {
      limits->window = std::min(limits->window, window_);
    }
    if (grant->tail.has_value()) grant->tail->window = std::min(grant->tail->window, window_);
    grant->budget = std::min(grant->budget, place.budget);
  }

  const std::unique_ptr<Policy> policy_;
  const Nanoseconds slice_, window_;
  const bool all_;
  std::array<TurnOrder, 2> order_;  // of ordinary work, and of urgent work that preempts
  std::set<CoroutineId> urgent_;    // coroutines that the latest decision made urgent
};

}  // namespace

std::unique_ptr<Policy> WithExclusiveTurns(std::unique_ptr<Policy> policy, Nanoseconds slice) {
  return std::make_unique<Turns>(std::move(policy), slice, /*all=*/false);
}

std::unique_ptr<Policy> WithTurnsForAll(std::unique_ptr<Policy> policy, Nanoseconds slice) {
  return std::make_unique<Turns>(std::move(policy), slice, /*all=*/true);
}

}  // namespace detshare::policy
