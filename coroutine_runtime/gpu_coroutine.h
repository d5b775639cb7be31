// The logical context of one session on one device: its streams and events and their order,
// independent of the SMs on which they run.
//
// A GpuCoroutine owns its parts and connects them for each operation:
//
//     StreamTable        streams and contexts by their ids
//     EventTable         events by their ids
//     Binding            on which partition the next operation runs
//     StreamOrder        which stream waits for which, on which queue
//     WorkAccount        what the sched entity is told about submitted and completed work
//     GapHold            keeps the device in the gaps between urgent operations
//     OperationTimer     how long operations run
//     OperationCounters  how many operations were submitted
//     PeerQueue          work that another device of the session executes
//
// The sched entity (sched_entity.h) decides where a kernel or graph runs. Copies, fills and events
// stay where their stream is. A stream moves to another partition at an operation boundary, and its
// operations keep their order:
//
//     Bind(B)            (nothing happens)
//     next operation:    queue on A: Record(stream's marker)
//                        queue on B: Wait(stream's marker), operation
//
// A destroyed stream finishes its work. Its queues return to the pool after that.
//
// Threading: one thread, the executor's; counters() from any thread. No call waits for the GPU.
// Once a stream has run on the partition, operations (launches, copies, fills, signals, event
// records and waits) neither allocate nor lock.
//
// Lifetime: outlives the executor's tasks that use it, and the address space. The destructor of the
// space waits for queued work, and that work still writes to the coroutine's fences. The
// coroutine's destructor does not touch the space. So a session ends in this order: Abandon() if it
// was cut short, executor's tasks, libraries, DeviceMemory, address space, GpuCoroutine.
//
// Errors: unknown ids give CUDA_ERROR_INVALID_HANDLE. Every operation returns the space's fault if
// there is one. Other errors are the device's.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "coroutine_runtime/binding.h"
#include "coroutine_runtime/device.h"
#include "coroutine_runtime/durations.h"
#include "coroutine_runtime/event_table.h"
#include "coroutine_runtime/executor.h"
#include "coroutine_runtime/fence_pool.h"
#include "coroutine_runtime/gap_hold.h"
#include "coroutine_runtime/logical_stream.h"
#include "coroutine_runtime/object_ids.h"
#include "coroutine_runtime/operation_counters.h"
#include "coroutine_runtime/operation_timer.h"
#include "coroutine_runtime/queue_pool.h"
#include "coroutine_runtime/sched_entity.h"
#include "coroutine_runtime/stream_order.h"
#include "coroutine_runtime/stream_table.h"
#include "coroutine_runtime/task.h"
#include "coroutine_runtime/work_account.h"

namespace detshare {

class GpuGraph;
class SharedEvent;
class SharedRecording;

class GpuCoroutine {
 public:
  using Counters = OperationCounters::Counts;

  // Starts on the whole device. Registers a page of host memory in `space` for its own fences.
  static absl::StatusOr<std::unique_ptr<GpuCoroutine>> Create(Device& device, AddressSpace& space,
                                                              QueuePool& queues, Parking& parking);
  ~GpuCoroutine();
  GpuCoroutine(const GpuCoroutine&) = delete;
  GpuCoroutine& operator=(const GpuCoroutine&) = delete;

  Device& device() { return device_; }
  AddressSpace& space() { return space_; }
  Executor& executor() { return parking_.executor(); }
  Parking& parking() { return parking_; }
  // Whether the session keeps the device in the gaps between its operations (gap_hold.h).
  bool HoldsDevice() const { return hold_.wanted(); }
  // No operation comes soon: the device need not be kept.
  void ReleaseDevice() { hold_.Release(); }
  // The current partition of short kernels.
  Partition& partition() { return binding_.partition(); }

  // The context begins with its first object. Ids must be unused and not 0; otherwise
  // CUDA_ERROR_INVALID_VALUE.
  absl::Status CreateStream(StreamId stream, ContextId context, const StreamOptions& options);
  // The id is free at once; the stream's work continues. The legacy default stream ends only with
  // its context, so destroying it gives CUDA_ERROR_INVALID_HANDLE.
  absl::Status DestroyStream(StreamId stream);

  absl::Status Launch(StreamId stream, Kernel& kernel, const LaunchShape& shape,
                      absl::Span<const std::byte> parameters);
  absl::Status Copy(StreamId stream, const CopyRequest& request);
  // Directly after a Copy() of the stream that the client takes for complete: later operations of
  // all the session's streams on the device come after it. Allocates the first time.
  absl::Status OrderAllBehind(StreamId stream);
  absl::Status Fill(StreamId stream, const FillRequest& request);
  absl::Status Prefetch(StreamId stream, const PrefetchRequest& request);
  absl::Status MemoryOps(StreamId stream, absl::Span<const MemoryOp> operations);

