// The simulator's model of preemption: how a device switches between its two time-slice groups.
//
// Work of the urgent group stops the ordinary group's until the urgent group has no more. A switch
// takes time, in which no work makes progress:
//
//   - to the urgent group while the ordinary group has work: the device's preemption latency;
//   - to the urgent group when the ordinary group has none: kSwitch, or the latency if it is
//     shorter;
//   - to the ordinary group: kResume after the end of the urgent group's work.
//
// A group that has the device pays nothing for it, however long it was idle. The figures were
// measured on an H200: 190 us until urgent work runs beside a full device, 240 us for a switch to
// the urgent group and back, 140 us if the other group has just become idle.
#pragma once

#include <algorithm>

#include "policy/policy.h"

namespace detshare::sim {

class GroupSwitches {
 public:
  static constexpr double kSwitch = 140e3, kResume = 50e3;  // nanoseconds

  // `preemption`: DeviceShape::preemption. Without preemption all work is ordinary.
  explicit GroupSwitches(policy::Nanoseconds preemption)
      : preemption_(static_cast<double>(preemption)) {}

  // At `now`, in nanoseconds, the groups have work or not. Begins a switch if one is due.
  void Update(bool urgent_work, bool ordinary_work, double now) {
    if (had_urgent_work_ && !urgent_work) urgent_end_ = now;
    had_urgent_work_ = urgent_work;
    const Group next = urgent_work ? Group::kUrgent : ordinary_work ? Group::kOrdinary : group_;
    if (next == group_) return;
    if (group_ == Group::kNone) {
      runs_from_ = now;
    } else if (next == Group::kOrdinary) {
      runs_from_ = std::max(now, urgent_end_ + kResume);
    } else {
      runs_from_ = now + (ordinary_work || preemption_ < kSwitch ? preemption_ : kSwitch);
    }
    group_ = next;
  }
  // Which group has the device, and from when on its work runs.
  bool urgent() const { return group_ == Group::kUrgent; }
  double runs_from() const { return runs_from_; }

 private:
  enum class Group { kNone, kOrdinary, kUrgent };

  const double preemption_;
  Group group_ = Group::kNone;  // none has had work yet
  double runs_from_ = 0;
  bool had_urgent_work_ = false;
  double urgent_end_ = 0;  // when the urgent group had no more work
};

}  // namespace detshare::sim
