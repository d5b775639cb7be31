// Physical queues of one device, kept for reuse because creating one is slow.
//
// All sessions of the process share them. No session gets more than half of what the others leave, so
// that one session cannot take the last ones.
#pragma once

#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coroutine_runtime/device.h"
#include "coroutine_runtime/parking.h"
#include "proto/mutex.h"

namespace detshare {

// Returns the priority of a physical queue. The upper half of the device's priorities is for urgent
// work. Within a half, a stream keeps its own priority as far as there is room, counted from the
// lowest.
int QueuePriority(const DeviceProperties& properties, int stream_priority, bool urgent);

// Threading: any thread.
class QueuePool {
 public:
  // `limit`: maximum number of queues at a time, over all partitions.
  explicit QueuePool(Device& device, int limit = 4096) : device_(device), limit_(limit) {}

  Device& device() { return device_; }

  // Returns an idle queue of `partition`. Priorities (QueuePriority()) outside the device's range
  // are clamped, as CUDA does. At the limit, an idle queue of another partition or priority makes room.
  // ResourceExhausted (CUDA_ERROR_OUT_OF_MEMORY) if all queues are in use, or if no more than `held`
  // are free: so many has the session for its streams already.
  absl::StatusOr<std::unique_ptr<Queue>> Acquire(Partition& partition, int priority, int held = 0);
  // Takes back a queue that has no queued work any more. The next user may be another session,
  // which must not wait for that work.
  void Release(Partition& partition, int priority, std::unique_ptr<Queue> queue);
  // Destroys a queue that may still have work.
  void Discard(std::unique_ptr<Queue> queue);
  // Ensures that at least `count` idle queues are ready.
  absl::Status Prepare(Partition& partition, int priority, int count);

 private:
  int Clamp(int priority) const;

  Device& device_;
  const int limit_;
  Mutex mutex_;
  int existing_ ABSL_GUARDED_BY(mutex_) = 0;
  int in_use_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<std::pair<Partition*, int>, std::vector<std::unique_ptr<Queue>>> idle_
      ABSL_GUARDED_BY(mutex_);
};

// A queue on loan from a pool, which outlives it. Empty if made without a pool.
//
// The destructor destroys the queue, because the queue may still have work, and the pool's next
// user must not wait for that. Threading: one thread.
class PooledQueue {
 public:
  PooledQueue() = default;
  // For the session of `space`, whose parked work `parking` keeps. `held` counts the session's queues for
  // streams, this one included until it is given back, and outlives it; null: it is not counted. Errors
  // are those of QueuePool::Acquire().
  static absl::StatusOr<PooledQueue> Acquire(QueuePool& pool, Partition& partition, int priority,
                                             AddressSpace& space, Parking& parking,
                                             int* held = nullptr);
  PooledQueue(PooledQueue&& other) noexcept = default;
  PooledQueue& operator=(PooledQueue&& other) noexcept;
  ~PooledQueue();

  // Gives the queue back to the pool. The queue has no queued work any more. Does nothing if there
  // is no queue.
  void ReturnIdle();
  Partition* partition() const { return partition_; }
  int priority() const { return priority_; }  // as it was asked for
  Queue* get() const { return queue_.get(); }

 private:
  void Discard();

  QueuePool* pool_ = nullptr;
  Partition* partition_ = nullptr;
  int priority_ = 0;
  int* held_ = nullptr;
  std::unique_ptr<ParkingQueue> queue_;
};

}  // namespace detshare