  // Stores `value` to `fence` (in memory registered with the space) when all earlier work of the
  // stream is complete. For the legacy stream, this includes the work of the blocking streams.
  absl::Status Signal(StreamId stream, std::atomic<uint64_t>* fence, uint64_t value);
  // Stores `value` to `fence` when all work of the context is complete.
  absl::Status SignalContext(ContextId context, std::atomic<uint64_t>* fence, uint64_t value);
  // Blocks the stream until *fence >= value.
  absl::Status WaitFence(StreamId stream, const std::atomic<uint64_t>* fence, uint64_t value);
  // Signals `reached`, then blocks the stream until *resume >= resume_value.
  absl::Status HostFunction(StreamId stream, std::atomic<uint64_t>* reached, uint64_t reached_value,
                            const std::atomic<uint64_t>* resume, uint64_t resume_value);

  // Point() returns a point in the stream's work, which outlives the stream. WaitPoint() blocks
  // `stream` until the point is reached. It queues nothing if the stream's own order implies that
  // or the point is known to be reached.
  absl::StatusOr<FencePoint> Point(StreamId stream);
  absl::Status WaitPoint(StreamId stream, const FencePoint& point);

  absl::Status CreateEvent(EventId event, ContextId context, bool timed) {
    return events_.Create(event, context, timed);
  }
  absl::Status DestroyEvent(EventId event) { return events_.Destroy(event); }
  // `fence` may be null. Otherwise `value` is stored to it when the event's point is reached.
  absl::Status RecordEvent(EventId event, StreamId stream, std::atomic<uint64_t>* fence,
                           uint64_t value);
  // CUDA_ERROR_NOT_READY while the point of the event's last recording is not reached.
  absl::Status QueryEvent(EventId event) { return events_.Query(event); }
  // The stream waits for the point of the event's last recording before this call. It does not wait
  // if the event was never recorded.
  absl::Status WaitEvent(StreamId stream, EventId event);
  // WaitEvent() for an event of another device of the session.
  absl::Status WaitEventOf(const GpuCoroutine& owner, StreamId stream, EventId event);
  // The same for events that other sessions also use. The caller reports when the recording's point
  // is reached.
  absl::StatusOr<std::shared_ptr<SharedRecording>> RecordShared(SharedEvent& event,
                                                                StreamId stream);
  absl::Status WaitShared(StreamId stream, SharedEvent& event);
  // CUDA_ERROR_NOT_READY while either event is not reached; CUDA_ERROR_INVALID_HANDLE if an event
  // was not recorded or is not timed.
  absl::StatusOr<float> ElapsedMilliseconds(EventId start, EventId end) {
    return events_.ElapsedMilliseconds(start, end);
  }

  // Returns the marker that graph nodes record and wait for. It keeps the event's point alive after
  // the event is destroyed. The caller sets `*recorded` when it records the marker; `*recorded`
  // lives as long as the marker.
  absl::StatusOr<std::shared_ptr<Marker>> ShareEvent(EventId event, bool** recorded) {
    return events_.Share(event, recorded);
  }

  // For other kinds of operations. Submits one operation of the stream on `partition`, ordered like
  // any other. `submit` gets the queue. `known`: the entity's knowledge about the operation, null
  // if its duration is negligible. `waits`: a part of the operation may wait for the client or
  // another session. Its other parts run before and after that wait, which nobody sees end. So it
  // counts as work in the hardware until it is complete.
  absl::Status Submit(StreamId stream, Partition& partition,
                      absl::FunctionRef<absl::Status(Queue&)> submit,
                      const DurationCache::Lookup* known = nullptr, bool waits = false);
  // Returns a number that distinguishes streams which had the same id one after the other.
  absl::StatusOr<uint64_t> SerialOf(StreamId stream);
  // Records the marker behind the present work of the stream with this number, where the stream is.
  // Returns false if the stream is gone, so that its work is complete.
  absl::StatusOr<bool> MarkWork(uint64_t serial, Marker& marker);
  // Counts the launch of a graph with this number of kernels.
  void CountGraph(uint64_t kernels) { counters_.AddGraph(kernels); }
  // Counts another submitted operation.
  void CountOther() { counters_.AddOther(); }

  // As in Binding.
  static constexpr int kAllSms = Binding::kAllSms;
  static int SmsFor(Kernel& kernel, const LaunchShape& shape) {
    return Binding::SmsFor(kernel, shape);
  }
  Partition& Holding(Partition& wanted, int sms) { return binding_.Holding(wanted, sms); }
  Partition& ForKind(SchedEntity::Kind kind) { return binding_.ForKind(kind); }
  Partition& whole() { return binding_.whole(); }
  bool IsInGroup(const Partition& partition) const { return binding_.IsInGroup(partition); }
  void BindFor(Kernel& kernel) { binding_.BindFor(kernel); }

