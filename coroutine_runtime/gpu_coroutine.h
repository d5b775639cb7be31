// The logical context of one session on one device: its streams and events and their order,
// independent of the SMs on which they run.
//
// A logical stream has one physical queue on each partition on which it has run. It moves between
// them at an operation boundary:
//
//     Bind(B)            (nothing happens)
//     next operation:    queue on A: Record(stream's marker)
//                        queue on B: Wait(stream's marker), operation
//
// This keeps the order of its work. Streams that are no longer used never move.
//
// The legacy default stream of a context and the context's blocking streams wait for each other as
// CUDA specifies. A blocking stream is dirty while it has work since the last such wait. Only dirty
// streams take part, so with one stream in use nothing is recorded:
//
//     operation on the legacy stream:  waits for every dirty blocking stream; they become clean
//     operation on a blocking stream:  waits for the legacy stream if that had an operation since;
//                                      the blocking stream becomes dirty
//
// The sched entity (sched_entity.h) decides where a kernel or graph runs. While work is followed,
// the coroutine reports the session's work to the entity: each operation with its estimated
// duration (durations.h). From time to time it also puts fences behind the streams' work, which
// show how much of the work is complete (in_flight.h). An operation that waits for its client or
// for another session cannot make progress by itself, and is reported as such. Copies, fills and
// events stay where their stream is.
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

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
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
#include "coroutine_runtime/in_flight.h"
#include "coroutine_runtime/object_ids.h"
#include "coroutine_runtime/queue_pool.h"
#include "coroutine_runtime/sched_entity.h"
#include "coroutine_runtime/task.h"

namespace detshare {

struct StreamOptions {
  bool non_blocking = false;    // not ordered with the legacy default stream
  bool legacy_default = false;  // is the legacy default stream of its context
  int priority = 0;
};

class GpuGraph;
class SharedEvent;

class GpuCoroutine {
 public:
  struct Counters {
    uint64_t operations = 0;  // of all kinds: those below, events, waits and memory operations
    uint64_t launches = 0, graphs = 0, copies = 0, fills = 0;
    uint64_t kernels = 0;  // in launches and graphs
    uint64_t bytes_copied = 0;
    uint64_t migrations = 0;  // of streams from one partition to another
  };

  // Starts on the whole device. Registers a page of host memory in `space` for its own fences.
  static absl::StatusOr<std::unique_ptr<GpuCoroutine>> Create(Device& device, AddressSpace& space,
                                                              QueuePool& queues,
                                                              Executor& executor);
  ~GpuCoroutine();
  GpuCoroutine(const GpuCoroutine&) = delete;
  GpuCoroutine& operator=(const GpuCoroutine&) = delete;

  Device& device() { return device_; }
  AddressSpace& space() { return space_; }
  Executor& executor() { return executor_; }
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
  absl::Status Fill(StreamId stream, const FillRequest& request);
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
  // The same for events that other sessions also use. Sets `*number` to the recording's number.
  absl::Status RecordShared(SharedEvent& event, StreamId stream, uint64_t* number);
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
  // if its duration is negligible. `waits`: the operation may wait for the client or another
  // session.
  absl::Status Submit(StreamId stream, Partition& partition,
                      absl::FunctionRef<absl::Status(Queue&)> submit,
                      const DurationCache::Lookup* known = nullptr, bool waits = false);
  // Returns a number that distinguishes streams which had the same id one after the other.
  absl::StatusOr<uint64_t> SerialOf(StreamId stream);
  // Counts the launch of a graph with this number of kernels.
  void CountGraph(uint64_t kernels);
  // Counts another submitted operation.
  void CountOther();

  // As in Binding.
  static constexpr int kAllSms = Binding::kAllSms;
  static int SmsFor(Kernel& kernel, const LaunchShape& shape) {
    return Binding::SmsFor(kernel, shape);
  }
  Partition& Holding(Partition& wanted, int sms) { return binding_.Holding(wanted, sms); }

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
  void Attach(SchedEntity& entity);
  void Detach();
  SchedEntity* entity() { return binding_.entity(); }
  // Whether operations are reported to the entity.
  bool followed() const { return binding_.followed(); }

  // Whether the worker may read the session's next record.
  bool MayRun() { return entity() == nullptr || entity()->MayRun() || MakeRoom(); }
  // The session has a record that may not be read. Returns true once it was throttled for long
  // enough that the record may be read.
  bool Throttle() { return entity() == nullptr || entity()->Throttle(); }
  // Checks how far the work is, and notifies the scheduler. `pause`: no record has come for some
  // time, so the end of all work should be detected.
  void WatchWork(bool pause);
  // Whether WatchWork() may have something to detect even without a new record.
  bool watching_work() const { return !in_flight_.empty() || !samples_.empty(); }

  // Completes when everything submitted before the first await is complete. Returns the fault of
  // the space if there is one.
  Task<absl::Status> Idle();
  // The same for one context.
  Task<absl::Status> IdleContext(ContextId context);
  // The context's streams and events are gone at the first await. Completes when their work is
  // complete.
  Task<absl::Status> DestroyContext(ContextId context);

