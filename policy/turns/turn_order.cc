#include "policy/turns/turn_order.h"

#include <algorithm>
#include <set>

#include "policy/saturating.h"

namespace detshare::policy {
namespace {

// A turn is between these parts and multiples of a slice, whatever the weights: shorter turns cost
// too much, and longer ones let the others wait too long. The accounts make up for the difference.
constexpr double kShortest = 0.25, kLongest = 4;
// The rest of a turn is not granted if it is shorter than this part of the turn: one sixteenth.
constexpr Nanoseconds kRest = 16;

int Find(absl::Span<const TurnUnit> units,
         const std::optional<std::pair<std::string, CoroutineId>>& key) {
  if (!key.has_value()) return -1;
  for (size_t i = 0; i < units.size(); ++i) {
    if (units[i].number == key->second && units[i].tenant == key->first) return static_cast<int>(i);
  }
  return -1;
}

double WeightOf(const TurnUnit& unit) {
  return unit.weight > 0 && unit.weight < 1e12 ? unit.weight : 1;
}

}  // namespace

void TurnOrder::Charge(const TurnUnit& unit, Nanoseconds time) {
  if (time <= 0) return;
  tenants_.Add(unit.tenant, static_cast<double>(time) / WeightOf(unit));
  units_[unit.tenant].Add(unit.number, static_cast<double>(time));
}

void TurnOrder::Charge(Nanoseconds now, absl::Span<const TurnUnit> units) {
  Nanoseconds from = std::exchange(charged_until_, now);
  const int holder = Find(units, holder_);
  if (leaving_.has_value()) {
    const int leaving = Find(units, leaving_);
    Nanoseconds end = from;  // its coroutines ended, and with them their work
    if (leaving >= 0) {
      const TurnUnit& unit = units[leaving];
      end = unit.in_flight > 0 ? now : std::clamp(unit.idle_since, from, std::max(from, now));
      Charge(unit, Minus(end, from));
    }
    if (leaving < 0 || units[leaving].in_flight <= 0) leaving_.reset();
    from = end;
  }
  if (holder < 0 || leaving_.has_value()) return;
  const Nanoseconds time = Minus(now, from);
  Charge(units[holder], time);
  used_ = Plus(used_, std::max<Nanoseconds>(0, time));
}

int TurnOrder::Least(absl::Span<const TurnUnit> units) const {
  std::map<std::string, double> in_flight;
  for (const TurnUnit& unit : units) {
    in_flight[unit.tenant] += static_cast<double>(std::max<Nanoseconds>(0, unit.in_flight));
  }
  int least = -1;
  std::tuple<double, double, bool> lowest;
  for (size_t i = 0; i < units.size(); ++i) {
    const TurnUnit& unit = units[i];
    if (!unit.has_work) continue;
    const auto own = units_.find(unit.tenant);
    const bool holds = holder_.has_value() && holder_ == Key(unit.tenant, unit.number);
    // If accounts are equal, the turn changes.
    const std::tuple<double, double, bool> account = {
        tenants_.Of(unit.tenant) + in_flight[unit.tenant] / WeightOf(unit),
        (own != units_.end() ? own->second.Of(unit.number) : 0) +
            static_cast<double>(std::max<Nanoseconds>(0, unit.in_flight)),
        holds};
    if (least >= 0 && lowest <= account) continue;
    least = static_cast<int>(i);
    lowest = account;
  }
  return least;
}

Nanoseconds TurnOrder::Length(absl::Span<const TurnUnit> units, const TurnUnit& holder) const {
  std::map<std::string, double> weights;  // of the tenants with work
  for (const TurnUnit& unit : units) {
    if (unit.has_work) weights[unit.tenant] = WeightOf(unit);
  }
  double sum = 0;
  for (const auto& [tenant, weight] : weights) sum += weight;
  const double share = WeightOf(holder) * static_cast<double>(weights.size()) / sum;
  return std::max<Nanoseconds>(kMicrosecond, Times(slice_, std::clamp(share, kShortest, kLongest)));
}

TurnOrder::Turn TurnOrder::Next(Nanoseconds now, absl::Span<const TurnUnit> units) {
  Charge(now, units);
  std::set<std::string> tenants;
  std::map<std::string, std::set<CoroutineId>> active;
  for (const TurnUnit& unit : units) {
    if (!unit.has_work) continue;
    tenants.insert(unit.tenant);
    active[unit.tenant].insert(unit.number);
  }
  tenants_.SetActive(tenants);
  for (const auto& [tenant, numbers] : active) units_[tenant].SetActive(numbers);
  // Coroutines end, so their accounts must not stay. A tenant's debt outlives its coroutines.
  for (auto entry = units_.begin(); entry != units_.end();) {
    std::set<CoroutineId> here;
    for (const TurnUnit& unit : units) {
      if (unit.tenant == entry->first) here.insert(unit.number);
    }
    entry->second.Keep([&](CoroutineId number) { return here.count(number) != 0; });
    entry = here.empty() ? units_.erase(entry) : std::next(entry);
  }

  const auto working =
      std::count_if(units.begin(), units.end(), [](const TurnUnit& unit) { return unit.has_work; });
  Turn turn;
  if (working == 0) {
    holder_.reset();
    leaving_.reset();
    return turn;
  }
  turn.contended = working > 1;
  int holder = Find(units, holder_);
  if (holder >= 0 && !units[holder].has_work) holder = -1;
  const auto left = [&] {
    return Minus(Minus(Length(units, units[holder]), used_),
                 std::max<Nanoseconds>(0, units[holder].in_flight));
  };
  if (holder < 0 || (turn.contended && left() <= Length(units, units[holder]) / kRest)) {
    const int next = Least(units);
    const Key key(units[next].tenant, units[next].number);
    if (next != holder) {
      // The unit of the last turn keeps the device until its work in flight is complete.
      const int before = Find(units, holder_);
      if (before >= 0 && units[before].in_flight > 0) leaving_ = holder_;
      if (leaving_ == key) leaving_.reset();
    }
    holder_ = key;
    holder = next;
    used_ = 0;
  }
  turn.unit = holder;
  if (!turn.contended) return turn;
  const Nanoseconds length = Length(units, units[holder]);
  turn.budget = std::max({left(), length / kRest, kMicrosecond});
  turn.ask_again_at =
      std::max(Plus(now, 1), Plus(now, std::max(Minus(length, used_), length / kRest)));
  return turn;
}

}  // namespace detshare::policy
