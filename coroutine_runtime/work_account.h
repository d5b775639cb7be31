// Reports a coroutine's work to its sched entity (sched_entity.h): what was submitted, what is
// complete, and what cannot begin yet.
//
//     Add ----> unfenced work of the stream ----fence----> in flight ----reached----> complete
//      |                  ^
//      +--> parked work --+  when the stream's wait is over
//
// A fence costs the GPU a write. So a fence is put behind a stream's work only when enough work has
// no fence (SchedEntity::fence_every()), when the entity has no room for more work, and when the
// client waits or pauses.
//
// Work may be running when it begins to be followed: a session was alone, and another process comes.
// Without a turn it would stop for ever, and the other process with it. So the entity is told that the
// device has unknown work. The same holds for work that the account takes for parked, because it knows
// only the latest wait of a stream: work in front of that wait may run.
//
// Work is parked while an earlier wait of its stream is not over, if that wait is for the client or
// for another session. Such a wait may take for ever, so parked work does not count as progress.
//
// Ownership: keeps pointers to streams until End(). All arguments of the constructor outlive the
// object. Threading: the coroutine's thread. No call waits for the GPU. Calls for a stream that has
// run on its partition and has a fence neither allocate nor lock.
//
// Errors: none. A fence that the device refuses counts as reached, because the device is lost.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "coroutine_runtime/binding.h"
#include "coroutine_runtime/device.h"
#include "coroutine_runtime/durations.h"
#include "coroutine_runtime/fence_pool.h"
#include "coroutine_runtime/in_flight.h"
#include "coroutine_runtime/logical_stream.h"
#include "coroutine_runtime/operation_timer.h"
#include "coroutine_runtime/parking.h"
#include "coroutine_runtime/stream_order.h"

namespace detshare {

class WorkAccount {
 public:
  WorkAccount(Device& device, const AddressSpace& space, const Binding& binding, StreamOrder& order,
              const Parking& parking, OperationTimer& timer);
  WorkAccount(const WorkAccount&) = delete;
  WorkAccount& operator=(const WorkAccount&) = delete;

  // Reserves room for this number of streams.
  void Reserve(size_t streams);

  // ---- operations. The calls of this group require that work is followed (Binding::followed()).

  // An operation of this estimated duration is about to be submitted.
  void Add(LogicalStream& stream, Nanoseconds estimate);
  // The same for a copy or fill of this many bytes. `result`: the client may wait for the bytes.
  void AddTransfer(LogicalStream& stream, TransferKind kind, uint64_t bytes, bool result = false);
  // Puts a fence behind the stream's work if one is due. Called after an operation, even if the
  // device refused it.
  void FenceIfDue(LogicalStream& stream);

  // Exists while an operation is submitted, which may wait for other sessions (CallWait). `added`:
  // Add() was called for it, and for no operation since.
  class Submission {
   public:
    Submission(WorkAccount& account, bool added) : account_(account) {
      account.submits_ = true;
      if (!added) account.added_to_ = nullptr;
    }
    ~Submission() {
      if (account_.withdrawn_) account_.added_to_ = nullptr;
      // The device was asked while it did not have the operation yet.
      if (account_.uncounted_) account_.looked_ = false;
      account_.submits_ = account_.withdrawn_ = account_.uncounted_ = false;
    }
    Submission(const Submission&) = delete;
    Submission& operator=(const Submission&) = delete;

   private:
    WorkAccount& account_;
  };
  // As in CallWait, for the operation of the present Submission, if there is one. Require an entity.
  void Suspend();
  bool Resume();

  // ---- waits for the client or for another session

  // The stream is about to wait.
  void BeforeWait(LogicalStream& stream);
  // The stream waits from here on, until the work that was submitted last is complete.
  void NoteWait(LogicalStream& stream);
  // The same for a wait until `awaited` is reached.
  void NoteWait(LogicalStream& stream, const FencePoint& awaited);

  // ---- the session

  // The client asked to be notified of a completion, so the end of work should be detected soon.
  void NoteObserved() { observed_ = true; }
  // The stream ends. Its parked work counts as complete, because it may never begin.
  void End(LogicalStream& stream);
  // Looks for completed work, because the entity has no room. Returns whether the worker may read
  // the next record. Requires an entity.
  bool MakeRoom();
  // Looks for completed work. `pause`: no record has come for some time, so the end of all work
  // should be detected. Requires an entity.
  void Watch(bool pause);
  // Whether Watch() may have something to detect even without a new operation.
  bool watching() const { return !in_flight_.empty() || may_have_unknown_ || !timer_.empty(); }
  // Drops all work from the account, and ends the entity's knowledge of it. Requires an entity.
  void Forget();

 private:
  SchedEntity& entity() const { return *binding_.entity(); }
  void AddUnfenced(LogicalStream& stream, Nanoseconds estimate);
  void PutFence(LogicalStream& stream);
  void FenceAll();
  void ResumeParked();
  // Whether work that counts is in flight.
  bool HasKnownWork() const { return !in_flight_.empty() || !unfenced_.empty(); }
  void LookForUnknown();
  // Whether the ordinary group may have work of the session, or work that it waits for.
  bool MayHaveOrdinaryWork();
  void NoteUrgentWork();
  void TakeProgress();
  void TakeRead();

  const AddressSpace& space_;
  const Binding& binding_;
  StreamOrder& order_;
  const Parking& parking_;
  OperationTimer& timer_;
  const std::array<double, 5> transfer_rates_;  // by TransferKind, bytes per nanosecond
  InFlight in_flight_;
  std::vector<LogicalStream*> unfenced_;  // streams with work that has no fence behind it
  std::vector<LogicalStream*> parked_;    // streams with parked work
  // Where Add() put the latest operation, if it counts as in flight, and its estimate.
  LogicalStream* added_to_ = nullptr;
  Nanoseconds added_ = 0;
  bool submits_ = false;       // a Submission exists
  bool withdrawn_ = false;     // the operation does not count, until Resume()
  bool uncounted_ = false;     // the operation has waited, and does not count at all
  FencePoint read_;            // behind the latest copy to the host
  bool read_awaited_ = false;  // the client waits for it
  bool observed_ = false;      // NoteObserved() was called since the last operation
  bool shares_ = false;        // Assignment::shares_device at the last Watch()
  // Whether the device may have work that the account does not know, and when it is asked again.
  bool may_have_unknown_ = false;
  bool looked_ = false;  // it was asked since work is followed
  Nanoseconds look_at_ = 0;
  uint64_t passed_on_ = 0;  // Parking::passed_on() at the last look
  // Whether the group in which the session is not has work of it, and when the device is asked again.
  bool left_ = false;
  Nanoseconds ask_at_ = 0;
};

}  // namespace detshare