  Counters counters() const;

 private:
  struct Context;
  struct Stream;
  struct Visit;
  struct Sample;
  // The purpose of the queue. kOperation and kOther keep the legacy default stream's order. The
  // caller counts kOperation in the counter of its kind; kOther is counted here.
  enum class Use { kOperation, kOther, kObserve };

  GpuCoroutine(Device& device, AddressSpace& space, QueuePool& queues, Executor& executor);

  Context& FindOrCreateContext(ContextId id);
  absl::StatusOr<Stream*> FindStream(StreamId id);
  // Makes the stream's queue on `partition` its current one, and orders the stream with the legacy
  // stream.
  absl::StatusOr<Queue*> Prepare(Stream& stream, Partition& partition, Use use);
  absl::StatusOr<Queue*> PrepareById(StreamId id, Use use);
  absl::Status Migrate(Stream& stream, Partition& partition);
  // Records the context's legacy marker behind the legacy stream's last operation.
  absl::Status MarkLegacy(Context& context);
  absl::Status OrderWithLegacy(Stream& stream, Use use);
  absl::Status SignalContext(Context& context, std::atomic<uint64_t>* fence, uint64_t value);
  // Returns a fence that is signalled when all work of the context is complete.
  absl::StatusOr<FenceLease> FenceOfContext(Context& context);
  absl::StatusOr<FencePoint> PointOf(Stream& stream);
  void ReclaimRetired();
  void CountCopy(uint64_t bytes);

  // An operation is about to be submitted. Only while work is followed.
  void Account(Stream& stream, Nanoseconds estimate);
  void AccountTransfer(Stream& stream, TransferKind kind, uint64_t bytes);
  // Puts a fence behind the stream's work if one is due after an operation, submitted or not.
  void FenceIfDue(Stream& stream);
  void PutFence(Stream& stream);
  void FenceAll();
  // BeforeWait(): the stream is about to wait for something other than the session's own work.
  // NoteWait(): it waits from here on, until `awaited` or the last queued operation is reached.
  void BeforeWait(Stream& stream);
  void NoteWait(Stream& stream);
  // The stream ends. Its parked work counts from this call on.
  void GiveUpParked(Stream& stream);
  // Whether later work on the stream still waits for something other than the session's own work.
  static bool IsParked(Stream& stream);
  bool MakeRoom();
  void ResumeParked();
  void TakeProgress();
  void TakeRead();
  void ForgetWork();
  // These add to the entity's trace: an operation that was timed, and an event at the present time.
  void NoteOperation(const Sample& sample, Nanoseconds time);
  void NotePoint(TraceEvent::Kind kind, const Stream& stream);
  // Times the work that `submit` puts on the queue, if that is wanted. `known` may be null.
  absl::Status Timed(Stream& stream, Queue& queue, const DurationCache::Lookup* known,
                     const Partition& partition, std::string_view name,
                     absl::FunctionRef<absl::Status()> submit);
  absl::StatusOr<Visit*> FindOrMakeVisit(Stream& stream, GpuCoroutine& host);
  // Orders work on `host` between the stream's work before and after it. F: absl::Status(Queue&).
  template <typename F>
  absl::Status RunAt(GpuCoroutine& host, StreamId id, F work);
  Task<absl::Status> AwaitFence(FenceLease fence);

  Device& device_;
  AddressSpace& space_;
  QueuePool& queues_;
  Executor& executor_;
  Binding binding_;
  FencePool fences_;
  const std::array<double, 5> transfer_rates_;  // by TransferKind, bytes per nanosecond
  InFlight in_flight_;
  // Streams with work that has no fence behind it, and streams with parked work. Capacity is
  // reserved for all streams, so that operations do not allocate.
  std::vector<Stream*> unfenced_, parked_;
  std::vector<Sample> samples_;                         // under way
  std::vector<std::unique_ptr<Marker>> timed_markers_;  // for samples
  std::vector<GpuGraph*> unready_;
  FencePoint read_;            // behind the latest copy to the host
  bool read_awaited_ = false;  // the client waits for it
  bool observed_ = false;      // the end of work was asked for since the last operation
  std::vector<GpuCoroutine*> users_;
  uint64_t streams_made_ = 0;

  absl::flat_hash_map<ContextId, std::unique_ptr<Context>> contexts_;
  absl::flat_hash_map<StreamId, std::unique_ptr<Stream>> streams_;
  EventTable events_;
  // Destroyed; their work may not be complete.
  std::vector<std::unique_ptr<Stream>> retired_;

  // Only the owner writes them; reporting threads read them. Relaxed: they publish nothing.
  std::atomic<uint64_t> launches_{0}, graphs_{0}, copies_{0}, fills_{0}, others_{0};
  std::atomic<uint64_t> graph_kernels_{0}, bytes_copied_{0}, migrations_{0};
};

}  // namespace detshare
