// Decides on which partition a coroutine's next operation runs.
//
// Without a sched entity, every operation runs on one partition, at first the whole device. With an
// entity (sched_entity.h), the entity decides. Operations other than kernels and graphs then stay
// where their stream is. A launch whose blocks must run at the same time gets a partition with
// enough SMs.
//
// If the device can preempt, work that the entity calls urgent runs in the urgent time-slice group once
// that is open, on all SMs, whatever partition the entity names. A session that is bound to a group
// (AddressSpace::BindToGroup) stays there. A kernel whose code is not in that group, and cannot be
// brought there now, runs in the other one (Kernel::Prepare).
//
// Ownership: owns nothing. The device and its partitions outlive the binding. The entity outlives
// the binding or is detached. Threading: the coroutine's thread. Only SmsFor(), for cooperative grids,
// and ForLaunch() and BindFor(), for code that the group does not have yet, may call the driver. For such
// code they may wait until the group is idle (Kernel::Prepare). No other call waits for the GPU.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "coroutine_runtime/device.h"
#include "coroutine_runtime/sched_entity.h"
#include "coroutine_runtime/shared_event.h"

namespace detshare {

// Whether blocks of the launch must run at the same time: cooperative grids and clusters.
inline bool BlocksRunTogether(const LaunchShape& shape) {
  return shape.cooperative || shape.cluster.x != 0;
}

// Whether the device refused a launch or graph that may fit a larger partition.
bool DoesNotFitPartition(const absl::Status& status);

class Binding {
 public:
  // `complete` asks the device whether all of the session's work in the group is complete.
  Binding(Device& device, AddressSpace& space, std::function<bool(bool urgent)> complete)
      : device_(device),
        space_(space),
        preempts_(device.properties().preemption.available),
        urgent_(device.urgent()),
        partition_(&device.whole()),
        complete_(std::move(complete)) {}
  Binding(const Binding&) = delete;
  Binding& operator=(const Binding&) = delete;

  // Requires no entity.
  void Bind(Partition& partition) { partition_ = &partition; }
  // The entity decides from this call on.
  void Attach(SchedEntity& entity);
  // Requires an entity. Operations stay on its present partition.
  void Detach();

  // Null if there is none.
  SchedEntity* entity() const { return entity_; }
  // Whether operations are reported to the entity.
  bool followed() const { return entity_ != nullptr && entity_->followed(); }
  // Whether events are added to the entity's trace.
  bool traced() const { return entity_ != nullptr && entity_->traced(); }
  // Whether the work goes first in the hardware.
  bool urgent() const { return entity_ != nullptr && entity_->urgent(); }

  // The present partition of short kernels.
  Partition& partition() const {
    return entity_ != nullptr ? InGroup(entity_->partition()) : *partition_;
  }
  // Where a kernel or graph of this kind runs. Requires an entity.
  Partition& ForKind(SchedEntity::Kind kind) const { return InGroup(entity_->Choose(kind)); }
  // The whole device, in the session's group.
  Partition& whole() const { return space_.urgent() ? *urgent_ : device_.whole(); }
  // Whether the session's work runs in the urgent group.
  bool InUrgentGroup() const { return space_.urgent(); }
  // Returns false while the session's urgent work waits for ordinary work, its own or another
  // session's.
  bool OnlyUrgentWork() const {
    if (Awaits()) [[unlikely]]
      return false;
    if (ordinary_unfinished_) [[unlikely]]
      ordinary_unfinished_ = !complete_(/*urgent=*/false);
    return !ordinary_unfinished_;
  }
  // Whether the urgent group has work of the session, which has left the group. Asks the device only
  // while it may.
  bool LeftUrgentWork() const {
    if (urgent_unfinished_) [[unlikely]]
      urgent_unfinished_ = !complete_(/*urgent=*/true);
    return urgent_unfinished_;
  }
  bool MayHaveLeftUrgentWork() const { return urgent_unfinished_; }
  // False if OnlyUrgentWork() is known without asking the device.
  bool MayHaveOrdinaryWork() const { return ordinary_unfinished_ || awaited_ != nullptr; }
  // An operation is about to run on the partition, whatever the session's group is.
  void NoteGroup(const Partition& partition) const {
    if (preempts_ && !IsInGroup(partition)) [[unlikely]]
      (space_.urgent() ? ordinary_unfinished_ : urgent_unfinished_) = true;
  }
  // The session waits for the recording, which may be of ordinary work.
  void Await(const std::shared_ptr<SharedRecording>& recording) {
    if (preempts_ && !recording->urgent()) awaited_ = recording;
  }
  // Whether the partition is in the session's group.
  bool IsInGroup(const Partition& partition) const {
    return (&partition == urgent_) == space_.urgent();
  }
  // Binds the session to its group because it uses the kernel, if the kernel needs that.
  void BindFor(Kernel& kernel) const {
    if (!preempts_ || space_.bound() || !kernel.bound_to_group()) [[likely]]
      return;
    if (entity_ != nullptr) Settle(entity_->preempts());
    StayFor(kernel);
    space_.BindToGroup();
  }
  // Where a launch with this estimated duration runs. The estimate is 0 while work is not followed.
  Partition& ForLaunch(Kernel& kernel, const LaunchShape& shape, Nanoseconds estimate) const;
  // Where another kind of operation runs. `present`: the partition of the stream's last operation,
  // null before the first one.
  Partition& ForOther(Partition* present) const {
    if (entity_ == nullptr) return *partition_;
    if (Partition* const next = entity_->ChooseForOther(); next != nullptr) return InGroup(*next);
    if (present == nullptr) return partition();
    if (!preempts_) [[likely]]
      return *present;
    Partition& now = partition();
    return IsInGroup(*present) ? *present : now;
  }
  // Returns `wanted`, or the smallest partition of the device with at least `sms` SMs if `wanted`
  // has fewer. Without an entity, always `wanted`.
  Partition& Holding(Partition& wanted, int sms) const;

