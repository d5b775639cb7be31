// Keeps the device for an urgent session in the short gaps between the operations of a request.
//
// A program that submits many short operations lets the device run dry again and again. In each
// such gap the hardware would give the device to the ordinary time-slice group, and the next
// operation would wait until it has preempted that group. So while other coroutines have work, a
// session in the urgent group holds the device (GroupHold) during its requests and for kLinger
// after the last operation. A session whose requests are few operations, such as one graph, holds
// nothing.
//
// A hold keeps ordinary work from the device, and urgent work of other engines. So a session holds nothing
// while its urgent work waits for ordinary work, its own or another session's, and while it makes room for
// urgent work of another session.
//
//     operation   hold ends before it if a hold would delay it (waves.h)
//     submitted   hold lasts until the known work is likely to be complete, and kLinger longer
//     much work   no hold while more work than kLinger is known, if it has an operation that a hold would
//                 delay: no gap is near
//     idle        hold lasts for kLinger
//
// After kLongestHold of operations without a longer gap the session holds nothing for kHoldPause,
// so that the others progress beside a session that never pauses.
//
// Threading: the coroutine's thread. No call waits for the GPU. Errors: none; without a hold the
// work is only slower.
#pragma once

#include <memory>

#include "coroutine_runtime/binding.h"
#include "coroutine_runtime/device.h"

namespace detshare {

class GapHold {
 public:
  // The arguments outlive the object.
  GapHold(Device& device, const Binding& binding)
      : device_(device), binding_(binding), possible_(device.properties().preemption.available) {}
  GapHold(const GapHold&) = delete;
  GapHold& operator=(const GapHold&) = delete;

  // Whether the session should hold the device now.
  bool wanted() const {
    if (!possible_) [[likely]]
      return false;
    return binding_.followed() && binding_.InUrgentGroup() && binding_.entity()->ManyOperations() &&
           binding_.entity()->contended() && MayHold();
  }
  // Called before and after the submission of an operation while wanted().
  void BeforeKernel(const Kernel& kernel, const LaunchShape& shape);
  void BeforeGraph() { End(); }
  void HoldForWork();
  // Called from time to time while no operation comes.
  void Watch();
  void End();
  // Ends the hold before a gap that is longer than a hold.
  void Release() {
    End();
    held_until_ = 0;
  }
  // Ends the hold if other work should have the device now.
  void EndForOthers() {
    if (held_ && !MayHold()) End();
  }

 private:
  bool MayHold() const { return binding_.OnlyUrgentWork() && !binding_.entity()->makes_room(); }
  void HoldFor(Nanoseconds time);

  Device& device_;
  const Binding& binding_;
  bool possible_;  // false: the device has no urgent group, or no hold for this session
  bool held_ = false;
  Nanoseconds held_since_ = 0;  // without a gap that was longer than the hold
  Nanoseconds held_until_ = 0;
  Nanoseconds paused_until_ = 0;
  bool delays_ = false;   // a hold would delay an operation in flight
  bool working_ = false;  // the hold is for work that is not known to be complete
  std::unique_ptr<GroupHold> hold_;
};

}  // namespace detshare
