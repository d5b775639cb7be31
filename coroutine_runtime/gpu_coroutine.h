// The logical context of one session on one device: its streams, events and their order, whatever
// SMs they run on.
//
// A logical stream has one physical queue on each partition that it has run on, and moves between
// them at an operation boundary:
//
//     Bind(B)            (nothing happens)
//     next operation:    queue on A: Record(stream's marker)  -->  queue on B: Wait(stream's
//     marker), operation
//
// so that its work keeps its order. Streams that are not used any more never move.
//
// The legacy default stream of a context and the context's blocking streams wait for each other as
// CUDA says. Only streams that have work since the last such wait take part: with one stream in use
// there is nothing to record.
//
//     operation on the legacy stream:  waits for every blocking stream that is dirty; they become
//     clean operation on a blocking stream:  waits for the legacy stream if that had an operation
//     since; becomes dirty
//
// Where a kernel or graph runs is up to the scheduler's entity (sched_entity.h), to which the session's work
// is told when it is followed: each operation with the time that it is likely to take
// (durations.h), and fences behind the streams' work now and then, which say how much of it is
// complete (in_flight.h). What waits for its client, or for another session, cannot make progress
// by itself and is told as that. Copies, fills and events stay where their stream is.
//
// A stream that is destroyed finishes its work: its queues go back to the pool after that.
//
// Threading: one thread, the executor's; counters() from any. No call waits for the GPU, and
// operations (launches, copies, fills, signals, event records and waits) neither allocate nor lock
// once a stream has run on the partition. Lifetime: outlives the executor's tasks that use it, and
// the address space: the end of a space waits for what is queued, which still writes to the
// coroutine's fences. The end of the coroutine does not touch the space. So a session ends in the
// order: Abandon() if it was cut short, executor's tasks, libraries, DeviceMemory, address space,
// GpuCoroutine. Errors: unknown ids are CUDA_ERROR_INVALID_HANDLE; a fault of the space is answered
// by every operation; others are the device's.
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
#include "coroutine_runtime/device.h"
#include "coroutine_runtime/durations.h"
#include "coroutine_runtime/executor.h"
#include "coroutine_runtime/fence_pool.h"
#include "coroutine_runtime/in_flight.h"
#include "coroutine_runtime/queue_pool.h"
#include "coroutine_runtime/sched_entity.h"
#include "coroutine_runtime/task.h"

