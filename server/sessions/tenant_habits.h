// Keeps what programs of a tenant were seen to do, for the placement of its next programs.
//
// One thread at a time uses it.
#pragma once

#include <algorithm>
#include <string>

#include "coroutine_runtime/by_tenant.h"
#include "coroutine_runtime/scheduler_state.h"
#include "policy/policy.h"

namespace detshare {

// Values below 0 are unknown.
struct TenantHabit {
  // As in policy::PlacementRequest.
  double memory_bound = -1, load = -1;
};

// Returns the habit of a session on one device. A scheduler follows a session's work only while
// other sessions share its device.
inline TenantHabit HabitOf(const CoroutineState& state, policy::Nanoseconds now) {
  const SchedEntityReport& seen = state.figures;
  TenantHabit habit;
  habit.memory_bound = seen.memory_bound;
  if (!state.followed || seen.changed_at == 0) return habit;
  // The current burst or gap may be longer than any before: a training run has one burst that never
  // ends.
  const policy::Nanoseconds lately = std::max<policy::Nanoseconds>(0, now - seen.changed_at);
  const double busy = static_cast<double>(seen.has_work ? std::max(seen.typical_burst, lately)
                                                        : seen.typical_burst);
  const double idle =
      static_cast<double>(seen.has_work ? seen.typical_gap : std::max(seen.typical_gap, lately));
  if (busy + idle > 0) habit.load = busy / (busy + idle);
  return habit;
}

class TenantHabits {
 public:
  // Notes the known figures of `habit`; each replaces the figure before.
  void Note(const std::string& tenant, const TenantHabit& habit) {
    TenantHabit& known = habits_.At(tenant);
    if (habit.memory_bound >= 0) known.memory_bound = habit.memory_bound;
    if (habit.load >= 0) known.load = habit.load;
  }
  TenantHabit Of(const std::string& tenant) const {
    const auto found = habits_.all().find(tenant);
    return found != habits_.all().end() ? found->second : TenantHabit();
  }

 private:
  ByTenant<TenantHabit> habits_;
};

}  // namespace detshare