  // Graphs that should be instantiated for a partition when there is time.
  void AddUnready(GpuGraph& graph);
  void RemoveUnready(GpuGraph& graph);
  // Makes one of them ready for one partition, which may take a millisecond. Returns false if there
  // is none.
  bool MakeReady();

  // ---- between the devices of the session

  // From this call on, work of `other` may access the memory of this device.
  void AddUser(GpuCoroutine& other);
  // Waits as Idle() for this device and for the devices whose work may access its memory. After
  // that, memory may be unmapped or moved.
  Task<absl::Status> IdleForMemory();
  // Work of `stream` that the device `host` executes, because the memory is there: a copy to or
  // from the memory of a host device, or a fill.
  absl::Status CopyAt(GpuCoroutine& host, StreamId stream, const CopyRequest& request);
  absl::Status FillAt(GpuCoroutine& host, StreamId stream, const FillRequest& request);

  // ---- for the scheduler, and for the session's worker on its behalf

  // Requires no entity. Later work runs on `partition`, which is of the same device, ordered after
  // the earlier work.
  void Bind(Partition& partition) { binding_.Bind(partition); }
  // The entity decides from this call on. It must outlive the coroutine or be detached.
  void Attach(SchedEntity& entity) { binding_.Attach(entity); }
  // Operations stay on the entity's partition. Does nothing without an entity.
  void Detach();
  SchedEntity* entity() { return binding_.entity(); }
  // Whether operations are reported to the entity.
  bool followed() const { return binding_.followed(); }

  // Whether the worker may read the session's next record.
  bool MayRun() { return entity() == nullptr || entity()->MayRun() || account_.MakeRoom(); }
  // The session has a record that may not be read. Returns true once it was throttled for long
  // enough that the record may be read.
  bool Throttle() { return entity() == nullptr || entity()->Throttle(); }
  // Checks how far the work is, and notifies the scheduler. `pause`: no record has come for some
  // time, so the end of all work should be detected.
  void WatchWork(bool pause) {
    if (entity() == nullptr) return;
    account_.Watch(pause);
    hold_.Watch();
  }
  // As in CallWait, for a call on this or another device of the session.
  void SuspendCall() {
    if (entity() == nullptr) return;
    hold_.End();
    account_.Suspend();
  }
  bool ResumeCall() { return entity() == nullptr || account_.Resume(); }
  // Whether WatchWork() may have something to detect even without a new record.
  bool watching_work() const { return account_.watching(); }

  // Completes when everything submitted before the first await is complete, also in contexts that
  // are being destroyed. Returns the fault of the space if there is one.
  Task<absl::Status> Idle();
  // The same for one context.
  Task<absl::Status> IdleContext(ContextId context);
  // The context's streams and events are gone at the first await. Completes when their work is
  // complete.
  Task<absl::Status> DestroyContext(ContextId context);

  Counters counters() const { return counters_.get(); }

 private:
  GpuCoroutine(Device& device, AddressSpace& space, QueuePool& queues, Parking& parking);

  // Asks the device whether all of the session's work in the time-slice group is complete.
  bool GroupComplete(bool urgent);
  // Orders an operation that stays where its stream is, and returns its queue. PrepareOther() also
  // counts the operation, for kinds without a counter of their own.
  absl::StatusOr<Queue*> PrepareInPlace(LogicalStream& stream);
  absl::StatusOr<Queue*> PrepareOther(LogicalStream& stream);
  // Orders work on `host` between the stream's work before and after it.
  absl::Status RunAt(GpuCoroutine& host, StreamId stream,
                     absl::FunctionRef<absl::Status(Queue&)> submit);
  absl::StatusOr<PeerQueue*> FindOrCreatePeerQueue(LogicalStream& stream, GpuCoroutine& host);
  absl::Status SignalAll(LogicalContext& context, std::atomic<uint64_t>* fence, uint64_t value);
  // Returns a fence that is signalled when all work of the context is complete.
  absl::StatusOr<FenceLease> FenceOf(LogicalContext& context);
  Task<absl::Status> AwaitFence(FenceLease fence);
  Task<absl::Status> AwaitPoint(FencePoint point);

  Device& device_;
  AddressSpace& space_;
  QueuePool& queues_;
  Parking& parking_;
  // Destroyed from the last one to the first. The streams return their fences to the pool.
  FencePool fences_;
  Binding binding_;
  OperationCounters counters_;
  StreamOrder order_;
  OperationTimer timer_;
  WorkAccount account_;
  GapHold hold_;
  StreamTable streams_;
  EventTable events_;
  std::vector<GpuGraph*> unready_;
  std::vector<GpuCoroutine*> users_;
  std::vector<FencePoint> ending_;  // behind the work of contexts that are being destroyed
};

}  // namespace detshare
