// Physical queues of one device, kept for reuse: making one is slow.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coroutine_runtime/device.h"

namespace detshare {

// The priority of a physical queue. The device's priorities are divided: the greater half is for
// work that is urgent, and within a half a stream keeps its own as far as there is room, from the
// least on.
int QueuePriority(const DeviceProperties& properties, int stream_priority, bool urgent);

// Any thread.
class QueuePool {
 public:
  // `limit`: queues that may exist at a time, over all partitions.
  explicit QueuePool(Device& device, int limit = 4096) : device_(device), limit_(limit) {}

  Device& device() { return device_; }

  // An idle queue of `partition`. Priorities (QueuePriority()) outside of the device's range are
  // clamped, as CUDA does. ResourceExhausted (CUDA_ERROR_OUT_OF_MEMORY) when all are in use.
  absl::StatusOr<std::unique_ptr<Queue>> Acquire(Partition& partition, int priority);
  // Takes back a queue on which nothing is queued any more: the next user may be another session,
  // which must not wait for it.
  void Release(Partition& partition, int priority, std::unique_ptr<Queue> queue);
  // Ends a queue that may still have work.
  void Discard(std::unique_ptr<Queue> queue);
  // Has at least `count` idle queues ready.
  absl::Status Prepare(Partition& partition, int priority, int count);

 private:
  int Clamp(int priority) const;

  Device& device_;
  const int limit_;
  std::mutex mutex_;
  int existing_ = 0;
  std::map<std::pair<Partition*, int>, std::vector<std::unique_ptr<Queue>>> idle_;
};

}  // namespace detshare
