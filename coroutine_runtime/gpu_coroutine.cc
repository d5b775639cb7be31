#include "coroutine_runtime/gpu_coroutine.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "coroutine_runtime/gpu_graph.h"
#include "coroutine_runtime/shared_event.h"
#include "coroutine_runtime/status_cuda.h"
#include "policy/status_macros.h"

namespace detshare {
namespace {

uint64_t BytesOf(const CopyRequest& request) {
  return request.width * request.height * request.depth;
}

// Identifies the code of a kernel in the durations. A kernel without a code of its own gets a
// number that holds while the session lives.
uint64_t CodeOf(const Kernel& kernel) {
  return kernel.code() != 0 ? kernel.code() : reinterpret_cast<uint64_t>(&kernel);
}

DurationCache::Lookup LookUp(SchedEntity& entity, const AddressSpace& space, const Kernel& kernel,
                             const LaunchShape& shape, absl::Span<const std::byte> parameters) {
  const uint64_t blocks = uint64_t{shape.grid.x} * shape.grid.y * shape.grid.z;
  return entity.Look({CodeOf(kernel), ShapeOf(shape)},
                     {static_cast<uint32_t>(std::min<uint64_t>(blocks, UINT32_MAX)), 0,
                      ContentOf(parameters, space.base(), space.size())});
}

}  // namespace

absl::StatusOr<std::unique_ptr<GpuCoroutine>> GpuCoroutine::Create(Device& device,
                                                                   AddressSpace& space,
                                                                   QueuePool& queues,
                                                                   Parking& parking) {
  std::unique_ptr<GpuCoroutine> coroutine(new GpuCoroutine(device, space, queues, parking));
  // Registers the first page of fences at once, not in the middle of the session's work.
  if (absl::StatusOr<FenceLease> lease = coroutine->fences_.Acquire(); !lease.ok()) {
    return lease.status();
  }
  return coroutine;
}

GpuCoroutine::GpuCoroutine(Device& device, AddressSpace& space, QueuePool& queues, Parking& parking)
    : device_(device),
      space_(space),
      queues_(queues),
      parking_(parking),
      fences_(space),
      binding_(device, space, [this](bool urgent) { return GroupComplete(urgent); }),
      order_(device, space, queues, fences_, binding_, parking, counters_, streams_),
      timer_(device, binding_),
      account_(device, space, binding_, order_, parking, timer_),
      hold_(device, binding_),
      events_(device, space) {}

GpuCoroutine::~GpuCoroutine() = default;

void GpuCoroutine::Detach() {
  if (entity() == nullptr) return;
  account_.Forget();
  hold_.End();
  binding_.Detach();
}

// ---- streams

absl::Status GpuCoroutine::CreateStream(StreamId id, ContextId context,
                                        const StreamOptions& options) {
  DETSHARE_RETURN_IF_ERROR(streams_.Create(id, context, options));
  account_.Reserve(streams_.size());
  return absl::OkStatus();
}

absl::Status GpuCoroutine::DestroyStream(StreamId id) {
  DETSHARE_ASSIGN_OR_RETURN(LogicalStream* const stream, streams_.Find(id));
  if (stream->legacy)
    return CudaError(kCudaErrorInvalidHandle, "a legacy default stream ends with its context");
  account_.End(*stream);
  streams_.Retire(id);
  const absl::Status point = order_.PointOf(*stream).status();
  streams_.Reclaim();
  return space_.fault().ok() ? point : absl::OkStatus();
}

absl::StatusOr<uint64_t> GpuCoroutine::SerialOf(StreamId id) {
  DETSHARE_ASSIGN_OR_RETURN(LogicalStream* const stream, streams_.Find(id));
  return stream->serial;
}

absl::StatusOr<bool> GpuCoroutine::MarkWork(uint64_t serial, Marker& marker) {
  for (const auto& [id, context] : streams_.contexts()) {
    for (LogicalStream* const stream : context->streams) {
      if (stream->serial != serial || stream->queue == nullptr) continue;
      DETSHARE_RETURN_IF_ERROR(stream->queue->Record(marker));
      return true;
    }
  }
  return false;
}

bool GpuCoroutine::GroupComplete(bool urgent) {
  for (const auto& [id, context] : streams_.contexts()) {
    for (LogicalStream* const stream : context->streams) {
      // A stream that has moved leaves work behind.
      for (const PooledQueue& queue : stream->queues) {
        if ((queue.partition() == device_.urgent()) == urgent && !queue.get()->Idle()) return false;
      }
    }
  }
  return true;
}

absl::StatusOr<Queue*> GpuCoroutine::PrepareInPlace(LogicalStream& stream) {
  return order_.Prepare(stream, binding_.ForOther(stream.partition));
}

absl::StatusOr<Queue*> GpuCoroutine::PrepareOther(LogicalStream& stream) {
  absl::StatusOr<Queue*> queue = PrepareInPlace(stream);
  if (queue.ok()) counters_.AddOther();
  return queue;
}

// ---- operations

absl::Status GpuCoroutine::Launch(StreamId id, Kernel& kernel, const LaunchShape& shape,
                                  absl::Span<const std::byte> parameters) {
  DETSHARE_ASSIGN_OR_RETURN(LogicalStream* const stream, streams_.Find(id));
  DurationCache::Lookup known;
  Nanoseconds estimate = 0;
  if (followed()) {
    known = LookUp(*entity(), space_, kernel, shape, parameters);
    estimate = known.operation->Estimate(0);
    account_.Add(*stream, estimate);
    entity()->NoteBound(estimate, known.operation->memory_bound());
  }
  const WorkAccount::Submission submission(account_, known.operation != nullptr);
  Partition& partition = binding_.ForLaunch(kernel, shape, estimate);
  DETSHARE_ASSIGN_OR_RETURN(Queue* const queue, order_.Prepare(*stream, partition));
  const bool hold = hold_.wanted();
  if (hold) [[unlikely]]
    hold_.BeforeKernel(kernel, shape);
  const auto launch = [&](Queue& on) {
    if (!shape.has_priority) [[likely]]
      return on.Launch(space_, kernel, shape, parameters);
    LaunchShape own = shape;
    own.priority = QueuePriority(device_.properties(), shape.priority, binding_.urgent());
    return on.Launch(space_, kernel, own, parameters);
  };
  absl::Status status =
      timer_.Run(*stream, *queue, partition, known.operation != nullptr ? &known : nullptr,
                 binding_.traced() ? std::string_view(kernel.info().name) : std::string_view(),
                 [&] { return launch(*queue); });
  // A tenant sees the limits of the device and never those of a partition.
  if (!status.ok() && BlocksRunTogether(shape) && &partition != &whole() &&
      DoesNotFitPartition(status)) {
    DETSHARE_ASSIGN_OR_RETURN(Queue* const larger, order_.Prepare(*stream, whole()));
    status = launch(*larger);
  }
  if (hold) [[unlikely]]
    hold_.HoldForWork();
  if (known.operation != nullptr) account_.FenceIfDue(*stream);
  if (status.ok()) counters_.AddLaunch();
  return status;
}

absl::Status GpuCoroutine::Copy(StreamId id, const CopyRequest& request) {
  DETSHARE_ASSIGN_OR_RETURN(LogicalStream* const stream, streams_.Find(id));
  const bool reported = followed();
  std::string_view name;
  if (reported) {
    const auto on_device = [&](DeviceAddress address, const ArrayPlace& array) {
      return array.array != nullptr || address - space_.base() < space_.size();
    };
    const bool to_host = !on_device(request.destination, request.destination_array);
    const bool from_host = !on_device(request.source, request.source_array);
    account_.AddTransfer(*stream,
                         to_host     ? TransferKind::kFromDevice
                         : from_host ? TransferKind::kToDevice
                                     : TransferKind::kInside,
                         BytesOf(request),
                         /*result=*/to_host && !from_host);
    if (binding_.traced()) [[unlikely]]
      name = to_host ? "copy to host" : from_host ? "copy from host" : "copy on device";
  }
  DETSHARE_ASSIGN_OR_RETURN(Queue* const queue, PrepareInPlace(*stream));
  absl::Status status = timer_.Run(*stream, *queue, *stream->partition, nullptr, name,
                                   [&] { return queue->Copy(space_, request); });
  if (reported) account_.FenceIfDue(*stream);
  if (status.ok()) counters_.AddCopy(BytesOf(request));
  return status;
}

absl::Status GpuCoroutine::OrderAllBehind(StreamId id) {
  DETSHARE_ASSIGN_OR_RETURN(LogicalStream* const stream, streams_.Find(id));
  if (stream->queue == nullptr) return absl::OkStatus();  // no operation yet
  return order_.OrderAllBehind(*stream);
}

absl::Status GpuCoroutine::Fill(StreamId id, const FillRequest& request) {
  DETSHARE_ASSIGN_OR_RETURN(LogicalStream* const stream, streams_.Find(id));
  const bool reported = followed();
  if (reported) {
    account_.AddTransfer(
        *stream, TransferKind::kFill,
        request.width * request.height * static_cast<uint64_t>(request.element_bytes));
  }
  DETSHARE_ASSIGN_OR_RETURN(Queue* const queue, PrepareInPlace(*stream));
  absl::Status status =
      timer_.Run(*stream, *queue, *stream->partition, nullptr, binding_.traced() ? "fill" : "",
                 [&] { return queue->Fill(space_, request); });
  if (reported) account_.FenceIfDue(*stream);
  if (status.ok()) counters_.AddFill();
  return status;
}

absl::Status GpuCoroutine::Prefetch(StreamId id, const PrefetchRequest& request) {
  DETSHARE_ASSIGN_OR_RETURN(LogicalStream* const stream, streams_.Find(id));
  DETSHARE_ASSIGN_OR_RETURN(Queue* const queue, PrepareOther(*stream));
  return queue->Prefetch(space_, request);
}

absl::Status GpuCoroutine::Submit(StreamId id, Partition& partition,
                                  absl::FunctionRef<absl::Status(Queue&)> submit,
                                  const DurationCache::Lookup* known, bool waits) {
  DETSHARE_ASSIGN_OR_RETURN(LogicalStream* const stream, streams_.Find(id));
  if (known != nullptr) account_.Add(*stream, known->operation->Estimate(0));
  binding_.NoteGroup(partition);
  DETSHARE_ASSIGN_OR_RETURN(Queue* const queue, order_.Prepare(*stream, partition));
  // The kernels of a graph leave no gaps, and some may need every place on the SMs.
  hold_.BeforeGraph();
  // The time of a wait says nothing about the operation.
  absl::Status status = timer_.Run(
      *stream, *queue, partition, waits ? nullptr : known, binding_.traced() ? "graph" : "", [&] {
        const WorkAccount::Submission submission(account_, known != nullptr);
        return submit(*queue);
      });
  binding_.NoteGroup(
      partition);  // again: the device may have been asked while the operation waited
  if (known != nullptr) account_.FenceIfDue(*stream);
  return status;
}

absl::Status GpuCoroutine::MemoryOps(StreamId id, absl::Span<const MemoryOp> operations) {
  DETSHARE_ASSIGN_OR_RETURN(LogicalStream* const stream, streams_.Find(id));
  DETSHARE_ASSIGN_OR_RETURN(Queue* const queue, PrepareOther(*stream));
  const bool waits = std::any_of(operations.begin(), operations.end(),
                                 [](const MemoryOp& operation) { return operation.is_wait(); });
  if (waits) account_.BeforeWait(*stream);
  absl::Status status = queue->MemoryOps(space_, operations);
  if (waits) account_.NoteWait(*stream);
  return status;
}

// ---- fences

absl::Status GpuCoroutine::Signal(StreamId id, std::atomic<uint64_t>* fence, uint64_t value) {
  DETSHARE_ASSIGN_OR_RETURN(LogicalStream* const stream, streams_.Find(id));
  if (!StreamOrder::HasWork(*stream)) {
    fence->store(value, std::memory_order_release);
    return absl::OkStatus();
  }
  account_.NoteObserved();
  if (binding_.traced()) [[unlikely]]
    TracePoint(*entity(), TraceEvent::Kind::kWait, *stream);
  if (order_.KnownIdle(*stream) && space_.fault().ok()) {
    fence->store(value, std::memory_order_release);
    return absl::OkStatus();
  }
  DETSHARE_ASSIGN_OR_RETURN(Queue* const queue, order_.Observe(*stream));
  return order_.Signal(*stream, *queue, fence, value);
}

absl::Status GpuCoroutine::WaitFence(StreamId id, const std::atomic<uint64_t>* fence,
                                     uint64_t value) {
  DETSHARE_ASSIGN_OR_RETURN(LogicalStream* const stream, streams_.Find(id));
  DETSHARE_ASSIGN_OR_RETURN(Queue* const queue, PrepareOther(*stream));
  account_.BeforeWait(*stream);
  absl::Status status = parking_.WaitForClient(*queue, space_, fence, value);
  account_.NoteWait(*stream);
  return status;
}

absl::Status GpuCoroutine::HostFunction(StreamId id, std::atomic<uint64_t>* reached,
                                        uint64_t reached_value, const std::atomic<uint64_t>* resume,
                                        uint64_t resume_value) {
  DETSHARE_ASSIGN_OR_RETURN(LogicalStream* const stream, streams_.Find(id));
  DETSHARE_ASSIGN_OR_RETURN(Queue* const queue, PrepareOther(*stream));
  account_.BeforeWait(*stream);
  DETSHARE_RETURN_IF_ERROR(queue->WriteFence(space_, reached, reached_value));
  absl::Status status = parking_.WaitForClient(*queue, space_, resume, resume_value);
  account_.NoteWait(*stream);
  return status;
}

absl::StatusOr<FencePoint> GpuCoroutine::Point(StreamId id) {
  DETSHARE_ASSIGN_OR_RETURN(LogicalStream* const stream, streams_.Find(id));
  return order_.PointOf(*stream);
}

absl::Status GpuCoroutine::WaitPoint(StreamId id, const FencePoint& point) {
  DETSHARE_ASSIGN_OR_RETURN(LogicalStream* const stream, streams_.Find(id));
  if (point.fence == stream->fence.fence() || point.reached()) return absl::OkStatus();
  DETSHARE_ASSIGN_OR_RETURN(Queue* const queue, PrepareOther(*stream));
  return queue->WaitFence(space_, point.fence, point.value);
}

// ---- events

absl::Status GpuCoroutine::RecordEvent(EventId event_id, StreamId id, std::atomic<uint64_t>* fence,
                                       uint64_t value) {
  DETSHARE_ASSIGN_OR_RETURN(LogicalEvent* const event, events_.Find(event_id));
  DETSHARE_ASSIGN_OR_RETURN(LogicalStream* const stream, streams_.Find(id));
  if (fence != nullptr && !event->timed && order_.KnownIdle(*stream) && space_.fault().ok()) {
    // The event is complete, so it is as if it had never been recorded. Only the time of a timed one
    // comes from the device.
    event->recorded = false;
    event->awaited = {};
    fence->store(value, std::memory_order_release);
    account_.NoteObserved();
    counters_.AddOther();
    return absl::OkStatus();
  }
  DETSHARE_ASSIGN_OR_RETURN(Queue* const queue, PrepareOther(*stream));
  DETSHARE_RETURN_IF_ERROR(queue->Record(*event->marker));
  event->recorded = true;
  event->awaited = stream->IsParked() ? stream->work.awaited : FencePoint{};
  if (fence == nullptr) return absl::OkStatus();
  account_.NoteObserved();
  return order_.Signal(*stream, *queue, fence, value);
}

absl::Status GpuCoroutine::WaitEvent(StreamId stream, EventId event) {
  return WaitEventOf(*this, stream, event);
}

absl::Status GpuCoroutine::WaitEventOf(const GpuCoroutine& owner, StreamId id, EventId event_id) {
  DETSHARE_ASSIGN_OR_RETURN(const LogicalEvent* const event, owner.events_.Find(event_id));
  DETSHARE_ASSIGN_OR_RETURN(LogicalStream* const stream, streams_.Find(id));
  DETSHARE_ASSIGN_OR_RETURN(Queue* const queue, PrepareOther(*stream));
  if (!event->recorded) return absl::OkStatus();
  const bool parks = !event->awaited.reached();
  if (parks) account_.BeforeWait(*stream);
  absl::Status status = queue->Wait(*event->marker);
  if (parks) account_.NoteWait(*stream, event->awaited);
  return status;
}

absl::StatusOr<std::shared_ptr<SharedRecording>> GpuCoroutine::RecordShared(SharedEvent& event,
                                                                            StreamId id) {
  DETSHARE_ASSIGN_OR_RETURN(LogicalStream* const stream, streams_.Find(id));
  DETSHARE_ASSIGN_OR_RETURN(Queue* const queue, PrepareOther(*stream));
  const bool urgent = binding_.InUrgentGroup();
  if (parking_.Keeps(*queue)) return event.RecordKept(urgent);
  return event.Record(device_, *queue, urgent);
}

absl::Status GpuCoroutine::WaitShared(StreamId id, SharedEvent& event) {
  DETSHARE_ASSIGN_OR_RETURN(LogicalStream* const stream, streams_.Find(id));
  DETSHARE_ASSIGN_OR_RETURN(Queue* const queue, PrepareOther(*stream));
  account_.BeforeWait(*stream);
  DETSHARE_ASSIGN_OR_RETURN(const std::shared_ptr<SharedRecording> recording, event.Wait(*queue));
  absl::Status status;
  if (recording != nullptr) {
    binding_.Await(recording);
    hold_.EndForOthers();
    if (!recording->marked())
      status = parking_.WaitForOthers(*queue, space_, {recording, &recording->reached()}, 1);
  }
  account_.NoteWait(*stream);
  return status;
}

// ---- graphs

void GpuCoroutine::AddUnready(GpuGraph& graph) {
  if (std::find(unready_.begin(), unready_.end(), &graph) == unready_.end())
    unready_.push_back(&graph);
}

void GpuCoroutine::RemoveUnready(GpuGraph& graph) { std::erase(unready_, &graph); }

bool GpuCoroutine::MakeReady() {
  if (unready_.empty()) return false;
  GpuGraph* const graph = unready_.back();
  if (!graph->MakeOneReady()) RemoveUnready(*graph);
  return true;
}

// ---- between the devices of the session

void GpuCoroutine::AddUser(GpuCoroutine& other) {
  if (&other != this && std::find(users_.begin(), users_.end(), &other) == users_.end())
    users_.push_back(&other);
}

Task<absl::Status> GpuCoroutine::IdleForMemory() {
  absl::Status result = co_await Idle();
  // By index: a user may be added during a wait.
  for (size_t i = 0; i < users_.size(); ++i) {
    absl::Status status = co_await users_[i]->Idle();
    result.Update(status);
  }
  co_return result;
}

absl::StatusOr<PeerQueue*> GpuCoroutine::FindOrCreatePeerQueue(LogicalStream& stream,
                                                               GpuCoroutine& host) {
  Partition& partition = host.partition();
  for (PeerQueue& peer : stream.peers) {
    if (peer.IsAt(host.queues_) && host.IsInGroup(peer.partition())) return &peer;
  }
  const int priority = QueuePriority(host.device_.properties(), stream.priority, binding_.urgent());
  DETSHARE_ASSIGN_OR_RETURN(PeerQueue peer, PeerQueue::Create(device_, host.queues_, partition,
                                                              priority, host.space_, parking_));
  stream.peers.push_back(std::move(peer));
  return &stream.peers.back();
}

absl::Status GpuCoroutine::RunAt(GpuCoroutine& host, StreamId id,
                                 absl::FunctionRef<absl::Status(Queue&)> submit) {
  DETSHARE_ASSIGN_OR_RETURN(LogicalStream* const stream, streams_.Find(id));
  DETSHARE_ASSIGN_OR_RETURN(Queue* const home, PrepareInPlace(*stream));
  DETSHARE_ASSIGN_OR_RETURN(PeerQueue* const peer, FindOrCreatePeerQueue(*stream, host));
  host.AddUser(*this);
  return peer->Run(*home, submit);
}

absl::Status GpuCoroutine::CopyAt(GpuCoroutine& host, StreamId stream, const CopyRequest& request) {
  absl::Status status =
      RunAt(host, stream, [&](Queue& queue) { return queue.Copy(host.space_, request); });
  if (status.ok()) counters_.AddCopy(BytesOf(request));
  return status;
}

absl::Status GpuCoroutine::FillAt(GpuCoroutine& host, StreamId stream, const FillRequest& request) {
  absl::Status status =
      RunAt(host, stream, [&](Queue& queue) { return queue.Fill(host.space_, request); });
  if (status.ok()) counters_.AddFill();
  return status;
}

// ---- contexts

absl::Status GpuCoroutine::SignalContext(ContextId id, std::atomic<uint64_t>* fence,
                                         uint64_t value) {
  if (LogicalContext* const context = streams_.FindContext(id); context != nullptr) {
    return SignalAll(*context, fence, value);
  }
  fence->store(value, std::memory_order_release);
  return absl::OkStatus();
}

absl::Status GpuCoroutine::SignalAll(LogicalContext& context, std::atomic<uint64_t>* fence,
                                     uint64_t value) {
  account_.NoteObserved();
  streams_.Reclaim();
  return order_.SignalContext(context, fence, value);
}

absl::StatusOr<FenceLease> GpuCoroutine::FenceOf(LogicalContext& context) {
  absl::StatusOr<FenceLease> lease = fences_.Acquire();
  if (!lease.ok()) return lease;
  const uint64_t value = lease->Next();
  DETSHARE_RETURN_IF_ERROR(SignalAll(context, lease->fence(), value));
  return lease;
}

Task<absl::Status> GpuCoroutine::AwaitFence(FenceLease fence) {
  absl::Status result = co_await AwaitPoint(fence.point());
  co_return result;
}

Task<absl::Status> GpuCoroutine::AwaitPoint(FencePoint point) {
  const bool reached = co_await executor().Reached(point.fence, point.value);
  absl::Status fault = space_.fault();
  if (reached || !fault.ok()) co_return fault;
  co_return CudaError(kCudaErrorUnknown, "the session's work was lost");
}

Task<absl::Status> GpuCoroutine::Idle() {
  std::vector<FenceLease> fences;
  for (auto& [id, context] : streams_.contexts()) {
    DETSHARE_CO_ASSIGN_OR_RETURN(FenceLease fence, FenceOf(*context));
    fences.push_back(std::move(fence));
  }
  const std::vector<FencePoint> ending = ending_;
  absl::Status result;
  for (FenceLease& fence : fences) {
    absl::Status status = co_await AwaitFence(std::move(fence));
    result.Update(status);
  }
  for (const FencePoint point : ending) {
    absl::Status status = co_await AwaitPoint(point);
    result.Update(status);
  }
  co_return result;
}

Task<absl::Status> GpuCoroutine::IdleContext(ContextId id) {
  LogicalContext* const context = streams_.FindContext(id);
  if (context == nullptr) co_return absl::OkStatus();
  DETSHARE_CO_ASSIGN_OR_RETURN(FenceLease fence, FenceOf(*context));
  absl::Status result = co_await AwaitFence(std::move(fence));
  co_return result;
}

Task<absl::Status> GpuCoroutine::DestroyContext(ContextId id) {
  events_.DestroyAllOf(id);
  LogicalContext* const context = streams_.FindContext(id);
  if (context == nullptr) co_return absl::OkStatus();
  // Before the context's fence, which must be behind all other fences of the streams.
  for (LogicalStream* const stream : context->streams) account_.End(*stream);
  absl::StatusOr<FenceLease> fence = FenceOf(*context);
  // No call finds the streams any more. This coroutine frame keeps them until their work is
  // complete.
  StreamTable::Ended ended = streams_.End(id);
  if (!fence.ok()) co_return fence.status();
  const FencePoint point = fence->point();
  ending_.push_back(point);
  absl::Status result = co_await AwaitFence(*std::move(fence));
  ending_.erase(std::find(ending_.begin(), ending_.end(), point));
  if (result.ok()) ended.ReturnQueues();
  co_return result;
}

}  // namespace detshare