  // The number of SMs without which a launch cannot run. It is above 1 for cooperative grids and
  // for clusters. kAllSms for launches that the device will refuse.
  static constexpr int kAllSms = INT32_MAX;
  static int SmsFor(Kernel& kernel, const LaunchShape& shape);

 private:
  // How a launch of this duration delays urgent work that begins while it runs. Requires an entity.
  SchedEntity::Kind KindOf(const Kernel& kernel, const LaunchShape& shape,
                           Nanoseconds duration) const;

  // Returns `wanted`, or the whole device in the session's group if `wanted` is in the other group.
  // Moves the session to the group where the entity wants it.
  Partition& InGroup(Partition& wanted) const {
    if (!preempts_) return wanted;
    if (urgent_ == nullptr) [[unlikely]]
      urgent_ = device_.urgent();
    Settle(entity_->preempts() || &wanted == urgent_);
    return IsInGroup(wanted) ? wanted : whole();
  }
  // Leaves the group if the kernel cannot start there. Returns whether the session is in another group
  // now. Requires a device that can preempt.
  bool StayFor(Kernel& kernel) const {
    if (space_.bound() || kernel.Prepare(space_, space_.urgent())) [[likely]]
      return false;
    SetUrgent(!space_.urgent());
    return true;
  }
  // The session's work should run in this group, which is open. Requires an entity, and a device that can
  // preempt.
  void Settle(bool urgent) const {
    if (space_.bound()) {
      entity_->NoteBoundTo(space_.urgent());
    } else {
      SetUrgent(urgent);
    }
  }
  void SetUrgent(bool urgent) const {
    if (urgent && !space_.urgent()) {
      ordinary_unfinished_ = true;
      urgent_ = device_.urgent();
    }
    if (!urgent && space_.urgent()) urgent_unfinished_ = true;
    space_.set_urgent(urgent);
  }
  // Whether the session waits for ordinary work of another session.
  bool Awaits() const {
    if (awaited_ == nullptr) [[likely]]
      return false;
    if (!awaited_->complete()) return true;
    awaited_ = nullptr;
    return false;
  }

  Device& device_;
  AddressSpace& space_;
  const bool preempts_;        // the device can preempt, whether or not the urgent group is open
  mutable Partition* urgent_;  // null: the group was not open when the binding last asked
  Partition* partition_;       // used without an entity
  SchedEntity* entity_ = nullptr;
  const std::function<bool(bool urgent)> complete_;
  // The group may have work of the session, which is in the other one or does not care.
  mutable bool ordinary_unfinished_ = false, urgent_unfinished_ = false;
  mutable std::shared_ptr<SharedRecording> awaited_;  // null: none
};

}  // namespace detshare
