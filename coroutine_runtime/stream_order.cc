#include "coroutine_runtime/stream_order.h"

#include <algorithm>
#include <utility>

#include "policy/status_macros.h"

namespace detshare {
namespace {

// So many queues a session keeps for its streams, whether they have work or not.
constexpr int kKeptQueues = 256;

}  // namespace

absl::StatusOr<Queue*> StreamOrder::Prepare(LogicalStream& stream, Partition& partition) {
  prepared_ = &stream;
  return Enter(stream, partition, Use::kOperate);
}

absl::StatusOr<Queue*> StreamOrder::Observe(LogicalStream& stream) {
  Partition& place = stream.partition != nullptr ? *stream.partition : binding_.partition();
  return Enter(stream, place, Use::kObserve);
}

absl::StatusOr<Queue*> StreamOrder::Enter(LogicalStream& stream, Partition& partition, Use use) {
  DETSHARE_RETURN_IF_ERROR(space_.fault());
  DETSHARE_RETURN_IF_ERROR(parking_.error());
  if (stream.partition != &partition || stream.urgent != binding_.urgent()) {
    DETSHARE_RETURN_IF_ERROR(Migrate(stream, partition));
  }
  DETSHARE_RETURN_IF_ERROR(OrderWithLegacy(stream, use));
  stream.uncollected = true;
  ++stream.entries;
  if (use == Use::kObserve) return stream.queue;
  if (stream.seen_barrier != barriers_) [[unlikely]] {
    DETSHARE_RETURN_IF_ERROR(AwaitBarrier(stream));
  }
  LogicalContext& context = *stream.context;
  if (stream.legacy) {
    ++context.legacy_operations;
  } else if (stream.blocking && !stream.dirty) {
    stream.dirty = true;
    context.dirty.push_back(&stream);
  }
  return stream.queue;
}

absl::Status StreamOrder::Signal(LogicalStream& stream, Queue& queue, std::atomic<uint64_t>* fence,
                                 uint64_t value) {
  stream.observed = {fence, value};
  stream.observed_entries = stream.entries;
  return queue.WriteFence(space_, fence, value);
}

bool StreamOrder::KnownIdle(const LogicalStream& stream) const {
  if (stream.observed_entries != stream.entries || stream.observed.fence == nullptr ||
      !stream.observed.reached() || stream.seen_barrier != barriers_) {
    return false;
  }
  const LogicalContext& context = *stream.context;
  return stream.legacy ? context.dirty.empty()
                       : !stream.blocking || stream.seen_legacy == context.legacy_operations;
}

bool StreamOrder::IsParked(LogicalStream& stream) const {
  if (stream.IsParked()) return true;
  const LogicalContext& context = *stream.context;
  LogicalStream* before = nullptr;
  if (stream.legacy) {
    const auto parked = std::find_if(context.dirty.begin(), context.dirty.end(),
                                     [](LogicalStream* other) { return other->IsParked(); });
    if (parked != context.dirty.end()) before = *parked;
  } else if (stream.blocking && stream.seen_legacy != context.legacy_operations) {
    before = context.legacy->IsParked() ? context.legacy : nullptr;
  }
  if (before == nullptr) return false;
  stream.work.awaited = before->work.awaited;
  return true;
}

absl::Status StreamOrder::OrderAllBehind(LogicalStream& stream) {
  if (barrier_ == nullptr) {
    DETSHARE_ASSIGN_OR_RETURN(barrier_, device_.CreateMarker(/*timed=*/false));
  }
  DETSHARE_RETURN_IF_ERROR(stream.queue->Record(*barrier_));
  // The stream's last operation came after the barrier before, so this one includes that one.
  stream.seen_barrier = ++barriers_;
  if (stream.legacy) stream.context->legacy_barrier = barriers_;
  return absl::OkStatus();
}

absl::Status StreamOrder::AwaitBarrier(LogicalStream& stream) {
  // A blocking stream has just waited for the legacy stream.
  if (!stream.blocking || stream.context->legacy_barrier != barriers_) {
    DETSHARE_RETURN_IF_ERROR(stream.queue->Wait(*barrier_));
  }
  stream.seen_barrier = barriers_;
  return absl::OkStatus();
}

absl::Status StreamOrder::Migrate(LogicalStream& stream, Partition& partition) {
  Queue* target = nullptr;
  const bool urgent = binding_.urgent();
  const int priority = QueuePriority(device_.properties(), stream.priority, urgent);
  for (PooledQueue& queue : stream.queues) {
    if (queue.partition() == &partition && queue.priority() == priority) target = queue.get();
  }
  if (target == nullptr) {
    DETSHARE_ASSIGN_OR_RETURN(PooledQueue queue, AcquireQueue(stream, partition, priority));
    stream.queues.push_back(std::move(queue));
    target = stream.queues.back().get();
  }
  if (stream.marker == nullptr) {
    DETSHARE_ASSIGN_OR_RETURN(stream.marker, device_.CreateMarker(/*timed=*/false));
  }
  // A queue of the other time-slice group would first need a turn of the hardware to reach the
  // marker.
  const bool other_group = stream.queue != nullptr &&
                           binding_.IsInGroup(*stream.partition) != binding_.IsInGroup(partition);
  if (stream.queue != nullptr && stream.queue != target && !(other_group && stream.queue->Idle())) {
    DETSHARE_RETURN_IF_ERROR(stream.queue->Record(*stream.marker));
    DETSHARE_RETURN_IF_ERROR(target->Wait(*stream.marker));
  }
  if (stream.resigned) {
    DETSHARE_RETURN_IF_ERROR(target->Wait(*stream.marker));
    stream.resigned = false;
  }
  const bool moved = stream.queue != nullptr && stream.partition != &partition;
  const TraceEvent::Migration cause = !other_group ? TraceEvent::kOtherPartition
                                      : &partition == device_.urgent()
                                          ? TraceEvent::kPreempts
                                          : TraceEvent::kBackToOrdinary;
  stream.queue = target;
  stream.partition = &partition;
  stream.urgent = urgent;
  if (!moved) return absl::OkStatus();
  counters_.AddMigration();
  if (binding_.traced()) [[unlikely]]
    TracePoint(*binding_.entity(), TraceEvent::Kind::kMigration, stream, cause);
  return absl::OkStatus();
}

absl::StatusOr<PooledQueue> StreamOrder::AcquireQueue(LogicalStream& stream, Partition& partition,
                                                      int priority) {
  const auto acquire = [&] {
    return PooledQueue::Acquire(queues_, partition, priority, space_, parking_, &held_);
  };
  if (held_ >= std::max(take_back_at_, kKeptQueues)) {
    TakeBackQueues(stream);
  }
  absl::StatusOr<PooledQueue> queue = acquire();
  // Where there are no more, the stream needs none in the partitions that it has left.
  if (!queue.ok() && stream.ReturnIdleQueues()) queue = acquire();
  if (!queue.ok()) {
    TakeBackQueues(stream);
    queue = acquire();
  }
  return queue;
}

bool StreamOrder::Complete(LogicalStream& stream) {
  const auto idle = [](const PooledQueue& queue) { return queue.get()->Idle(); };
  if (std::all_of(stream.queues.begin(), stream.queues.end(), idle)) return true;
  if (!stream.fence || stream.fenced_entries != stream.entries) {
    if (!stream.fence) {
      absl::StatusOr<FenceLease> fence = fences_.Acquire();
      if (!fence.ok()) return false;
      stream.fence = *std::move(fence);
    }
    const uint64_t value = stream.fence.Next();
    if (!stream.queue->WriteFence(space_, stream.fence.fence(), value).ok()) return false;
    stream.fenced_entries = stream.entries;
  }
  return stream.fence.point().reached();
}

void StreamOrder::TakeBackQueues(const LogicalStream& stream) {
  if (!space_.fault().ok()) return;
  for (const auto& [id, context] : streams_.contexts()) {
    for (LogicalStream* const other : context->streams) {
      // Retired streams give their queues back themselves, and a context has one legacy stream.
      if (other->queue == nullptr || other->retired || other->legacy || other == &stream ||
          other == prepared_ || !Complete(*other) || !other->queue->Record(*other->marker).ok()) {
        continue;
      }
      other->ReturnQueues();
      other->queues.clear();
      other->peers.clear();
      other->queue = nullptr;
      other->partition = nullptr;
      other->resigned = true;
      other->uncollected = false;
      if (std::exchange(other->dirty, false)) std::erase(context->dirty, other);
    }
  }
  // As many again before the next look, so that looks cost little for each queue.
  take_back_at_ = 2 * held_;
}

absl::Status StreamOrder::OrderWithLegacy(LogicalStream& stream, Use use) {
  LogicalContext& context = *stream.context;
  if (stream.legacy) {
    if (context.dirty.empty()) return absl::OkStatus();
    // Later operations of blocking streams wait for the legacy stream's operations, but not for the
    // waits of this observation.
    if (use == Use::kObserve) {
      DETSHARE_RETURN_IF_ERROR(MarkLegacy(context));
    }
    while (!context.dirty.empty()) {
      LogicalStream& other = *context.dirty.back();
      DETSHARE_RETURN_IF_ERROR(other.queue->Record(*other.marker));
      DETSHARE_RETURN_IF_ERROR(stream.queue->Wait(*other.marker));
      other.dirty = false;
      context.dirty.pop_back();
    }
    return absl::OkStatus();
  }
  // An observation of a blocking stream does not include the legacy stream's work.
  if (!stream.blocking || use == Use::kObserve) return absl::OkStatus();
  if (stream.seen_legacy == context.legacy_operations) return absl::OkStatus();
  DETSHARE_RETURN_IF_ERROR(MarkLegacy(context));
  DETSHARE_RETURN_IF_ERROR(stream.queue->Wait(*context.legacy_marker));
  stream.seen_legacy = context.legacy_operations;
  return absl::OkStatus();
}

absl::Status StreamOrder::MarkLegacy(LogicalContext& context) {
  if (context.legacy_marked == context.legacy_operations) return absl::OkStatus();
  if (context.legacy_marker == nullptr) {
    DETSHARE_ASSIGN_OR_RETURN(context.legacy_marker, device_.CreateMarker(/*timed=*/false));
  }
  // The legacy stream had operations, so it exists and has a queue.
  DETSHARE_RETURN_IF_ERROR(context.legacy->queue->Record(*context.legacy_marker));
  context.legacy_marked = context.legacy_operations;
  return absl::OkStatus();
}

absl::StatusOr<FencePoint> StreamOrder::PointOf(LogicalStream& stream) {
  if (!HasWork(stream)) return FencePoint{};
  DETSHARE_RETURN_IF_ERROR(Observe(stream).status());
  return OwnPointOf(stream);
}

absl::StatusOr<FencePoint> StreamOrder::OwnPointOf(LogicalStream& stream) {
  if (stream.queue == nullptr) return FencePoint{};
  DETSHARE_RETURN_IF_ERROR(space_.fault());
  DETSHARE_RETURN_IF_ERROR(parking_.error());
  if (!stream.fence) {
    DETSHARE_ASSIGN_OR_RETURN(stream.fence, fences_.Acquire());
  }
  stream.uncollected = true;
  ++stream.entries;
  const uint64_t value = stream.fence.Next();
  DETSHARE_RETURN_IF_ERROR(stream.queue->WriteFence(space_, stream.fence.fence(), value));
  return stream.fence.point();
}

absl::Status StreamOrder::SignalContext(LogicalContext& context, std::atomic<uint64_t>* fence,
                                        uint64_t value) {
  DETSHARE_RETURN_IF_ERROR(space_.fault());
  if (context.collector == nullptr) {
    LogicalStream* only = nullptr;
    int used = 0;
    for (LogicalStream* const stream : context.streams) {
      if (stream->queue == nullptr) continue;
      ++used;
      only = stream;
    }
    if (used == 0) {
      fence->store(value, std::memory_order_release);
      return absl::OkStatus();
    }
    if (used == 1 && !only->retired) {
      only->fenced_entries = 0;  // the stream's fence is before this one
      return only->queue->WriteFence(space_, fence, value);
    }
  }
  // Once there is a collector, collectors write every fence, so that the fences of one context are
  // written in order.
  DETSHARE_RETURN_IF_ERROR(MoveCollector(context));
  Queue& collector = *context.collector->get();
  for (LogicalStream* const stream : context.streams) {
    if (!stream->uncollected) continue;
    DETSHARE_RETURN_IF_ERROR(stream->queue->Record(*stream->marker));
    DETSHARE_RETURN_IF_ERROR(collector.Wait(*stream->marker));
    stream->uncollected = false;
  }
  return collector.WriteFence(space_, fence, value);
}

absl::Status StreamOrder::MoveCollector(LogicalContext& context) {
  Partition& whole = binding_.whole();
  PooledQueue* const before = context.collector;
  if (before != nullptr && before->partition() == &whole) return absl::OkStatus();
  PooledQueue& target = context.collectors[&whole == device_.urgent()];
  if (target.get() == nullptr) {
    DETSHARE_ASSIGN_OR_RETURN(target, PooledQueue::Acquire(queues_, whole, 0, space_, parking_));
  }
  if (context.collector_marker == nullptr) {
    DETSHARE_ASSIGN_OR_RETURN(context.collector_marker, device_.CreateMarker(/*timed=*/false));
  }
  if (before != nullptr && !before->get()->Idle()) {
    DETSHARE_RETURN_IF_ERROR(before->get()->Record(*context.collector_marker));
    DETSHARE_RETURN_IF_ERROR(target.get()->Wait(*context.collector_marker));
  }
  context.collector = &target;
  return absl::OkStatus();
}

}  // namespace detshare
