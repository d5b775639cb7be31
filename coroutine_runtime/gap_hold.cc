#include "coroutine_runtime/gap_hold.h"

#include <algorithm>
#include <utility>

#include "coroutine_runtime/waves.h"

namespace detshare {
namespace {

// Longer than the gaps of a program that is busy submitting, and shorter than a preemption and the
// way back together, which an unused hold costs the others (docs/preemption.md).
constexpr Nanoseconds kLinger = 150 * policy::kMicrosecond;
// Known work counts up to this time. Longer work is seen again before it is complete.
constexpr Nanoseconds kLongestWork = 20 * policy::kMillisecond;
constexpr Nanoseconds kLongestHold = 100 * policy::kMillisecond;
constexpr Nanoseconds kHoldPause = 10 * policy::kMillisecond;

}  // namespace

void GapHold::BeforeKernel(const Kernel& kernel, const LaunchShape& shape) {
  if (!DelayedByHold(device_.properties(), kernel.info(), shape)) return;
  delays_ = true;
  End();
}

void GapHold::HoldForWork() {
  const Nanoseconds in_flight = binding_.entity()->in_flight();
  delays_ = delays_ && in_flight > kLinger;
  if (delays_) {
    End();
    return;
  }
  working_ = true;
  HoldFor(std::min(in_flight, kLongestWork) + kLinger);
}

void GapHold::Watch() {
  EndForOthers();
  if (delays_) [[unlikely]] {
    if (!wanted() || !binding_.entity()->working()) {
      delays_ = false;
    } else {
      HoldForWork();
    }
    return;
  }
  if (!held_ || !working_) return;
  if (binding_.followed() && binding_.entity()->working()) return;
  working_ = false;
  HoldFor(kLinger);
}

void GapHold::HoldFor(Nanoseconds time) {
  const Nanoseconds now = binding_.entity()->Now();
  if (now < paused_until_) return;
  if (now >= held_until_) held_since_ = now;
  if (now - held_since_ >= kLongestHold) {
    paused_until_ = now + kHoldPause;
    held_until_ = now;
    End();
    return;
  }
  held_until_ = now + time;
  if (hold_ == nullptr) {
    absl::StatusOr<std::unique_ptr<GroupHold>> made = device_.CreateHold();
    if (!made.ok() || *made == nullptr) {
      possible_ = false;
      return;
    }
    hold_ = *std::move(made);
  }
  held_ = hold_->HoldFor(time).ok();
}

void GapHold::End() {
  if (!held_) return;
  held_ = false;
  hold_->End();
}

}  // namespace detshare
