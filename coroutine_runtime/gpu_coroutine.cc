#include "coroutine_runtime/gpu_coroutine.h"

#include <algorithm>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "coroutine_runtime/device_attributes.h"
#include "coroutine_runtime/gpu_graph.h"
#include "coroutine_runtime/shared_event.h"
#include "coroutine_runtime/status_cuda.h"
#include "policy/status_macros.h"

namespace detshare {
namespace {

// What a client can make the daemon hold, at most.
constexpr size_t kMaxContexts = 1024;
constexpr size_t kMaxStreams = 65536;

// Operations that are timed at a time.
constexpr size_t kMaxSamples = 32;
// ... while a trace is taken.
constexpr size_t kMaxTraced = 2048;

absl::Status UnknownHandle(const char* what) { return CudaError(kCudaErrorInvalidHandle, what); }

void Count(std::atomic<uint64_t>& counter, uint64_t by) {
  counter.store(counter.load(std::memory_order_relaxed) + by, std::memory_order_relaxed);
}

// What stands for a kernel whose code was never named: it is told apart while the session lives.
uint64_t CodeOf(const Kernel& kernel) {
  return kernel.code() != 0 ? kernel.code() : reinterpret_cast<uint64_t>(&kernel);
}

// Bytes a nanosecond by TransferKind. What the card's memory can do follows from its clock and its
// width, of which three quarters are reached; a copy inside of it reads and writes. The bus is
// taken for one of PCI Express 5 and the link between cards for four links of NVLink, since no
// attribute tells.
std::array<double, 5> TransferRates(const DeviceProperties& properties) {
  constexpr int kMemoryClockKhz = 36, kBusWidthBits = 37;  // CUdevice_attribute
  constexpr double kReached = 0.75, kUnknown = 1'000, kBus = 50, kLink = 200;
  const auto attribute = [&](int number) {
    return static_cast<double>(AttributeOf(properties, number));
  };
  // Twice a clock.
  double memory = attribute(kMemoryClockKhz) * 2e3 * attribute(kBusWidthBits) / 8 / 1e9 * kReached;
  if (memory <= 0) memory = kUnknown;
  return {kBus, kBus, memory / 2, kLink, memory};
}

}  // namespace

// A stream's work on another device: `stream --arrived--> queue of the host --done--> stream`. Each
// stream has a queue of its own there, so that streams do not wait for each other.
struct GpuCoroutine::Visit {
  GpuCoroutine* host = nullptr;
  PooledQueue queue;
  std::unique_ptr<Marker> arrived, done;
};

// Two markers around an operation. The time is asked for when the stream's next fence is reached.
struct GpuCoroutine::Sample {
  Stream* stream = nullptr;  // null: the point below is behind it
  FencePoint point;
  OperationDurations* operation = nullptr;  // null: it is timed for a trace only
  int size_class = 0;
  bool contended = false;
  std::unique_ptr<Marker> begin, end;
  TraceEvent event;  // with a name where it is traced
};

struct GpuCoroutine::Stream {
  StreamId id = 0;
  uint64_t serial = 0;
  Context* context = nullptr;
  bool legacy = false;
  bool blocking = false;  // ordered with the legacy stream; the legacy stream itself is neither
  bool retired = false;
  int priority = 0;

  // Where the last operation went; null before the first one.
  Queue* queue = nullptr;
  Partition* partition = nullptr;
  bool urgent = false;
  // One for each partition and urgency that the stream has run with.
  absl::InlinedVector<PooledQueue, 2> queues;
  std::unique_ptr<Marker> marker;  // with the first queue

  bool dirty = false;        // has operations that the legacy stream has not waited for
  uint64_t seen_legacy = 0;  // the legacy operation that the stream has waited for
  bool uncollected = false;  // has work that the context's collector has not waited for
  FenceLease fence;          // signalled by Point() and when the stream ends
  // Device time, and number, of operations behind which there is no fence yet.
  Nanoseconds unfenced = 0;
  int unfenced_operations = 0;
  bool reads = false;      // a copy to the host is among them
  Nanoseconds parked = 0;  // device time of what cannot begin before `awaited`
  FencePoint awaited;      // behind the latest wait for the client or another session
  std::vector<std::unique_ptr<Visit>> visits;
};

struct GpuCoroutine::Context {
  ContextId id = 0;
  std::vector<Stream*> streams;  // retired ones, too, until they are reclaimed

  Stream* legacy = nullptr;
  uint64_t legacy_operations = 0;
  // Stands behind the legacy stream's operation number `legacy_marked`. Not the stream's own
  // marker: what the stream waited for since, to be observed or to move, is no business of the
  // blocking streams.
  std::unique_ptr<Marker> legacy_marker;
  uint64_t legacy_marked = 0;
  std::vector<Stream*> dirty;  // room for all of streams, so that operations do not allocate

