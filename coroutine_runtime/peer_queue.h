// A stream's queue on another device of the session.
//
// The other device (the host of the work) executes work of the stream because the memory is there:
//
//     stream's queue --arrived--> queue at the host --done--> stream's queue
//
// Each stream has queues of its own at each host, so that streams do not wait for each other.
//
// Ownership: the queue is on loan from the host's pool, which outlives this object. Threading: one
// thread. No call waits for a GPU. Errors are the devices'.
#pragma once

#include <memory>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coroutine_runtime/device.h"
#include "coroutine_runtime/queue_pool.h"

namespace detshare {

class PeerQueue {
 public:
  // `home`: the stream's own device. `host`: the pool of the other device, which `partition`,
  // `priority` (QueuePriority()) and `space` are of.
  static absl::StatusOr<PeerQueue> Create(Device& home, QueuePool& host, Partition& partition,
                                          int priority, AddressSpace& space, Parking& parking);

  bool IsAt(const QueuePool& host) const { return host_ == &host; }
  // Where the queue is.
  const Partition& partition() const { return *queue_.partition(); }
  // Submits work to the host between earlier and later work of `home`, the stream's queue. `submit`
  // gets the queue at the host. An error may leave the work without its order to later work.
  absl::Status Run(Queue& home, absl::FunctionRef<absl::Status(Queue&)> submit);
  // Gives the queue back. The stream's work is complete.
  void ReturnIdle() { queue_.ReturnIdle(); }

 private:
  PeerQueue() = default;

  const QueuePool* host_ = nullptr;
  PooledQueue queue_;
  std::unique_ptr<Marker> arrived_, done_;  // of the stream's device, and of the host
};

}  // namespace detshare
