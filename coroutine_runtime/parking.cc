#include "coroutine_runtime/parking.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <utility>

#include "coroutine_runtime/held_memory.h"
#include "coroutine_runtime/queue_pool.h"
#include "coroutine_runtime/status_cuda.h"
#include "policy/status_macros.h"

namespace detshare {
namespace {

// The pauses between two readings of a word: a part of the time that the wait has taken, so that a
// short wait ends at once and a long one costs little. The longest pause keeps 0.05 % of a GPU's
// time for the readings of a stream.
constexpr int kPausePart = 8;
constexpr std::chrono::milliseconds kLongestPause(2);

// The session had the memory when its work came. It may have freed it since then.
absl::Status Freed() {
  return CudaError(kCudaErrorInvalidValue, "work that was kept accesses freed memory");
}

}  // namespace

// A recording of a marker that is parked.
struct Parking::Point : Marker::ParkedPoint {
  std::shared_ptr<Lane> lane;
  std::vector<std::shared_ptr<Lane>> waiting;
  // For those of them that keep other items in front of their waits. The marker may stand for a later
  // point when they come to the wait.
  std::unique_ptr<Marker> own;
};

// ---- the session's parked queues

Parking::~Parking() {
  // Parked recordings and their queues refer to each other.
  for (const std::shared_ptr<Lane>& lane : lanes_) lane->items.clear();
  for (Relay& relay : relays_) relay.pool->Discard(std::move(relay.queue));
}

std::unique_ptr<ParkingQueue> Parking::Open(QueuePool& pool, Partition& partition,
                                            AddressSpace& space, std::unique_ptr<Queue> queue) {
  Device& device = pool.device();
  Partition& group = &partition == device.urgent() ? partition : device.whole();
  auto lane = std::make_shared<Lane>(Lane{pool, group, space, std::move(queue), {}, 0});
  return std::unique_ptr<ParkingQueue>(new ParkingQueue(*this, std::move(lane)));
}

absl::Status Parking::WaitForClient(Queue& queue, AddressSpace& space,
                                    const std::atomic<uint64_t>* fence, uint64_t value) {
  const std::shared_ptr<Lane>& lane = static_cast<ParkingQueue&>(queue).lane_;
  // Acquire: what the client did before is visible to the work behind the wait.
  if (lane->items.empty() && fence->load(std::memory_order_acquire) >= value)
    return absl::OkStatus();
  Item item;
  item.fence = fence;
  item.value = value;
  item.space = &space;
  Add(lane, std::move(item));
  Pump();
  return absl::OkStatus();
}

absl::Status Parking::WaitForOthers(Queue& queue, AddressSpace& space,
                                    std::shared_ptr<const std::atomic<uint64_t>> fence,
                                    uint64_t value) {
  const std::shared_ptr<Lane>& lane = static_cast<ParkingQueue&>(queue).lane_;
  // Acquire: what the other session did before is visible to the work behind the wait.
  if (lane->items.empty() && fence->load(std::memory_order_acquire) >= value)
    return absl::OkStatus();
  // The device may have to wait, which it can only for memory that is registered with the space.
  DETSHARE_ASSIGN_OR_RETURN(FenceLease own, PoolOf(space, fences_).Acquire());
  Item item;
  item.fence = own.fence();
  item.value = own.Next();
  item.watched = true;
  item.space = &space;
  Add(lane, std::move(item));
  executor_.Spawn(WatchOthers(this, std::move(fence), value, std::move(own)));
  Pump();
  return absl::OkStatus();
}

bool Parking::Keeps(const Queue& queue) {
  return !static_cast<const ParkingQueue&>(queue).passes();
}

void Parking::Submit(Queue& queue) {
  if (!Keeps(queue)) return;
  // By value: the queue's work may end the lane's place in lanes_.
  const std::shared_ptr<Lane> lane = static_cast<ParkingQueue&>(queue).lane_;
  SubmitUntil(*lane, [] { return false; });
  Pump();
}

void Parking::Submit(const Marker& marker) {
  if (!marker.parked()) return;
  const auto point = std::static_pointer_cast<Point>(marker.parked_);
  SubmitUntil(*point->lane, [&] { return point->submitted; });
  Pump();
}

void Parking::Submit(const Graph& graph) {
  const auto launches = [&](const Item& item) { return item.graph == &graph; };
  // A copy: Pump() takes lanes away.
  const std::vector<std::shared_ptr<Lane>> all = lanes_;
  for (const std::shared_ptr<Lane>& each : all) {
    SubmitUntil(*each,
                [&] { return std::none_of(each->items.begin(), each->items.end(), launches); });
  }
  if (!all.empty()) Pump();
}

Task<void> Parking::Watch(Parking* self, const std::atomic<uint64_t>* fence, uint64_t value) {
  const bool reached = co_await self->executor_.ReachedByClient(fence, value);
  if (reached) self->Pump();
}

Task<void> Parking::WatchOthers(Parking* self, std::shared_ptr<const std::atomic<uint64_t>> fence,
                                uint64_t value, FenceLease own) {
  const bool reached = co_await self->executor_.ReachedByOthers(fence.get(), value);
  if (!reached) co_return;
  own.fence()->store(own.point().value, std::memory_order_release);
  self->Pump();
}

FencePool& Parking::PoolOf(AddressSpace& space, std::map<AddressSpace*, FencePool>& pools) {
  return pools.try_emplace(&space, space).first->second;
}

Task<void> Parking::WatchWord(Parking* self, std::shared_ptr<Lane> lane, AddressSpace* space,
                              std::shared_ptr<Word> word) {
  absl::StatusOr<FenceLease> read = PoolOf(*space, self->fences_).Acquire();
  absl::StatusOr<FenceLease> copy = PoolOf(*space, self->words_).Acquire();
  absl::Status status = read.ok() ? copy.status() : read.status();
  const auto begin = std::chrono::steady_clock::now();
  while (status.ok() && !word->over) {
    status = HoldsMemoryOf(*space, word->wait) ? absl::OkStatus() : Freed();
    if (!status.ok()) break;
    CopyRequest request;
    request.source = word->wait.address;
    request.destination = reinterpret_cast<DeviceAddress>(copy->fence());
    request.width = static_cast<uint64_t>(word->wait.bytes());
    status = lane->queue->Copy(*space, request);
    const uint64_t number = read->Next();
    if (status.ok()) status = lane->queue->WriteFence(*space, read->fence(), number);
    if (!status.ok()) break;
    if (!co_await self->executor_.Reached(read->fence(), number)) co_return;
    // Relaxed: the fence orders it.
    word->over |= word->wait.Satisfied(copy->fence()->load(std::memory_order_relaxed));
    if (word->over) break;
    co_await self->executor_.Pause(std::min<std::chrono::nanoseconds>(
        (std::chrono::steady_clock::now() - begin) / kPausePart, kLongestPause));
  }
  self->error_.Update(status);
  word->over = true;
  self->Pump();
}

void Parking::Add(const std::shared_ptr<Lane>& lane, Item item) {
  item.bytes += sizeof(Item);
  bytes_ += item.bytes;
  if (lane->empty()) lanes_.push_back(lane);
  lane->items.push_back(std::move(item));
  // What comes while an item is being passed on stays behind it.
  if (bytes_ > max_bytes_ && !passes_on()) SubmitAll();
}

void Parking::SubmitAll() {
  // A copy: Pump() takes lanes away.
  const std::vector<std::shared_ptr<Lane>> all = lanes_;
  for (const std::shared_ptr<Lane>& each : all) SubmitUntil(*each, [] { return false; });
  Pump();
}

void Parking::Abandon() {
  max_bytes_ = 0;
  SubmitAll();
}

Parking::Item Parking::Take(Lane& lane) {
  Item item = std::move(lane.items.front());
  lane.items.pop_front();
  bytes_ -= item.bytes;
  ++lane.running;
  ++running_;
  return item;
}

void Parking::Run(Lane& lane, Item item) {
  absl::Status status;
  if (item.word != nullptr) {
    if (!std::exchange(item.word->over, true)) {
      status = !HoldsMemoryOf(*item.space, item.word->wait)
                   ? Freed()
                   : lane.queue->MemoryOps(*item.space, {&item.word->wait, 1});
    } else if ((item.word->wait.flags & MemoryOp::kWaitFlush) != 0) {
      const MemoryOp flush{MemoryOp::kFlushRemoteWrites};
      status = lane.queue->MemoryOps(*item.space, {&flush, 1});
    }
  } else if (item.fence != nullptr) {
    if (item.fence->load(std::memory_order_acquire) < item.value)
      status = lane.queue->WaitFence(*item.space, item.fence, item.value);
  } else if (item.point != nullptr) {
    if (item.point->own != nullptr) status = lane.queue->Wait(*item.point->own);
  } else if (item.work) {
    status = item.work();
  }
  error_.Update(status);
  --lane.running;
  --running_;
  ++passed_on_;  // not before: the device may be asked for its work meanwhile
}

void Parking::SubmitUntil(Lane& lane, absl::FunctionRef<bool()> enough) {
  while (!lane.items.empty() && !enough()) {
    Item item = Take(lane);
    // The point was recorded before the wait for it, so this comes to an end.
    if (item.point != nullptr && !item.point->submitted)
      SubmitUntil(*item.point->lane, [&] { return item.point->submitted; });
    Run(lane, std::move(item));
  }
}

void Parking::Pump() {
  // A task that begins to watch a fence may find it reached and call this.
  again_ = true;
  if (pumping_) return;
  pumping_ = true;
  for (bool progress = false; progress || again_;) {
    again_ = false;
    progress = PumpOnce();
  }
  pumping_ = false;
  std::erase_if(lanes_, [](const std::shared_ptr<Lane>& lane) { return lane->empty(); });
}

bool Parking::PumpOnce() {
  bool progress = false;
  for (const std::shared_ptr<Lane>& lane : lanes_) {
    while (!lane->items.empty()) {
      Item& first = lane->items.front();
      if (first.fence != nullptr && first.fence->load(std::memory_order_acquire) < first.value) {
        if (!std::exchange(first.watched, true))
          executor_.Spawn(Watch(this, first.fence, first.value));
        break;
      }
      if (first.word != nullptr && !first.word->over) {
        if (!std::exchange(first.watched, true))
          executor_.Spawn(WatchWord(this, lane, first.space, first.word));
        break;
      }
      if (first.point != nullptr && !first.point->submitted) break;
      Run(*lane, Take(*lane));
      progress = true;
    }
  }
  return progress;
}

absl::Status Parking::RecordNow(Lane& lane, Point& point) {
  point.submitted = true;
  std::vector<std::shared_ptr<Lane>> waiting;
  waiting.swap(point.waiting);
  Marker* const marker = point.marker;
  const bool own = std::any_of(waiting.begin(), waiting.end(), [&](const auto& other) {
    return marker == nullptr || other->items.empty() || other->items.front().point.get() != &point;
  });
  absl::Status status;
  if (marker != nullptr) {
    marker->parked_ = nullptr;
    status = lane.queue->Record(*marker);
  }
  if (own) {
    DETSHARE_ASSIGN_OR_RETURN(point.own, lane.pool.device().CreateMarker(/*timed=*/false));
    status.Update(lane.queue->Record(*point.own));
  } else {
    for (const std::shared_ptr<Lane>& other : waiting) status.Update(other->queue->Wait(*marker));
  }
  return status;
}

absl::Status Parking::Keep(const std::shared_ptr<Lane>& lane, Marker& marker) {
  DETSHARE_ASSIGN_OR_RETURN(const bool reached, lane->pool.device().Reached(marker));
  if (reached) return absl::OkStatus();
  DETSHARE_ASSIGN_OR_RETURN(std::shared_ptr<Marker> point, PointOf(*lane, marker));
  Item item;
  item.work = [queue = lane->queue.get(), point = std::move(point)] { return queue->Wait(*point); };
  item.bytes = sizeof(Marker);
  Add(lane, std::move(item));
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<Marker>> Parking::PointOf(const Lane& lane, Marker& marker) {
  Device& device = lane.pool.device();
  const auto fits = [&](const Relay& relay) {
    return relay.pool == &lane.pool && relay.group == &lane.group;
  };
  auto relay = relays_.begin();
  for (; relay != relays_.end(); ++relay) {
    if (!fits(*relay)) continue;
    if (relay->last == nullptr) break;
    DETSHARE_ASSIGN_OR_RETURN(const bool reached, device.Reached(*relay->last));
    if (reached) break;
  }
  if (relay == relays_.end() &&
      std::count_if(relays_.begin(), relays_.end(), fits) >= static_cast<ptrdiff_t>(kMaxRelays)) {
    relay = std::find_if(relays_.begin(), relays_.end(), fits);
  }
  if (relay == relays_.end()) {
    Relay made{&lane.pool, &lane.group};
    DETSHARE_ASSIGN_OR_RETURN(made.queue, lane.pool.Acquire(lane.group, /*priority=*/0));
    made.queue->Serve(lane.space);
    relay = relays_.insert(relays_.end(), std::move(made));
  }
  std::rotate(relay, relay + 1, relays_.end());
  Relay& last = relays_.back();
  DETSHARE_ASSIGN_OR_RETURN(std::shared_ptr<Marker> point, device.CreateMarker(/*timed=*/false));
  DETSHARE_RETURN_IF_ERROR(last.queue->Wait(marker));
  DETSHARE_RETURN_IF_ERROR(last.queue->Record(*point));
  last.last = point;
  return point;
}

// ---- a queue

absl::Status ParkingQueue::Park(size_t bytes, std::function<absl::Status()> work) {
  Parking::Item item;
  item.work = std::move(work);
  item.bytes = bytes;
  parking_.Add(lane_, std::move(item));
  return absl::OkStatus();
}

absl::Status ParkingQueue::Launch(AddressSpace& space, Kernel& kernel, const LaunchShape& shape,
                                  absl::Span<const std::byte> parameters) {
  Queue* const queue = lane_->queue.get();
  if (passes()) [[likely]]
    return queue->Launch(space, kernel, shape, parameters);
  return Park(sizeof(shape) + parameters.size(),
              [queue, &space, &kernel, shape,
               own = std::vector<std::byte>(parameters.begin(), parameters.end())] {
                return queue->Launch(space, kernel, shape, own);
              });
}

absl::Status ParkingQueue::Copy(AddressSpace& space, const CopyRequest& request) {
  Queue* const queue = lane_->queue.get();
  if (passes()) [[likely]]
    return queue->Copy(space, request);
  std::vector<std::byte> own;
  if (request.inline_source) {
    const auto* const from = reinterpret_cast<const std::byte*>(request.source);
    const uint64_t bytes = (request.depth - 1) * request.source_slice +
                           (request.height - 1) * request.source_pitch + request.width;
    own.assign(from, from + bytes);
  }
  // Counted first: the compiler may move `own` before it evaluates the other argument.
  const size_t bytes = sizeof(request) + own.size();
  return Park(bytes, [queue, &space, request, own = std::move(own)] {
    if (!HoldsMemoryOf(space, request)) return Freed();
    CopyRequest now = request;
    if (now.inline_source) now.source = reinterpret_cast<DeviceAddress>(own.data());
    return queue->Copy(space, now);
  });
}

absl::Status ParkingQueue::Fill(AddressSpace& space, const FillRequest& request) {
  Queue* const queue = lane_->queue.get();
  if (passes()) [[likely]]
    return queue->Fill(space, request);
  return Park(sizeof(request), [queue, &space, request] {
    return HoldsMemoryOf(space, request) ? queue->Fill(space, request) : Freed();
  });
}

absl::Status ParkingQueue::Prefetch(AddressSpace& space, const PrefetchRequest& request) {
  Queue* const queue = lane_->queue.get();
  if (passes()) [[likely]]
    return queue->Prefetch(space, request);
  return Park(sizeof(request),
              [queue, &space, request] { return queue->Prefetch(space, request); });
}

absl::Status ParkingQueue::WriteFence(AddressSpace& space, std::atomic<uint64_t>* fence,
                                      uint64_t value) {
  Queue* const queue = lane_->queue.get();
  if (passes()) [[likely]]
    return queue->WriteFence(space, fence, value);
  return Park(0, [queue, &space, fence, value] { return queue->WriteFence(space, fence, value); });
}

absl::Status ParkingQueue::WaitFence(AddressSpace& space, const std::atomic<uint64_t>* fence,
                                     uint64_t value) {
  Queue* const queue = lane_->queue.get();
  if (passes()) return queue->WaitFence(space, fence, value);
  return Park(0, [queue, &space, fence, value] { return queue->WaitFence(space, fence, value); });
}

absl::Status ParkingQueue::MemoryOps(AddressSpace& space, absl::Span<const MemoryOp> operations) {
  Queue* const queue = lane_->queue.get();
  while (!operations.empty()) {
    if (operations.front().is_wait()) {
      Parking::Item item;
      item.word = std::make_shared<Parking::Word>(Parking::Word{operations.front()});
      item.space = &space;
      parking_.Add(lane_, std::move(item));
      operations.remove_prefix(1);
      continue;
    }
    const auto others = operations.first(
        std::find_if(operations.begin(), operations.end(), std::mem_fn(&MemoryOp::is_wait)) -
        operations.begin());
    operations.remove_prefix(others.size());
    if (passes()) {
      DETSHARE_RETURN_IF_ERROR(queue->MemoryOps(space, others));
    } else {
      DETSHARE_RETURN_IF_ERROR(
          Park(others.size() * sizeof(MemoryOp),
               [queue, &space, own = std::vector<MemoryOp>(others.begin(), others.end())] {
                 return std::all_of(own.begin(), own.end(),
                                    [&](const MemoryOp& one) { return HoldsMemoryOf(space, one); })
                            ? queue->MemoryOps(space, own)
                            : Freed();
               }));
    }
  }
  if (!passes()) parking_.Pump();
  return absl::OkStatus();
}

absl::Status ParkingQueue::Record(Marker& marker) {
  if (marker.parked_ != nullptr) [[unlikely]]
    std::exchange(marker.parked_, nullptr)->marker = nullptr;
  if (passes()) [[likely]]
    return lane_->queue->Record(marker);
  auto point = std::make_shared<Parking::Point>();
  point->marker = &marker;
  point->lane = lane_;
  marker.parked_ = point;
  Parking* const parking = &parking_;
  return Park(sizeof(Parking::Point),
              [parking, point] { return parking->RecordNow(*point->lane, *point); });
}

absl::Status ParkingQueue::Wait(Marker& marker) {
  if (!marker.parked()) [[likely]] {
    if (passes()) [[likely]]
      return lane_->queue->Wait(marker);
    return parking_.Keep(lane_, marker);
  }
  const auto point = std::static_pointer_cast<Parking::Point>(marker.parked_);
  if (point->lane == lane_)
    return absl::OkStatus();  // the work before the point comes first anyway
  point->waiting.push_back(lane_);
  Parking::Item item;
  item.point = point;
  parking_.Add(lane_, std::move(item));
  return absl::OkStatus();
}

absl::Status ParkingQueue::LaunchGraph(AddressSpace& space, Graph& graph,
                                       absl::Span<const uint64_t> values) {
  Queue* const queue = lane_->queue.get();
  if (passes()) [[likely]]
    return queue->LaunchGraph(space, graph, values);
  Parking::Item item;
  item.work = [queue, &space, &graph, own = std::vector<uint64_t>(values.begin(), values.end())] {
    return queue->LaunchGraph(space, graph, own);
  };
  item.graph = &graph;
  item.bytes = values.size() * sizeof(uint64_t);
  parking_.Add(lane_, std::move(item));
  return absl::OkStatus();
}

bool ParkingQueue::Idle() { return passes() && lane_->queue->Idle(); }

absl::Status ParkingQueue::UploadGraph(AddressSpace& space, Graph& graph) {
  return lane_->queue->UploadGraph(space, graph);
}

std::unique_ptr<Queue> ParkingQueue::Close() {
  return passes() ? std::move(lane_->queue) : nullptr;
}

}  // namespace detshare
