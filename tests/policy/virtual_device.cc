#include "tests/policy/virtual_device.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <stdexcept>
#include <utility>

#include "policy/partition_pool.h"

namespace detshare::policy {
namespace {

std::vector<SmRange> WithPool(const DeviceShape& device) {
  std::vector<SmRange> partitions = {SmRange{}};
  for (const SmRange& range : StandardPartitions(device)) partitions.push_back(range);
  return partitions;
}

// A small generator whose sequence is the same everywhere.
uint64_t Next(uint64_t* state) {
  uint64_t z = (*state += 0x9E3779B97F4A7C15ull);
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
  return z ^ (z >> 31);
}

}  // namespace

VirtualDevice::VirtualDevice(const DeviceShape& device, std::vector<SmRange> partitions,
                             std::unique_ptr<Policy> policy)
    : device_(device),
      partitions_(std::move(partitions)),
      policy_(std::move(policy)),
      switches_(device.preemption) {
  for (std::vector<int>& owners : owners_) owners.assign(device.groups(), -1);
}

VirtualDevice::VirtualDevice(const DeviceShape& device, std::unique_ptr<Policy> policy)
    : VirtualDevice(device, WithPool(device), std::move(policy)) {}

size_t VirtualDevice::Open(Tenant tenant, Program program) {
  State state;
  state.tenant = std::move(tenant);
  state.program = std::move(program);
  state.view.id = coroutines_.size() + 1;
  state.view.preempts = device_.preemption > 0;
  state.burst = state.program(0);
  coroutines_.push_back(std::move(state));
  return coroutines_.size() - 1;
}

void VirtualDevice::Run(Nanoseconds until) {
  for (const State& state : coroutines_) tenants_.push_back(state.tenant);
  Arrive();
  Decide();
  while (true) {
    for (int asked = 0; Give(); ++asked) {
      if (asked == 1000) throw std::logic_error("the policy grants no budget over and over");
      Decide();
    }
    Occupy();
    TakeTurns();
    const Nanoseconds next = NextEvent();
    if (next >= until) {
      now_ = until;
      return;
    }
    // Rounded up, so that no operation ends before its time.
    const double passed = static_cast<double>(next - std::clamp(TurnBegin(), now_, next));
    for (const size_t index : started_) {
      Operation& operation = coroutines_[index].hardware.front();
      if (HasTurn(operation)) operation.left -= passed * operation.groups / device_.groups();
    }
    now_ = next;
    const bool ended = Complete();
    const bool began = [&] {
      const auto working = [](const State& state) { return state.view.has_work; };
      const auto before = std::count_if(coroutines_.begin(), coroutines_.end(), working);
      Arrive();
      return std::count_if(coroutines_.begin(), coroutines_.end(), working) != before;
    }();
    if (ended || began || now_ >= ask_again_at_) Decide();
  }
}

void VirtualDevice::Arrive() {
  for (State& state : coroutines_) {
    if (state.view.has_work || state.burst.operations.empty() || state.burst.at > now_) continue;
    state.disturbed = std::any_of(coroutines_.begin(), coroutines_.end(), [&](const State& other) {
      return &other != &state && other.view.in_flight >= other.grant.idle.long_operation;
    });
    state.view.has_work = true;
    state.view.changed_at = now_;
    state.given = 0;
    state.gap_total += now_ - state.idle_since;
    state.view.typical_gap = state.gap_total / ++state.gaps;
  }
}

// A coroutine that is alone has no limits.
void VirtualDevice::Decide() {
  std::vector<CoroutineView> views;
  for (const State& state : coroutines_) {
    views.push_back(state.view);
    views.back().tenant = &state.tenant;
    views.back().throttled_since = std::max<Nanoseconds>(0, state.throttled_since);
  }
  Snapshot snapshot;
  snapshot.now = now_;
  snapshot.device = device_;
  snapshot.partitions = partitions_;
  snapshot.tenants = tenants_;
  snapshot.coroutines = views;
  const Decision decision = policy_->Decide(snapshot);
  ++decisions_;
  if (decision.grants.size() != coroutines_.size()) throw std::logic_error("a grant is missing");
  for (size_t i = 0; i < coroutines_.size(); ++i) {
    const Grant& grant = decision.grants[i];
    for (const Limits& limits : {grant.idle, grant.contended, TailLimits(grant)}) {
      for (const int partition : {limits.partition, limits.long_partition}) {
        if (partition < 0 || partition >= static_cast<int>(partitions_.size())) {
          throw std::logic_error("a grant names no partition");
        }
      }
    }
    if (grant.rank < 0 || grant.rank >= kRanks) throw std::logic_error("there is no such rank");
    State& state = coroutines_[i];
    state.grant = grant;
    // No other coroutine can restrict it.
    if (coroutines_.size() == 1) state.grant.budget = state.grant.idle.window = kForever;
    state.budget = state.grant.budget;
  }
  ask_again_at_ = decision.ask_again_at;
  if (ask_again_at_ <= now_) throw std::logic_error("the policy wants to be asked in the past");
}

const Limits& VirtualDevice::LimitsOf(const State& state) const {
  bool beside = false;
  for (const State& other : coroutines_) {
    if (!other.view.has_work || other.grant.rank >= state.grant.rank) continue;
    if (now_ < ContentionEnd(other)) return state.grant.contended;
    beside = true;
  }
  return beside ? TailLimits(state.grant) : state.grant.idle;
}

Nanoseconds VirtualDevice::ContentionEnd(const State& state) {
  const auto given = state.burst.operations.begin() + static_cast<ptrdiff_t>(state.given);
  return ContentionPhaseEnd(
      state.grant.contention_phase, state.view.changed_at, state.view.typical_burst,
      std::accumulate(state.burst.operations.begin(), given, Nanoseconds{0}), state.disturbed);
}

bool VirtualDevice::Give() {
  for (State& state : coroutines_) {
    if (!state.view.has_work) continue;
    while (state.given < state.burst.operations.size()) {
      const Limits& limits = LimitsOf(state);
      const bool free = state.view.in_flight < limits.window && state.budget > 0;
      const bool released =
          state.throttled_since >= 0 && now_ - state.throttled_since >= limits.max_throttle;
      if ((!free && !released) || !Enter(state)) {
        if (state.throttled_since < 0) state.throttled_since = now_;
        break;
      }
      if (state.throttled_since >= 0) {
        state.result.longest_throttle =
            std::max(state.result.longest_throttle, now_ - state.throttled_since);
        state.throttled_since = -1;
      }
      Operation operation;
      operation.work = state.burst.operations[state.given++];
      operation.left = static_cast<double>(operation.work);
      operation.range = partitions_[operation.work >= limits.long_operation ? limits.long_partition
                                                                            : limits.partition];
      operation.urgent = StopsOthers(state.view, state.grant.urgent);
      if (operation.urgent) operation.range = SmRange{};
      operation.number = given_++;
      state.result.begun.push_back({operation.work, operation.range});
      if (state.view.in_flight == 0) state.view.in_flight_since = now_;
      state.view.in_flight += operation.work;
      state.view.device_time += operation.work;
      state.total += operation.work;
      state.view.typical_operation = state.total / ++state.operations;
      state.view.longest_operation = std::max(state.view.longest_operation, operation.work);
      state.hardware.push_back(operation);
      if (state.budget != kForever) {
        state.budget = std::max<Nanoseconds>(0, state.budget - operation.work);
        if (state.budget == 0) return true;
      }
    }
  }
  return false;
}

bool VirtualDevice::Complete() {
  bool changed = false;
  for (size_t i = 0; i < started_.size();) {
    State& state = coroutines_[started_[i]];
    if (state.hardware.front().left > 0.5) {
      ++i;
      continue;
    }
    for (int& owner : owners_[state.hardware.front().urgent]) {
      if (owner == static_cast<int>(started_[i])) owner = -1;
    }
    const Nanoseconds work = state.hardware.front().work;
    state.view.in_flight -= work;
    if (state.view.in_flight == 0) {
      state.view.in_flight_since = now_;
      Leave(state);
    }
    state.result.device_time += work;
    state.hardware.pop_front();
    started_.erase(started_.begin() + i);
    if (!state.hardware.empty() || state.given < state.burst.operations.size()) continue;
    Nanoseconds burst = 0;
    for (const Nanoseconds operation : state.burst.operations) burst += operation;
    state.view.typical_burst =
        (state.view.typical_burst * state.bursts + burst) / (state.bursts + 1);
    ++state.bursts;
    state.result.latencies.push_back(now_ - state.burst.at);
    state.view.has_work = false;
    state.view.changed_at = now_;
    state.throttled_since = -1;
    state.idle_since = now_;
    state.burst = state.program(now_);
    changed = true;
  }
  return changed;
}

bool VirtualDevice::Enter(State& state) {
  const size_t kind = StopsOthers(state.view, state.grant.urgent);
  Room& room = rooms_[kind];
  const CoroutineId group = state.grant.turn_group;
  if (state.entered[kind]) return state.entered_as[kind] == group;
  if (room.coroutines > 0 && room.group != group) return false;
  room.group = group;
  ++room.coroutines;
  state.entered[kind] = true;
  state.entered_as[kind] = group;
  return true;
}

void VirtualDevice::Leave(State& state) {
  for (const size_t kind : {0, 1})
    rooms_[kind].coroutines -= std::exchange(state.entered[kind], false);
}

void VirtualDevice::CheckExclusive() {
  for (const bool urgent : {false, true}) {
    int running = 0;
    const Tenant* other = nullptr;
    for (const size_t index : started_) {
      const State& state = coroutines_[index];
      if (state.hardware.front().urgent != urgent) continue;
      ++running;
      if (other != nullptr && other->name != state.tenant.name &&
          (other->exclusive || state.tenant.exclusive)) {
        throw std::logic_error("an exclusive tenant does not run alone");
      }
      // An exclusive tenant, if there is one, is compared with all others.
      if (other == nullptr || state.tenant.exclusive) other = &state.tenant;
    }
    max_running_ = std::max(max_running_, running);
  }
}

void VirtualDevice::Occupy() {
  for (size_t i = 0; i < coroutines_.size(); ++i) {
    std::deque<Operation>& hardware = coroutines_[i].hardware;
    if (hardware.empty() || hardware.front().running) continue;
    hardware.front().running = true;
    started_.push_back(i);
  }
  CheckExclusive();
  std::sort(started_.begin(), started_.end(), [&](size_t a, size_t b) {
    return coroutines_[a].hardware.front().number < coroutines_[b].hardware.front().number;
  });
  for (const size_t index : started_) {
    Operation& operation = coroutines_[index].hardware.front();
    operation.groups = 0;
    std::vector<int>& owners = owners_[operation.urgent];
    for (int group = 0; group < device_.groups(); ++group) {
      const SmRange sms = device_.Groups(group, group + 1);
      const bool inside = operation.range.whole() ||
                          (sms.first >= operation.range.first &&
                           sms.first + sms.count <= operation.range.first + operation.range.count);
      if (inside && owners[group] < 0) owners[group] = static_cast<int>(index);
      operation.groups += owners[group] == static_cast<int>(index);
    }
  }
}

void VirtualDevice::TakeTurns() {
  bool urgent = false, ordinary = false;
  for (const size_t index : started_) {
    (coroutines_[index].hardware.front().urgent ? urgent : ordinary) = true;
  }
  switches_.Update(urgent, ordinary, static_cast<double>(now_));
}

Nanoseconds VirtualDevice::TurnBegin() const {
  return static_cast<Nanoseconds>(switches_.runs_from());
}

Nanoseconds VirtualDevice::NextEvent() const {
  Nanoseconds next = ask_again_at_;
  for (const State& state : coroutines_) {
    if (!state.view.has_work && !state.burst.operations.empty()) {
      next = std::min(next, std::max(state.burst.at, now_));
    }
    if (state.throttled_since >= 0) {
      // A coroutine that is throttled beyond that waits for the end of work of another turn group.
      const Nanoseconds end = state.throttled_since + LimitsOf(state).max_throttle;
      if (end > now_) next = std::min(next, end);
    }
    if (state.view.has_work && ContentionEnd(state) > now_)
      next = std::min(next, ContentionEnd(state));
  }
  for (const size_t index : started_) {
    const Operation& operation = coroutines_[index].hardware.front();
    if (operation.groups == 0 || !HasTurn(operation)) continue;
    const double takes =
        std::ceil(std::max(0.0, operation.left) * device_.groups() / operation.groups);
    next = std::min(next, std::max(now_, TurnBegin()) +
                              std::max<Nanoseconds>(1, static_cast<Nanoseconds>(takes)));
  }
  return next;
}

Program Periodic(Nanoseconds at, Nanoseconds period, std::vector<Nanoseconds> operations) {
  return [=, next = at](Nanoseconds) mutable {
    Burst burst{next, operations};
    next += period;
    return burst;
  };
}

Program Steady(std::vector<Nanoseconds> operations) {
  return [operations = std::move(operations)](Nanoseconds now) { return Burst{now, operations}; };
}

Program Arrivals(Nanoseconds mean_gap, std::vector<Nanoseconds> operations, uint64_t seed) {
  return [=, state = seed](Nanoseconds now) mutable {
    const double uniform = (static_cast<double>(Next(&state) >> 11) + 0.5) / 9007199254740992.0;
    return Burst{now + std::llround(-std::log(uniform) * static_cast<double>(mean_gap)),
                 operations};
  };
}

Nanoseconds Quantile(std::vector<Nanoseconds> values, double fraction) {
  if (values.empty()) return 0;
  const size_t index = std::min(values.size() - 1,
                                static_cast<size_t>(fraction * static_cast<double>(values.size())));
  std::nth_element(values.begin(), values.begin() + index, values.end());
  return values[index];
}

}  // namespace detshare::policy