  // Waits for the streams when somebody waits for the whole context, so that no stream has to wait
  // for another.
  PooledQueue collector;
};

absl::StatusOr<std::unique_ptr<GpuCoroutine>> GpuCoroutine::Create(Device& device,
                                                                   AddressSpace& space,
                                                                   QueuePool& queues,
                                                                   Executor& executor) {
  std::unique_ptr<GpuCoroutine> coroutine(new GpuCoroutine(device, space, queues, executor));
  // The first page of fences now rather than in the middle of the session's work.
  if (absl::StatusOr<FenceLease> lease = coroutine->fences_.Acquire(); !lease.ok()) {
    return lease.status();
  }
  return coroutine;
}

GpuCoroutine::GpuCoroutine(Device& device, AddressSpace& space, QueuePool& queues,
                           Executor& executor)
    : device_(device),
      space_(space),
      queues_(queues),
      executor_(executor),
      binding_(device),
      fences_(space),
      transfer_rates_(TransferRates(device.properties())),
      events_(device, space) {}

GpuCoroutine::~GpuCoroutine() = default;

// ---- objects
// ---------------------------------------------------------------------------------------------------------

GpuCoroutine::Context& GpuCoroutine::FindOrCreateContext(ContextId id) {
  std::unique_ptr<Context>& context = contexts_[id];
  if (context == nullptr) {
    context = std::make_unique<Context>();
    context->id = id;
  }
  return *context;
}

absl::StatusOr<GpuCoroutine::Stream*> GpuCoroutine::FindStream(StreamId id) {
  const auto found = streams_.find(id);
  if (found == streams_.end()) return UnknownHandle("no such stream");
  return found->second.get();
}

absl::Status GpuCoroutine::CreateStream(StreamId id, ContextId context_id,
                                        const StreamOptions& options) {
  if (id == 0 || context_id == 0 || streams_.contains(id)) {
    return CudaError(kCudaErrorInvalidValue, "the id of a new stream is 0 or in use");
  }
  ReclaimRetired();
  if (streams_.size() + retired_.size() >= kMaxStreams ||
      (contexts_.size() >= kMaxContexts && !contexts_.contains(context_id))) {
    return CudaError(kCudaErrorOutOfMemory, "too many streams or contexts");
  }
  Context& context = FindOrCreateContext(context_id);
  if (options.legacy_default && context.legacy != nullptr) {
    return CudaError(kCudaErrorInvalidValue, "the context has its legacy default stream already");
  }
  auto stream = std::make_unique<Stream>();
  stream->id = id;
  stream->serial = ++streams_made_;
  stream->context = &context;
  stream->legacy = options.legacy_default;
  stream->blocking = !options.legacy_default && !options.non_blocking;
  stream->priority = options.priority;
  if (stream->legacy) context.legacy = stream.get();
  context.streams.push_back(stream.get());
  context.dirty.reserve(context.streams.capacity());
  for (std::vector<Stream*>* all : {&unfenced_, &parked_}) {
    if (all->capacity() <= streams_.size()) all->reserve(2 * streams_.size() + 16);
  }
  streams_.emplace(id, std::move(stream));
  return absl::OkStatus();
}

absl::Status GpuCoroutine::DestroyStream(StreamId id) {
  const auto found = streams_.find(id);
  if (found == streams_.end() || found->second->legacy) return UnknownHandle("no such stream");
  FenceAll();
  std::unique_ptr<Stream> stream = std::move(found->second);
  streams_.erase(found);
  GiveUpParked(*stream);
  stream->retired = true;
  // Without a point (the device is lost) the stream stays until its context or the coroutine ends.
  const absl::Status point = PointOf(*stream).status();
  retired_.push_back(std::move(stream));
  ReclaimRetired();
  return space_.fault().ok() ? point : absl::OkStatus();
}

void GpuCoroutine::ReclaimRetired() {
  const auto reclaim = [](std::unique_ptr<Stream>& stream) {
    if (stream->queue != nullptr && (!stream->fence || !stream->fence.point().reached())) {
      return false;
    }
    for (PooledQueue& queue : stream->queues) queue.ReturnIdle();
    for (std::unique_ptr<Visit>& visit : stream->visits) visit->queue.ReturnIdle();
    Context& context = *stream->context;
    std::erase(context.streams, stream.get());
    std::erase(context.dirty, stream.get());
    return true;
  };
  retired_.erase(std::remove_if(retired_.begin(), retired_.end(), reclaim), retired_.end());
}

// ---- order
// -----------------------------------------------------------------------------------------------------------

absl::Status GpuCoroutine::Migrate(Stream& stream, Partition& partition) {
  Queue* target = nullptr;
  const bool urgent = binding_.urgent();
  const int priority = QueuePriority(device_.properties(), stream.priority, urgent);
  for (PooledQueue& queue : stream.queues) {
    if (queue.partition() == &partition && queue.priority() == priority) target = queue.get();
  }
  if (target == nullptr) {
    DETSHARE_ASSIGN_OR_RETURN(PooledQueue queue,
                              PooledQueue::Acquire(queues_, partition, priority));
    stream.queues.push_back(std::move(queue));
    target = stream.queues.back().get();
  }
  if (stream.marker == nullptr) {
    DETSHARE_ASSIGN_OR_RETURN(stream.marker, device_.CreateMarker(/*timed=*/false));
  }
  if (stream.queue != nullptr && stream.queue != target) {
    DETSHARE_RETURN_IF_ERROR(stream.queue->Record(*stream.marker));
    DETSHARE_RETURN_IF_ERROR(target->Wait(*stream.marker));
  }
  const bool moved = stream.queue != nullptr && stream.partition != &partition;
  if (moved) Count(migrations_, 1);
  stream.queue = target;
  stream.partition = &partition;
  stream.urgent = urgent;
  if (moved && binding_.traced()) [[unlikely]]
    NotePoint(TraceEvent::Kind::kMigration, stream);
  return absl::OkStatus();
}

absl::Status GpuCoroutine::MarkLegacy(Context& context) {
  if (context.legacy_marked == context.legacy_operations) return absl::OkStatus();
  if (context.legacy_marker == nullptr) {
    DETSHARE_ASSIGN_OR_RETURN(context.legacy_marker, device_.CreateMarker(/*timed=*/false));
  }
  // It had operations, so it is there and has a queue.
  DETSHARE_RETURN_IF_ERROR(context.legacy->queue->Record(*context.legacy_marker));
  context.legacy_marked = context.legacy_operations;
  return absl::OkStatus();
}

absl::Status GpuCoroutine::OrderWithLegacy(Stream& stream, Use use) {
  Context& context = *stream.context;
  if (stream.legacy) {
    if (context.dirty.empty()) return absl::OkStatus();
    if (use == Use::kObserve) {
      DETSHARE_RETURN_IF_ERROR(MarkLegacy(context));
    }
    while (!context.dirty.empty()) {
      Stream& other = *context.dirty.back();
      DETSHARE_RETURN_IF_ERROR(other.queue->Record(*other.marker));
      DETSHARE_RETURN_IF_ERROR(stream.queue->Wait(*other.marker));
      other.dirty = false;
      context.dirty.pop_back();
    }
    return absl::OkStatus();
  }
  // Whoever only observes a blocking stream does not ask for the legacy stream's work.
  if (!stream.blocking || use == Use::kObserve) return absl::OkStatus();
  if (stream.seen_legacy == context.legacy_operations) return absl::OkStatus();
  DETSHARE_RETURN_IF_ERROR(MarkLegacy(context));
  DETSHARE_RETURN_IF_ERROR(stream.queue->Wait(*context.legacy_marker));
  stream.seen_legacy = context.legacy_operations;
  return absl::OkStatus();
}

absl::StatusOr<Queue*> GpuCoroutine::Prepare(Stream& stream, Partition& partition, Use use) {
  DETSHARE_RETURN_IF_ERROR(space_.fault());
  if (stream.partition != &partition || stream.urgent != binding_.urgent()) {
    DETSHARE_RETURN_IF_ERROR(Migrate(stream, partition));
  }
  DETSHARE_RETURN_IF_ERROR(OrderWithLegacy(stream, use));
  stream.uncollected = true;
  if (use != Use::kObserve) {
    Context& context = *stream.context;
    if (stream.legacy) {
      ++context.legacy_operations;
    } else if (stream.blocking && !stream.dirty) {
      stream.dirty = true;
      context.dirty.push_back(&stream);
    }
  }
  if (use == Use::kOther) CountOther();
  return stream.queue;
}

absl::StatusOr<Queue*> GpuCoroutine::PrepareById(StreamId id, Use use) {
  DETSHARE_ASSIGN_OR_RETURN(Stream* const stream, FindStream(id));
  return Prepare(*stream, binding_.ForOther(stream->partition), use);
}

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

// ---- what the scheduler is told

void GpuCoroutine::Attach(SchedEntity& entity) {
  samples_.reserve(kMaxSamples);
  timed_markers_.reserve(2 * kMaxSamples);
  binding_.Attach(entity);
}

void GpuCoroutine::Detach() {
  if (entity() == nullptr) return;
  ForgetWork();
  binding_.Detach();
}

bool GpuCoroutine::IsParked(Stream& stream) {
  if (stream.awaited.fence == nullptr) return false;
  if (!stream.awaited.reached()) return true;
  stream.awaited = {};
  return false;
}

void GpuCoroutine::Account(Stream& stream, Nanoseconds estimate) {
  if (observed_) {
    // Whoever goes on has what it waited for.
    observed_ = false;
    TakeRead();
  }
  if (IsParked(stream)) [[unlikely]] {
    if (stream.parked == 0) parked_.push_back(&stream);
    stream.parked += estimate;
    entity()->Started(estimate, /*counts=*/false);
    return;
  }
  if (stream.unfenced_operations++ == 0) unfenced_.push_back(&stream);
  stream.unfenced += estimate;
  entity()->Started(estimate, /*counts=*/true);
}

void GpuCoroutine::AccountTransfer(Stream& stream, TransferKind kind, uint64_t bytes) {
  // Copies are not timed: their size says enough.
  constexpr Nanoseconds kStart = 1'500;
  Account(stream, kStart + static_cast<Nanoseconds>(static_cast<double>(bytes) /
                                                    transfer_rates_[static_cast<size_t>(kind)]));
}

void GpuCoroutine::FenceIfDue(Stream& stream) {
  if (stream.unfenced >= entity()->fence_every()) {
    PutFence(stream);
    std::erase(unfenced_, &stream);
  }
}

void GpuCoroutine::PutFence(Stream& stream) {
  const absl::StatusOr<FencePoint> point = PointOf(stream);
  // Without one the device is lost, and nothing is in flight any more.
  const FencePoint behind = point.ok() ? *point : FencePoint{};
  for (Sample& sample : samples_) {
    if (sample.stream == &stream) {
      sample.stream = nullptr;
      sample.point = behind;
    }
  }
  in_flight_.Add(behind, stream.unfenced);
  if (std::exchange(stream.reads, false)) {
    read_ = behind;
    read_awaited_ = observed_;
  }
  stream.unfenced = 0;
  stream.unfenced_operations = 0;
}

void GpuCoroutine::FenceAll() {
  for (Stream* const stream : unfenced_) PutFence(*stream);
  unfenced_.clear();
}

void GpuCoroutine::BeforeWait(Stream& stream) {
  if (entity() == nullptr || stream.unfenced_operations == 0) return;
  // A fence behind the wait would say too late that this is complete.
  PutFence(stream);
  std::erase(unfenced_, &stream);
}

void GpuCoroutine::NoteWait(Stream& stream) {
  if (entity() == nullptr || !entity()->followed()) return;
  const absl::StatusOr<FencePoint> point = PointOf(stream);
  if (point.ok()) stream.awaited = *point;
}

void GpuCoroutine::GiveUpParked(Stream& stream) {
  if (stream.parked == 0) return;
  std::erase(parked_, &stream);
  // Perhaps it never begins.
  entity()->Resumed(stream.parked);
  entity()->Completed(std::exchange(stream.parked, 0));
}

void GpuCoroutine::TakeRead() {
  if (read_.fence == nullptr || !read_awaited_ || !read_.reached()) return;
  read_ = {};
  entity()->ResultRead();
}

void GpuCoroutine::ResumeParked() {
  for (size_t i = 0; i < parked_.size();) {
    Stream& stream = *parked_[i];
    if (IsParked(stream)) {
      ++i;
      continue;
    }
    entity()->Resumed(stream.parked);
    if (stream.unfenced_operations++ == 0) unfenced_.push_back(&stream);
    stream.unfenced += std::exchange(stream.parked, 0);
    parked_[i] = parked_.back();
    parked_.pop_back();
  }
}

void GpuCoroutine::TakeProgress() {
  if (const Nanoseconds complete = in_flight_.TakeComplete(); complete != 0) {
    entity()->Completed(complete);
  }
  TakeRead();
  for (size_t i = 0; i < samples_.size();) {
    Sample& sample = samples_[i];
    if (sample.stream != nullptr || !sample.point.reached()) {
      ++i;
      continue;
    }
    const absl::StatusOr<float> elapsed = device_.ElapsedMilliseconds(*sample.begin, *sample.end);
    if (elapsed.ok() && sample.event.name != 0)
      NoteOperation(sample, static_cast<Nanoseconds>(*elapsed * policy::kMillisecond));
    if (elapsed.ok()) entity()->NoteTime(static_cast<Nanoseconds>(*elapsed * policy::kMillisecond));
    if (elapsed.ok() && sample.operation != nullptr) {
      sample.operation->Add(sample.size_class,
                            static_cast<Nanoseconds>(*elapsed * policy::kMillisecond),
                            sample.contended || entity()->contended());
    }
    timed_markers_.push_back(std::move(sample.begin));
    timed_markers_.push_back(std::move(sample.end));
    if (i + 1 != samples_.size()) sample = std::move(samples_.back());
    samples_.pop_back();
  }
}

void GpuCoroutine::NoteOperation(const Sample& sample, Nanoseconds time) {
  const std::shared_ptr<const TraceReference>& reference = entity()->assignment().trace;
  if (reference == nullptr) return;
  const absl::StatusOr<float> since =
      device_.ElapsedMilliseconds(*reference->marker, *sample.begin);
  if (!since.ok()) return;
  TraceEvent event = sample.event;
  event.kind = TraceEvent::Kind::kOperation;
  event.at = reference->at + static_cast<Nanoseconds>(double{*since} * policy::kMillisecond);
  event.duration = time;
  entity()->trace().Add(event);
}

void GpuCoroutine::NotePoint(TraceEvent::Kind kind, const Stream& stream) {
  TraceEvent event;
  event.kind = kind;
  event.stream = stream.serial;
  if (stream.partition != nullptr) {
    event.first_sm = static_cast<uint16_t>(stream.partition->first_sm());
    event.sm_count = static_cast<uint16_t>(stream.partition->sm_count());
  }
  event.at = entity()->Now();
  entity()->trace().Add(event);
}

bool GpuCoroutine::MakeRoom() {
  ResumeParked();
  FenceAll();
  TakeProgress();
  return entity()->MayRun();
}

void GpuCoroutine::WatchWork(bool pause) {
  if (entity() == nullptr) return;
  entity()->Update();
  if (entity()->followed() && space_.fault().ok()) {
    ResumeParked();
    if (pause || observed_) FenceAll();
    read_awaited_ |= observed_;
    TakeProgress();
    if (in_flight_.empty() && unfenced_.empty()) entity()->Idle();
  } else if (watching_work() || !unfenced_.empty() || !parked_.empty()) {
    ForgetWork();
  }
  entity()->NotifyScheduler();
}

void GpuCoroutine::ForgetWork() {
  for (Stream* const stream : unfenced_) {
    stream->unfenced = 0;
    stream->unfenced_operations = 0;
  }
  for (Stream* const stream : parked_) stream->parked = 0;
  unfenced_.clear();
  parked_.clear();
  // The device may still reach the markers.
  for (Sample& sample : samples_) {
    timed_markers_.push_back(std::move(sample.begin));
    timed_markers_.push_back(std::move(sample.end));
  }
  samples_.clear();
  in_flight_.Clear();
  read_ = {};
  entity()->Forget();
}

absl::Status GpuCoroutine::Timed(Stream& stream, Queue& queue, const DurationCache::Lookup* known,
                                 const Partition& partition, std::string_view name,
                                 absl::FunctionRef<absl::Status()> submit) {
  const bool sampled =
      known != nullptr && known->sample && samples_.size() < kMaxSamples && !IsParked(stream);
  if (!sampled && name.empty()) [[likely]]
    return submit();
  if (samples_.size() >= kMaxTraced) {
    entity()->trace().Lose();
    return submit();
  }
  Sample sample;
  sample.stream = &stream;
  if (sampled) sample.operation = known->operation;
  sample.size_class = entity()->SizeClass(partition);
  sample.contended = entity()->contended();
  if (!name.empty()) {
    sample.event.name = entity()->trace().Name(name);
    sample.event.stream = stream.serial;
    sample.event.first_sm = static_cast<uint16_t>(partition.first_sm());
    sample.event.sm_count = static_cast<uint16_t>(partition.sm_count());
    sample.event.submitted = entity()->Now();
  }
  for (std::unique_ptr<Marker>* marker : {&sample.begin, &sample.end}) {
    if (!timed_markers_.empty()) {
      *marker = std::move(timed_markers_.back());
      timed_markers_.pop_back();
      continue;
    }
    absl::StatusOr<std::unique_ptr<Marker>> made = device_.CreateMarker(/*timed=*/true);
    if (!made.ok()) return submit();
    *marker = *std::move(made);
  }
  const bool begun = queue.Record(*sample.begin).ok();
  absl::Status status = submit();
  if (begun && status.ok() && queue.Record(*sample.end).ok()) {
    samples_.push_back(std::move(sample));
  } else {
    timed_markers_.push_back(std::move(sample.begin));
    timed_markers_.push_back(std::move(sample.end));
  }
  return status;
}

// ---- operations
// ------------------------------------------------------------------------------------------------------

absl::Status GpuCoroutine::Launch(StreamId id, Kernel& kernel, const LaunchShape& shape,
                                  absl::Span<const std::byte> parameters) {
  DETSHARE_ASSIGN_OR_RETURN(Stream* const found, FindStream(id));
  Stream& stream = *found;
  DurationCache::Lookup known;
  Nanoseconds estimate = 0;
  if (followed()) {
    const uint64_t blocks = uint64_t{shape.grid.x} * shape.grid.y * shape.grid.z;
    known = entity()->Look({CodeOf(kernel), ShapeOf(shape)},
                           {static_cast<uint32_t>(std::min<uint64_t>(blocks, UINT32_MAX)), 0,
                            ContentOf(parameters, space_.base(), space_.size())});
    estimate = known.operation->Estimate(0);
    Account(stream, estimate);
    entity()->NoteBound(estimate, known.operation->memory_bound());
  }
  Partition& partition = binding_.ForLaunch(kernel, shape, estimate);
  absl::StatusOr<Queue*> queue = Prepare(stream, partition, Use::kOperation);
  if (!queue.ok()) return queue.status();
  const auto launch = [&] {
    if (!shape.has_priority) [[likely]]
      return (*queue)->Launch(space_, kernel, shape, parameters);
    LaunchShape own = shape;
    own.priority = QueuePriority(device_.properties(), shape.priority, binding_.urgent());
    return (*queue)->Launch(space_, kernel, own, parameters);
  };
  absl::Status status =
      Timed(stream, **queue, known.operation != nullptr ? &known : nullptr, partition,
            binding_.traced() ? std::string_view(kernel.info().name) : std::string_view(), launch);
  // A tenant sees the limits of the device and never those of a partition.
  if (!status.ok() && BlocksRunTogether(shape) && &partition != &device_.whole() &&
      DoesNotFitPartition(status)) {
    queue = Prepare(stream, device_.whole(), Use::kOperation);
    if (!queue.ok()) return queue.status();
    status = launch();
  }
  if (known.operation != nullptr) FenceIfDue(stream);
  if (status.ok()) Count(launches_, 1);
  return status;
}

absl::Status GpuCoroutine::Copy(StreamId id, const CopyRequest& request) {
  DETSHARE_ASSIGN_OR_RETURN(Stream* const stream, FindStream(id));
  const uint64_t bytes = request.width * request.height * request.depth;
  const bool told = followed();
  std::string_view name;
  if (told) {
    const auto on_device = [&](DeviceAddress address, const ArrayPlace& array) {
      return array.array != nullptr || address - space_.base() < space_.size();
    };
    const bool to_host = !on_device(request.destination, request.destination_array);
    const bool from_host = !on_device(request.source, request.source_array);
    AccountTransfer(*stream,
                    to_host     ? TransferKind::kFromDevice
                    : from_host ? TransferKind::kToDevice
                                : TransferKind::kInside,
                    bytes);
    stream->reads |= to_host && !from_host;
    if (binding_.traced()) [[unlikely]]
      name = to_host ? "copy to host" : from_host ? "copy from host" : "copy on device";
  }
  DETSHARE_ASSIGN_OR_RETURN(
      Queue* const queue, Prepare(*stream, binding_.ForOther(stream->partition), Use::kOperation));
  absl::Status status = Timed(*stream, *queue, nullptr, *stream->partition, name,
                              [&] { return queue->Copy(space_, request); });
  if (told) FenceIfDue(*stream);
  if (status.ok()) CountCopy(bytes);
  return status;
}

absl::Status GpuCoroutine::Fill(StreamId id, const FillRequest& request) {
  DETSHARE_ASSIGN_OR_RETURN(Stream* const stream, FindStream(id));
  const bool told = followed();
  if (told) {
    AccountTransfer(*stream, TransferKind::kFill,
                    request.width * request.height * static_cast<uint64_t>(request.element_bytes));
  }
  DETSHARE_ASSIGN_OR_RETURN(
      Queue* const queue, Prepare(*stream, binding_.ForOther(stream->partition), Use::kOperation));
  absl::Status status =
      Timed(*stream, *queue, nullptr, *stream->partition, binding_.traced() ? "fill" : "",
            [&] { return queue->Fill(space_, request); });
  if (told) FenceIfDue(*stream);
  if (status.ok()) Count(fills_, 1);
  return status;
}

absl::Status GpuCoroutine::MemoryOps(StreamId id, absl::Span<const MemoryOp> operations) {
  DETSHARE_ASSIGN_OR_RETURN(Stream* const stream, FindStream(id));
  DETSHARE_ASSIGN_OR_RETURN(Queue* const queue,
                            Prepare(*stream, binding_.ForOther(stream->partition), Use::kOther));
  const bool waits = std::any_of(operations.begin(), operations.end(),
                                 [](const MemoryOp& operation) { return operation.is_wait(); });
  if (waits) BeforeWait(*stream);
  absl::Status status = queue->MemoryOps(space_, operations);
  if (waits) NoteWait(*stream);
  return status;
}

absl::Status GpuCoroutine::Signal(StreamId id, std::atomic<uint64_t>* fence, uint64_t value) {
  DETSHARE_ASSIGN_OR_RETURN(Stream* const found, FindStream(id));
  Stream& stream = *found;
  if (stream.queue == nullptr && !(stream.legacy && !stream.context->dirty.empty())) {
    fence->store(value, std::memory_order_release);  // there is nothing to wait for
    return absl::OkStatus();
  }
  // A stream that only observes stays where it is.
  observed_ = true;
  if (binding_.traced()) [[unlikely]]
    NotePoint(TraceEvent::Kind::kWait, stream);
  Partition& place = stream.partition != nullptr ? *stream.partition : partition();
  DETSHARE_ASSIGN_OR_RETURN(Queue* const queue, Prepare(stream, place, Use::kObserve));
  return queue->WriteFence(space_, fence, value);
}

absl::Status GpuCoroutine::WaitFence(StreamId id, const std::atomic<uint64_t>* fence,
                                     uint64_t value) {
  DETSHARE_ASSIGN_OR_RETURN(Stream* const stream, FindStream(id));
  DETSHARE_ASSIGN_OR_RETURN(Queue* const queue,
                            Prepare(*stream, binding_.ForOther(stream->partition), Use::kOther));
  BeforeWait(*stream);
  absl::Status status = queue->WaitFence(space_, fence, value);
  NoteWait(*stream);
  return status;
}

absl::Status GpuCoroutine::HostFunction(StreamId id, std::atomic<uint64_t>* reached,
                                        uint64_t reached_value, const std::atomic<uint64_t>* resume,
                                        uint64_t resume_value) {
  DETSHARE_ASSIGN_OR_RETURN(Stream* const stream, FindStream(id));
  DETSHARE_ASSIGN_OR_RETURN(Queue* const queue,
                            Prepare(*stream, binding_.ForOther(stream->partition), Use::kOther));
  BeforeWait(*stream);
  DETSHARE_RETURN_IF_ERROR(queue->WriteFence(space_, reached, reached_value));
  absl::Status status = queue->WaitFence(space_, resume, resume_value);
  NoteWait(*stream);
  return status;
}

absl::StatusOr<FencePoint> GpuCoroutine::Point(StreamId id) {
  DETSHARE_ASSIGN_OR_RETURN(Stream* const stream, FindStream(id));
  return PointOf(*stream);
}

absl::StatusOr<FencePoint> GpuCoroutine::PointOf(Stream& stream) {
  if (stream.queue == nullptr && !(stream.legacy && !stream.context->dirty.empty())) {
    return FencePoint{};
  }
  if (!stream.fence) {
    DETSHARE_ASSIGN_OR_RETURN(stream.fence, fences_.Acquire());
  }
  Partition& place = stream.partition != nullptr ? *stream.partition : partition();
  DETSHARE_ASSIGN_OR_RETURN(Queue* const queue, Prepare(stream, place, Use::kObserve));
  const uint64_t value = stream.fence.Next();
  DETSHARE_RETURN_IF_ERROR(queue->WriteFence(space_, stream.fence.fence(), value));
  return stream.fence.point();
}

absl::Status GpuCoroutine::WaitPoint(StreamId id, const FencePoint& point) {
  DETSHARE_ASSIGN_OR_RETURN(Stream* const stream, FindStream(id));
  if (point.fence == stream->fence.fence() || point.reached()) return absl::OkStatus();
  DETSHARE_ASSIGN_OR_RETURN(Queue* const queue,
                            Prepare(*stream, binding_.ForOther(stream->partition), Use::kOther));
  return queue->WaitFence(space_, point.fence, point.value);
}

absl::Status GpuCoroutine::RecordEvent(EventId event_id, StreamId stream,
                                       std::atomic<uint64_t>* fence, uint64_t value) {
  DETSHARE_ASSIGN_OR_RETURN(LogicalEvent* const event, events_.Find(event_id));
  DETSHARE_ASSIGN_OR_RETURN(Stream* const found, FindStream(stream));
  DETSHARE_ASSIGN_OR_RETURN(Queue* const queue,
                            Prepare(*found, binding_.ForOther(found->partition), Use::kOther));
  DETSHARE_RETURN_IF_ERROR(queue->Record(*event->marker));
  event->recorded = true;
  observed_ |= fence != nullptr;
  event->awaited = IsParked(*found) ? found->awaited : FencePoint{};
  return fence == nullptr ? absl::OkStatus() : queue->WriteFence(space_, fence, value);
}

absl::Status GpuCoroutine::Submit(StreamId id, Partition& partition,
                                  absl::FunctionRef<absl::Status(Queue&)> submit,
                                  const DurationCache::Lookup* known, bool waits) {
  DETSHARE_ASSIGN_OR_RETURN(Stream* const found, FindStream(id));
  Stream& stream = *found;
  if (waits) known = nullptr;
  if (known != nullptr) Account(stream, known->operation->Estimate(0));
  DETSHARE_ASSIGN_OR_RETURN(Queue* const queue, Prepare(stream, partition, Use::kOperation));
  if (waits) BeforeWait(stream);
  absl::Status status = Timed(stream, *queue, known, partition, binding_.traced() ? "graph" : "",
                              [&] { return submit(*queue); });
  if (waits) NoteWait(stream);
  if (known != nullptr) FenceIfDue(stream);
  return status;
}

absl::StatusOr<uint64_t> GpuCoroutine::SerialOf(StreamId id) {
  DETSHARE_ASSIGN_OR_RETURN(Stream* const stream, FindStream(id));
  return stream->serial;
}

void GpuCoroutine::CountGraph(uint64_t kernels) {
  Count(graphs_, 1);
  Count(graph_kernels_, kernels);
}

void GpuCoroutine::CountOther() { Count(others_, 1); }

void GpuCoroutine::CountCopy(uint64_t bytes) {
  Count(copies_, 1);
  Count(bytes_copied_, bytes);
}

absl::Status GpuCoroutine::WaitEvent(StreamId stream, EventId event_id) {
  return WaitEventOf(*this, stream, event_id);
}

absl::Status GpuCoroutine::WaitEventOf(const GpuCoroutine& owner, StreamId stream,
                                       EventId event_id) {
  DETSHARE_ASSIGN_OR_RETURN(const LogicalEvent* const event, owner.events_.Find(event_id));
  DETSHARE_ASSIGN_OR_RETURN(Stream* const found, FindStream(stream));
  DETSHARE_ASSIGN_OR_RETURN(Queue* const queue,
                            Prepare(*found, binding_.ForOther(found->partition), Use::kOther));
  if (!event->recorded) return absl::OkStatus();
  const bool parks = !event->awaited.reached();
  if (parks) BeforeWait(*found);
  absl::Status status = queue->Wait(*event->marker);
  if (parks && entity() != nullptr && entity()->followed() && !IsParked(*found))
    found->awaited = event->awaited;
  return status;
}

absl::Status GpuCoroutine::RecordShared(SharedEvent& event, StreamId stream, uint64_t* number) {
  absl::StatusOr<Queue*> queue = PrepareById(stream, Use::kOther);
  return queue.ok() ? event.Record(**queue, number) : queue.status();
}

absl::Status GpuCoroutine::WaitShared(StreamId stream, SharedEvent& event) {
  DETSHARE_ASSIGN_OR_RETURN(Stream* const found, FindStream(stream));
  DETSHARE_ASSIGN_OR_RETURN(Queue* const queue,
                            Prepare(*found, binding_.ForOther(found->partition), Use::kOther));
  BeforeWait(*found);
  absl::Status status = event.Wait(*queue);
  NoteWait(*found);
  return status;
}

// ---- the session's devices with each other
// -----------------------------------------------------------------------------------------------

void GpuCoroutine::AddUser(GpuCoroutine& other) {
  if (&other != this && std::find(users_.begin(), users_.end(), &other) == users_.end())
    users_.push_back(&other);
}

Task<absl::Status> GpuCoroutine::IdleForMemory() {
  absl::Status result = co_await Idle();
  for (size_t i = 0; i < users_.size(); ++i) {
    absl::Status status = co_await users_[i]->Idle();
    result.Update(status);
  }
  co_return result;
}

absl::StatusOr<GpuCoroutine::Visit*> GpuCoroutine::FindOrMakeVisit(Stream& stream,
                                                                   GpuCoroutine& host) {
  for (const std::unique_ptr<Visit>& visit : stream.visits) {
    if (visit->host == &host) return visit.get();
  }
  auto visit = std::make_unique<Visit>();
  visit->host = &host;
  DETSHARE_ASSIGN_OR_RETURN(visit->arrived, device_.CreateMarker(/*timed=*/false));
  DETSHARE_ASSIGN_OR_RETURN(visit->done, host.device_.CreateMarker(/*timed=*/false));
  const int priority = QueuePriority(host.device_.properties(), stream.priority, binding_.urgent());
  DETSHARE_ASSIGN_OR_RETURN(visit->queue,
                            PooledQueue::Acquire(host.queues_, host.partition(), priority));
  stream.visits.push_back(std::move(visit));
  return stream.visits.back().get();
}

template <typename F>
absl::Status GpuCoroutine::RunAt(GpuCoroutine& host, StreamId id, F work) {
  DETSHARE_ASSIGN_OR_RETURN(Stream* const stream, FindStream(id));
  DETSHARE_ASSIGN_OR_RETURN(
      Queue* const home, Prepare(*stream, binding_.ForOther(stream->partition), Use::kOperation));
  DETSHARE_ASSIGN_OR_RETURN(Visit* const visit, FindOrMakeVisit(*stream, host));
  host.AddUser(*this);
  Queue& abroad = *visit->queue.get();
  absl::Status status = home->Record(*visit->arrived);
  if (status.ok()) status = abroad.Wait(*visit->arrived);
  if (status.ok()) status = work(abroad);
  if (status.ok()) status = abroad.Record(*visit->done);
  return status.ok() ? home->Wait(*visit->done) : status;
}

absl::Status GpuCoroutine::CopyAt(GpuCoroutine& host, StreamId stream, const CopyRequest& request) {
  absl::Status status =
      RunAt(host, stream, [&](Queue& queue) { return queue.Copy(host.space_, request); });
  if (status.ok()) CountCopy(request.width * request.height * request.depth);
  return status;
}

absl::Status GpuCoroutine::FillAt(GpuCoroutine& host, StreamId stream, const FillRequest& request) {
  absl::Status status =
      RunAt(host, stream, [&](Queue& queue) { return queue.Fill(host.space_, request); });
  if (status.ok()) Count(fills_, 1);
  return status;
}

// ---- waiting for a context
// ---------------------------------------------------------------------------------------------

absl::Status GpuCoroutine::SignalContext(ContextId id, std::atomic<uint64_t>* fence,
                                         uint64_t value) {
  const auto context = contexts_.find(id);
  if (context == contexts_.end()) {
    fence->store(value, std::memory_order_release);  // no stream was ever made in it
    return absl::OkStatus();
  }
  return SignalContext(*context->second, fence, value);
}

absl::Status GpuCoroutine::SignalContext(Context& context, std::atomic<uint64_t>* fence,
                                         uint64_t value) {
  DETSHARE_RETURN_IF_ERROR(space_.fault());
  observed_ = true;
  if (!retired_.empty()) ReclaimRetired();
  if (context.collector.get() == nullptr) {
    Stream* only = nullptr;
    int used = 0;
    for (Stream* stream : context.streams) {
      if (stream->queue == nullptr) continue;
      ++used;
      only = stream;
    }
    if (used == 0) {
      fence->store(value, std::memory_order_release);
      return absl::OkStatus();
    }
    if (used == 1 && !only->retired) return only->queue->WriteFence(space_, fence, value);
    DETSHARE_ASSIGN_OR_RETURN(context.collector, PooledQueue::Acquire(queues_, device_.whole(), 0));
  }
  // From the first time on every signal goes through the collector, so that the fences of one
  // context are written in order.
  Queue& collector = *context.collector.get();
  for (Stream* stream : context.streams) {
    if (!stream->uncollected) continue;
    DETSHARE_RETURN_IF_ERROR(stream->queue->Record(*stream->marker));
    DETSHARE_RETURN_IF_ERROR(collector.Wait(*stream->marker));
    stream->uncollected = false;
  }
  return collector.WriteFence(space_, fence, value);
}

absl::StatusOr<FenceLease> GpuCoroutine::FenceOfContext(Context& context) {
  absl::StatusOr<FenceLease> lease = fences_.Acquire();
  if (!lease.ok()) return lease;
  const uint64_t value = lease->Next();
  DETSHARE_RETURN_IF_ERROR(SignalContext(context, lease->fence(), value));
  return lease;
}

Task<absl::Status> GpuCoroutine::AwaitFence(FenceLease fence) {
  const FencePoint point = fence.point();
  const bool reached = co_await executor_.Reached(point.fence, point.value);
  absl::Status fault = space_.fault();
  if (reached || !fault.ok()) co_return fault;
  co_return CudaError(kCudaErrorUnknown, "the session's work was lost");
}

Task<absl::Status> GpuCoroutine::Idle() {
  std::vector<FenceLease> fences;
  for (auto& [id, context] : contexts_) {
    DETSHARE_CO_ASSIGN_OR_RETURN(FenceLease fence, FenceOfContext(*context));
    fences.push_back(std::move(fence));
  }
  absl::Status result;
  for (FenceLease& fence : fences) {
    absl::Status status = co_await AwaitFence(std::move(fence));
    result.Update(status);
  }
  co_return result;
}

Task<absl::Status> GpuCoroutine::IdleContext(ContextId id) {
  const auto context = contexts_.find(id);
  if (context == contexts_.end()) co_return absl::OkStatus();
  DETSHARE_CO_ASSIGN_OR_RETURN(FenceLease fence, FenceOfContext(*context->second));
  absl::Status result = co_await AwaitFence(std::move(fence));
  co_return result;
}

Task<absl::Status> GpuCoroutine::DestroyContext(ContextId id) {
  FenceAll();
  events_.DestroyAllOf(id);
  const auto found = contexts_.find(id);
  if (found == contexts_.end()) co_return absl::OkStatus();
  absl::StatusOr<FenceLease> fence = FenceOfContext(*found->second);
  // The streams live on in this frame, out of everybody's reach.
  const std::unique_ptr<Context> context = std::move(found->second);
  contexts_.erase(found);
  std::vector<std::unique_ptr<Stream>> streams;
  for (auto stream = streams_.begin(); stream != streams_.end();) {
    const auto current = stream++;
    if (current->second->context != context.get()) continue;
    GiveUpParked(*current->second);
    streams.push_back(std::move(current->second));
    streams_.erase(current);
  }
  for (std::unique_ptr<Stream>& stream : retired_) {
    if (stream->context == context.get()) streams.push_back(std::move(stream));
  }
  std::erase(retired_, nullptr);

  if (!fence.ok()) co_return fence.status();
  absl::Status result = co_await AwaitFence(*std::move(fence));
  if (result.ok()) {
    for (std::unique_ptr<Stream>& stream : streams) {
      for (PooledQueue& queue : stream->queues) queue.ReturnIdle();
      for (std::unique_ptr<Visit>& visit : stream->visits) visit->queue.ReturnIdle();
    }
    context->collector.ReturnIdle();
  }
  co_return result;
}

GpuCoroutine::Counters GpuCoroutine::counters() const {
  const auto get = [](const std::atomic<uint64_t>& count) {
    return count.load(std::memory_order_relaxed);
  };
  Counters counters;
  counters.launches = get(launches_);
  counters.graphs = get(graphs_);
  counters.copies = get(copies_);
  counters.fills = get(fills_);
  counters.operations =
      counters.launches + counters.graphs + counters.copies + counters.fills + get(others_);
  counters.kernels = counters.launches + get(graph_kernels_);
  counters.bytes_copied = get(bytes_copied_);
  counters.migrations = get(migrations_);
  return counters;
}

}  // namespace detshare
