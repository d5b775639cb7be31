#include "coroutine_runtime/queue_pool.h"

#include <algorithm>

#include "coroutine_runtime/status_cuda.h"

namespace detshare {

namespace {

// Null if there is none.
std::unique_ptr<Queue> TakeLast(std::vector<std::unique_ptr<Queue>>& queues) {
  if (queues.empty()) return nullptr;
  std::unique_ptr<Queue> last = std::move(queues.back());
  queues.pop_back();
  return last;
}

}  // namespace

int QueuePriority(const DeviceProperties& properties, int stream_priority, bool urgent) {
  // CUDA counts downwards: the greatest priority is the smallest number.
  const int least = properties.least_stream_priority;
  const int half = (least - properties.greatest_stream_priority + 1) / 2;
  if (half < 1) return stream_priority;
  return std::clamp(stream_priority, least - (half - 1), least) - (urgent ? half : 0);
}

int QueuePool::Clamp(int priority) const {
  const DeviceProperties& properties = device_.properties();
  // CUDA counts downwards: the greatest priority is the smallest number.
  return std::clamp(
      priority, properties.greatest_stream_priority,
      std::max(properties.greatest_stream_priority, properties.least_stream_priority));
}

absl::StatusOr<std::unique_ptr<Queue>> QueuePool::Acquire(Partition& partition, int priority,
                                                          int held) {
  priority = Clamp(priority);
  std::unique_ptr<Queue> other;  // makes room for the new one
  {
    MutexLock lock(&mutex_);
    if (in_use_ >= limit_)
      return CudaError(kCudaErrorOutOfMemory, "all physical streams of the device are in use");
    if (held >= limit_ - in_use_) {
      return CudaError(
          kCudaErrorOutOfMemory,
          "the program has work in its share of the device's physical streams: wait for "
          "some of the work, or use fewer streams");
    }
    ++in_use_;
    if (std::unique_ptr<Queue> queue = TakeLast(idle_[{&partition, priority}])) return queue;
    if (existing_ >= limit_) {
      for (auto& [use, idle] : idle_) {
        if (other == nullptr) other = TakeLast(idle);
      }
    } else {
      ++existing_;
    }
  }
  other.reset();
  absl::StatusOr<std::unique_ptr<Queue>> queue = partition.CreateQueue(priority);
  if (!queue.ok()) {
    MutexLock lock(&mutex_);
    --existing_;
    --in_use_;
  }
  return queue;
}

void QueuePool::Release(Partition& partition, int priority, std::unique_ptr<Queue> queue) {
  MutexLock lock(&mutex_);
  --in_use_;
  idle_[{&partition, Clamp(priority)}].push_back(std::move(queue));
}

void QueuePool::Discard(std::unique_ptr<Queue> queue) {
  if (queue == nullptr) return;
  queue.reset();
  MutexLock lock(&mutex_);
  --existing_;
  --in_use_;
}

absl::Status QueuePool::Prepare(Partition& partition, int priority, int count) {
  std::vector<std::unique_ptr<Queue>> queues;
  absl::Status status;
  while (static_cast<int>(queues.size()) < count && status.ok()) {
    absl::StatusOr<std::unique_ptr<Queue>> queue = Acquire(partition, priority);
    status = queue.status();
    if (queue.ok()) queues.push_back(*std::move(queue));
  }
  for (std::unique_ptr<Queue>& queue : queues) Release(partition, priority, std::move(queue));
  return status;
}

absl::StatusOr<PooledQueue> PooledQueue::Acquire(QueuePool& pool, Partition& partition,
                                                 int priority, AddressSpace& space,
                                                 Parking& parking, int* held) {
  absl::StatusOr<std::unique_ptr<Queue>> queue =
      pool.Acquire(partition, priority, held != nullptr ? *held : 0);
  if (!queue.ok()) return queue.status();
  (*queue)->Serve(space);
  PooledQueue loan;
  loan.pool_ = &pool;
  loan.partition_ = &partition;
  loan.priority_ = priority;
  loan.held_ = held;
  if (held != nullptr) ++*held;
  loan.queue_ = parking.Open(pool, partition, space, *std::move(queue));
  return loan;
}

PooledQueue& PooledQueue::operator=(PooledQueue&& other) noexcept {
  if (this != &other) {
    Discard();
    pool_ = other.pool_;
    partition_ = other.partition_;
    priority_ = other.priority_;
    held_ = other.held_;
    queue_ = std::move(other.queue_);
  }
  return *this;
}

PooledQueue::~PooledQueue() { Discard(); }

void PooledQueue::Discard() {
  if (queue_ == nullptr) return;
  pool_->Discard(std::move(queue_));
  if (held_ != nullptr) --*held_;
}

void PooledQueue::ReturnIdle() {
  if (queue_ == nullptr) return;
  std::unique_ptr<Queue> queue = queue_->Close();
  if (queue == nullptr) return Discard();
  pool_->Release(*partition_, priority_, std::move(queue));
  queue_ = nullptr;
  if (held_ != nullptr) --*held_;
}

}  // namespace detshare