namespace detshare {

// As in proto/ring_abi.h: chosen by the client.
using ContextId = uint32_t;
using StreamId = uint32_t;
using EventId = uint32_t;

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
    uint64_t operations = 0;  // of all kinds: those below, and events, waits, memory operations
    uint64_t launches = 0, graphs = 0, copies = 0, fills = 0;
    uint64_t kernels = 0;  // of launches and in graphs
    uint64_t bytes_copied = 0;
    uint64_t migrations = 0;  // of streams from one partition to another
  };

  // Begins on the whole device. Registers a page of host memory in `space` for its own fences.
  static absl::StatusOr<std::unique_ptr<GpuCoroutine>> Create(Device& device, AddressSpace& space,
                                                              QueuePool& queues,
                                                              Executor& executor);
  ~GpuCoroutine();
  GpuCoroutine(const GpuCoroutine&) = delete;
  GpuCoroutine& operator=(const GpuCoroutine&) = delete;

  Device& device() { return device_; }
  AddressSpace& space() { return space_; }
  Executor& executor() { return executor_; }
  // Where short kernels run at this moment.
  Partition& partition() { return entity_ != nullptr ? entity_->partition() : *partition_; }

  // The context begins with its first object. Ids must be free and not 0
  // (CUDA_ERROR_INVALID_VALUE).
  absl::Status CreateStream(StreamId stream, ContextId context, const StreamOptions& options);
  // The id is free at once; the work goes on. The legacy default stream ends with its context only
  // (CUDA_ERROR_INVALID_HANDLE).
  absl::Status DestroyStream(StreamId stream);

  absl::Status Launch(StreamId stream, Kernel& kernel, const LaunchShape& shape,
                      absl::Span<const std::byte> parameters);
  absl::Status Copy(StreamId stream, const CopyRequest& request);
  absl::Status Fill(StreamId stream, const FillRequest& request);
  absl::Status MemoryOps(StreamId stream, absl::Span<const MemoryOp> operations);

  // Stores `value` to `fence` (in memory registered with the space) when all earlier work of the
  // stream is complete; for the legacy stream, that of the blocking streams, too.
  absl::Status Signal(StreamId stream, std::atomic<uint64_t>* fence, uint64_t value);
  // ... when all work of the context is complete.
  absl::Status SignalContext(ContextId context, std::atomic<uint64_t>* fence, uint64_t value);
  // Holds the stream until *fence >= value.
  absl::Status WaitFence(StreamId stream, const std::atomic<uint64_t>* fence, uint64_t value);
  // Signals `reached`, then holds the stream until *resume >= resume_value.
  absl::Status HostFunction(StreamId stream, std::atomic<uint64_t>* reached, uint64_t reached_value,
                            const std::atomic<uint64_t>* resume, uint64_t resume_value);

  // A point in the stream's work that survives the stream. WaitPoint holds `stream` until it is
  // reached; nothing is queued when that follows from the stream's own order or is known already.
  absl::StatusOr<FencePoint> Point(StreamId stream);
  absl::Status WaitPoint(StreamId stream, const FencePoint& point);

  absl::Status CreateEvent(EventId event, ContextId context, bool timed);
  absl::Status DestroyEvent(EventId event);
  // `fence`: null, or stored to when the event's point is reached.
  absl::Status RecordEvent(EventId event, StreamId stream, std::atomic<uint64_t>* fence,
                           uint64_t value);
  // CUDA_ERROR_NOT_READY while the point at which the event was last recorded is not reached.
  absl::Status QueryEvent(EventId event);
  // Waits for the point at which the event was last recorded before this call. Never recorded: no
  // wait.
  absl::Status WaitEvent(StreamId stream, EventId event);
  // The same for an event of another device of the session.
  absl::Status WaitEventOf(const GpuCoroutine& owner, StreamId stream, EventId event);
  // The same for events that other sessions use, too. `*number`: of the recording.
  absl::Status RecordShared(SharedEvent& event, StreamId stream, uint64_t* number);
  absl::Status WaitShared(StreamId stream, SharedEvent& event);
  // CUDA_ERROR_NOT_READY while either is not reached, CUDA_ERROR_INVALID_HANDLE when not recorded
  // or not timed.
  absl::StatusOr<float> ElapsedMilliseconds(EventId start, EventId end);

  // What nodes of graphs record and wait for: keeps the event's point alive when the event is
  // destroyed. `*recorded` is to be set when it is recorded, and lives as long as the marker.
  absl::StatusOr<std::shared_ptr<Marker>> ShareEvent(EventId event, bool** recorded);

  // For operations of other kinds: one operation of the stream on `partition`, ordered as any.
  // `submit` gets the queue. `known`: what the entity knows about it, null for what takes no time
  // worth counting; `waits`: it may wait for the client or another session.
  absl::Status Submit(StreamId stream, Partition& partition,
                      absl::FunctionRef<absl::Status(Queue&)> submit,
                      const DurationCache::Lookup* known = nullptr, bool waits = false);
  // Tells streams apart that had the same id one after the other.
  absl::StatusOr<uint64_t> SerialOf(StreamId stream);
  // A graph with so many kernels was launched.
  void CountGraph(uint64_t kernels);
  // Another operation was submitted.
  void CountOther();

  // How many SMs a launch needs for it to run at all: cooperative grids and clusters more than one.
  static constexpr int kAllSms = INT32_MAX;
  static int SmsFor(Kernel& kernel, const LaunchShape& shape);
  // How a launch of that duration delays work that goes first in the hardware and begins meanwhile.
  // Only with an entity.
  SchedEntity::Kind KindOf(const Kernel& kernel, const LaunchShape& shape,
                           Nanoseconds duration) const;
  // `wanted`, or where that has fewer SMs than `sms` the smallest partition of the device that has
  // them.
  Partition& Holding(Partition& wanted, int sms);

  // Graphs that are to be made ready for a partition when there is time for it.
  void AddUnready(GpuGraph& graph);
  void RemoveUnready(GpuGraph& graph);
  // Makes one of them ready for one partition, which may take a millisecond. False: there is none.
  bool MakeReady();

  // ---- the session's devices with each other

  // Work of `other` may touch the memory of this device from now on.
  void AddUser(GpuCoroutine& other);
  // Idle(), here and on the devices whose work may touch this one's memory: then memory may go.
  Task<absl::Status> IdleForMemory();
  // Work of `stream` that is done by the device `host`, which has the memory: the copy of a host's
  // memory, or a fill.
  absl::Status CopyAt(GpuCoroutine& host, StreamId stream, const CopyRequest& request);
  absl::Status FillAt(GpuCoroutine& host, StreamId stream, const FillRequest& request);

  // ---- for the scheduler, and the session's worker in its name

  // Without an entity: work from now on runs on `partition` of the same device, ordered after the work
  // before it.
  void Bind(Partition& partition) { partition_ = &partition; }
  // From now on the entity decides; it outlives the coroutine or is detached.
  void Attach(SchedEntity& entity);
  void Detach();
  SchedEntity* entity() { return entity_; }
  // Whether operations are told to the entity.
  bool followed() const { return entity_ != nullptr && entity_->followed(); }

  // Whether the session's next record may be read.
  bool MayRun() { return entity_ == nullptr || entity_->MayRun() || MakeRoom(); }
  // A record is there that may not be read. True when it was throttled for so long that it may.
  bool Throttle() { return entity_ == nullptr || entity_->Throttle(); }
  // Sees how far the work is and tells the scheduler. `pause`: no record has come for some time, so
  // that the end of all work is to be seen.
  void WatchWork(bool pause);
  // Whether WatchWork() may have something to see without any record.
  bool watching_work() const { return !in_flight_.empty() || !samples_.empty(); }

  // Ends when everything that was submitted before the first await is complete; the fault of the
  // space if it has one.
  Task<absl::Status> Idle();
  // The same for one context.
  Task<absl::Status> IdleContext(ContextId context);
  // The context's streams and events are gone at the first await; ends when their work is complete.
  Task<absl::Status> DestroyContext(ContextId context);

  Counters counters() const;

 private:
  struct Context;
  struct Stream;
  struct Event;
  struct Visit;
  struct Sample;
  // What the queue is for. Operations keep the legacy default stream's order; those of a kind that
  // is counted by itself are counted by who submits them, the others here.
  enum class Use { kOperation, kOther, kObserve };

  GpuCoroutine(Device& device, AddressSpace& space, QueuePool& queues, Executor& executor);

  Context& FindOrCreateContext(ContextId id);
  absl::StatusOr<Stream*> FindStream(StreamId id);
  // Makes the stream's queue on `partition` its current one, and orders the stream with the legacy
  // stream.
  absl::StatusOr<Queue*> Prepare(Stream& stream, Partition& partition, Use use);
  absl::StatusOr<Queue*> PrepareById(StreamId id, Use use);
  // Where an operation that is no kernel runs.
  Partition& PlaceOf(Stream& stream);
  absl::Status Migrate(Stream& stream, Partition& partition);
  // Puts the context's legacy marker behind the legacy stream's last operation.
  absl::Status MarkLegacy(Context& context);
  absl::Status OrderWithLegacy(Stream& stream, Use use);
  absl::Status SignalContext(Context& context, std::atomic<uint64_t>* fence, uint64_t value);
  // A fence that is signalled when all work of the context is complete.
  absl::StatusOr<FenceLease> FenceOfContext(Context& context);
  absl::StatusOr<FencePoint> PointOf(Stream& stream);
  void ReclaimRetired();
  void CountCopy(uint64_t bytes);

  // An operation is about to be submitted; only while work is followed.
  void Account(Stream& stream, Nanoseconds estimate);
  void AccountTransfer(Stream& stream, TransferKind kind, uint64_t bytes);
  // ... was, perhaps.
  void FenceIfDue(Stream& stream);
  void PutFence(Stream& stream);
  void FenceAll();
  // The stream is about to wait for what is none of the session's own work, and waits from here on
  // until `awaited`, or what was queued last, is reached.
  void BeforeWait(Stream& stream);
  void NoteWait(Stream& stream);
  // The stream ends: what is parked on it counts from now on.
  void GiveUpParked(Stream& stream);
  // Whether what follows on the stream waits for such a thing still.
  static bool IsParked(Stream& stream);
  bool MakeRoom();
  void ResumeParked();
  void TakeProgress();
  void TakeRead();
  void ForgetWork();
  // Times what `submit` puts on the queue where that is wanted. `known` may be null.
  // Notes in the entity's trace: an operation that was timed, and something that happens now.
  void NoteOperation(const Sample& sample, Nanoseconds time);
  void NotePoint(TraceEvent::Kind kind, const Stream& stream);
  bool traced() const { return entity_ != nullptr && entity_->traced(); }
  bool urgent() const { return entity_ != nullptr && entity_->urgent(); }
  absl::Status Timed(Stream& stream, Queue& queue, const DurationCache::Lookup* known,
                     const Partition& partition, std::string_view name,
                     absl::FunctionRef<absl::Status()> submit);
  absl::StatusOr<Visit*> FindOrMakeVisit(Stream& stream, GpuCoroutine& host);
  // Orders a host's work between the stream's work before and after it. F: absl::Status(Queue&).
  template <typename F>
  absl::Status RunAt(GpuCoroutine& host, StreamId id, F work);
  Task<absl::Status> AwaitFence(FenceLease fence);

  Device& device_;
  AddressSpace& space_;
  QueuePool& queues_;
  Executor& executor_;
  Partition* partition_;  // without an entity
  FencePool fences_;
  const std::array<double, 5> transfer_rates_;  // by TransferKind, bytes a nanosecond
  SchedEntity* entity_ = nullptr;
  InFlight in_flight_;
  // Streams with work behind which there is no fence, and with work that is parked. Room for all
  // streams, so that operations do not allocate.
  std::vector<Stream*> unfenced_, parked_;
  std::vector<Sample> samples_;                         // under way
  std::vector<std::unique_ptr<Marker>> timed_markers_;  // for samples
  std::vector<GpuGraph*> unready_;
  FencePoint read_;            // behind the latest copy to the host
  bool read_awaited_ = false;  // the client waits for it
  bool observed_ = false;      // somebody asked for the end of work since the last operation
  std::vector<GpuCoroutine*> users_;
  uint64_t streams_made_ = 0;

  absl::flat_hash_map<ContextId, std::unique_ptr<Context>> contexts_;
  absl::flat_hash_map<StreamId, std::unique_ptr<Stream>> streams_;
  absl::flat_hash_map<EventId, std::shared_ptr<Event>> events_;  // graphs may share them
  std::vector<std::unique_ptr<Stream>>
      retired_;  // destroyed, perhaps with work that is not complete
  // Markers of destroyed events, [timed]: recording a marker again moves it, so they can be reused
  // while somebody waits.
  std::vector<std::unique_ptr<Marker>> spare_markers_[2];

  // Written by the owner only, read by whoever reports: relaxed, they publish nothing.
  std::atomic<uint64_t> launches_{0}, graphs_{0}, copies_{0}, fills_{0}, others_{0};
  std::atomic<uint64_t> graph_kernels_{0}, bytes_copied_{0}, migrations_{0};
};

}  // namespace detshare
