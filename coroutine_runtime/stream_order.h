// Keeps the order of a session's streams: which stream waits for which, on which queue.
//
// A logical stream has one physical queue on each partition on which it has run. It moves between
// them at an operation boundary:
//
//     next operation goes to B:    queue on A: Record(stream's marker)
//                                  queue on B: Wait(stream's marker), operation
//
// Streams that are no longer used never move. The two urgencies of a partition count as two places,
// because queues have priorities.
//
// The legacy default stream of a context and the context's blocking streams wait for each other as
// CUDA specifies. A blocking stream is dirty while it has work since the last such wait. Only dirty
// streams take part, so with one stream in use nothing is recorded:
//
//     operation on the legacy stream:  waits for every dirty blocking stream; they become clean
//     operation on a blocking stream:  waits for the legacy stream if that had an operation since;
//                                      the blocking stream becomes dirty
//
// A client takes a synchronous copy from its ordinary memory for complete before it is. So later
// operations of all streams wait for it, also of streams that are not ordered with its stream. The
// barrier of the session on the device is a marker directly behind the last such copy. A stream waits
// for it once, before its next operation.
//
// A session has the queues of few streams for streams that have no work: beyond that, such streams give
// theirs back, and get others with their next operations.
//
// A call that only observes a stream waits for the stream's work, and adds no operation to the
// order: no other stream waits for it later.
//
// Ownership: owns nothing. All arguments of the constructor outlive the object. Threading: the
// coroutine's thread. No call waits for the GPU. Calls for a stream that has a queue on the partition
// and has its fence neither allocate nor lock.
//
// Errors: the space's fault if there is one, then the error of parked work, otherwise the device's.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coroutine_runtime/binding.h"
#include "coroutine_runtime/device.h"
#include "coroutine_runtime/fence_pool.h"
#include "coroutine_runtime/logical_stream.h"
#include "coroutine_runtime/operation_counters.h"
#include "coroutine_runtime/parking.h"
#include "coroutine_runtime/queue_pool.h"
#include "coroutine_runtime/stream_table.h"

namespace detshare {

class StreamOrder {
 public:
  StreamOrder(Device& device, AddressSpace& space, QueuePool& queues, FencePool& fences,
              const Binding& binding, Parking& parking, OperationCounters& counters,
              const StreamTable& streams)
      : device_(device),
        space_(space),
        queues_(queues),
        fences_(fences),
        binding_(binding),
        parking_(parking),
        counters_(counters),
        streams_(streams) {}
  StreamOrder(const StreamOrder&) = delete;
  StreamOrder& operator=(const StreamOrder&) = delete;

  // Orders the stream's next operation on `partition`. The caller submits it to the queue that is
  // returned, before any other call.
  absl::StatusOr<Queue*> Prepare(LogicalStream& stream, Partition& partition);
  // Later operations of all streams come after all operations of this stream so far, the last of
  // which Prepare() has ordered.
  absl::Status OrderAllBehind(LogicalStream& stream);
  // Orders an observation of the stream where the stream is.
  absl::StatusOr<Queue*> Observe(LogicalStream& stream);

  // Whether the stream's next operation waits for something other than the session's own work: after
  // its own earlier operations, or after those of streams for which CUDA lets it wait.
  bool IsParked(LogicalStream& stream) const;
  // Whether there is work for which an observation of the stream must wait.
  static bool HasWork(const LogicalStream& stream) {
    return stream.queue != nullptr || (stream.legacy && !stream.context->dirty.empty());
  }
  // Stores `value` to `fence` (in memory registered with the space) when the work of the stream is
  // complete that is in `queue`, which Prepare() or Observe() has returned.
  absl::Status Signal(LogicalStream& stream, Queue& queue, std::atomic<uint64_t>* fence,
                      uint64_t value);
  // Whether an operation on the stream would begin at once, since all that it waits for is known to
  // be complete. Says no where that is not known without asking the device.
  bool KnownIdle(const LogicalStream& stream) const;
  // Returns a point behind the stream's work, on the stream's fence. Reached at once if there is no
  // work.
  absl::StatusOr<FencePoint> PointOf(LogicalStream& stream);
  // The same behind the operations of the stream itself. For a legacy stream, those of other streams do
  // not count. Orders and moves nothing, so it may be called while an operation waits in the device that
  // Prepare() has ordered: the point is before that operation.
  absl::StatusOr<FencePoint> OwnPointOf(LogicalStream& stream);
  // Stores `value` to `fence` (in memory registered with the space) when all work of the context is
  // complete. At once if there is no work.
  absl::Status SignalContext(LogicalContext& context, std::atomic<uint64_t>* fence, uint64_t value);

 private:
  enum class Use { kOperate, kObserve };

  absl::StatusOr<Queue*> Enter(LogicalStream& stream, Partition& partition, Use use);
  absl::Status Migrate(LogicalStream& stream, Partition& partition);
  absl::StatusOr<PooledQueue> AcquireQueue(LogicalStream& stream, Partition& partition,
                                           int priority);
  // Gives back the queues of streams whose work is complete, except `stream` and the stream that was
  // prepared last, whose operation may not be submitted yet.
  void TakeBackQueues(const LogicalStream& stream);
  // Whether all of the stream's work is complete. Puts a fence behind it if the device does not say.
  bool Complete(LogicalStream& stream);
  absl::Status OrderWithLegacy(LogicalStream& stream, Use use);
  absl::Status AwaitBarrier(LogicalStream& stream);
  // Makes the context's collector one of the session's time-slice group.
  absl::Status MoveCollector(LogicalContext& context);
  // Records the context's legacy marker behind the legacy stream's last operation.
  absl::Status MarkLegacy(LogicalContext& context);

  Device& device_;
  AddressSpace& space_;
  QueuePool& queues_;
  FencePool& fences_;
  const Binding& binding_;
  Parking& parking_;
  OperationCounters& counters_;  // of moves of streams from one partition to another
  const StreamTable& streams_;
  int held_ = 0;  // queues of the streams
  int take_back_at_ =
      0;  // how many queues the streams have when streams without work are looked for
  const LogicalStream* prepared_ = nullptr;  // only compared: the stream may be gone
  std::unique_ptr<Marker> barrier_;          // made for the first one
  uint64_t barriers_ = 0;                    // number of the present one
};

}  // namespace detshare
