// One time-slice group of a GPU: a context, its streams, and the calls that drain it.
//
// Streams and green contexts belong to the channel group of their context, so kernels of one
// context never stop each other, and kernels of two contexts never run beside each other. All
// contexts of the process share one address space: memory, arrays and registered host memory of
// one are valid in the others. Variables of libraries, textures, surfaces, conditional handles,
// functions and events are not: each context has its own. Slow calls in one context do not delay
// launches in another (measured on an H200, driver 580: docs/preemption.md).
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "proto/mutex.h"
#include "server/backends/cuda/driver_api.h"
#include "server/backends/cuda/graph_order.h"
#include "server/backends/cuda/idle_window.h"
#include "server/backends/cuda/ordinary_slice.h"

namespace detshare::cuda {

class CudaAddressSpace;
class CudaContext;
class CudaGroup;

// A physical stream. Its queue keeps it, and so do address spaces whose work may be on it.
struct StreamState {
  StreamState(CudaGroup& group, CUstream stream) : group(group), stream(stream) {}
  ~StreamState();

  CudaGroup& group;
  const CUstream stream;
  // The space of the latest work. Changes only while the stream is idle. It tells the thread that
  // handles a fault, and the space's own Busy(), to which space the stream's work belongs.
  std::atomic<CudaAddressSpace*> space{nullptr};
  // `submitted` counts the work that the queue's thread has submitted, or submits now. `completed` is
  // the value of `submitted` at which Busy() last saw the stream idle. Both are sequentially
  // consistent with the `watched_` of DeferredReclaimer.
  std::atomic<uint64_t> submitted{0};
  std::atomic<uint64_t> completed{0};
  // Set while the queue's thread submits work: before it counts the work, until the driver has it.
  // Tells the thread that waits in IdleWindow (see IdleWindow::holding).
  //
  // A thread that asks whether the stream is idle reads in this order, sequentially consistent:
  //   1. `entering`. If it is clear, a submission that comes after it obeys IdleWindow::holding() and
  //      GraphOrder::applies_, and `submitted` counts each one before it.
  //   2. `submitted`, and whether it is `completed`.
  //   3. `entering` once more. If it is clear, the driver has all the work of 2, so it may be asked
  //      whether that work is complete.
  std::atomic<bool> entering{false};
};

// Threading: any thread.
class CudaGroup {
 public:
  // Does not own `context`.
  CudaGroup(CudaContext& gpu, CUcontext context, bool urgent)
      : gpu(gpu), context(context), urgent(urgent) {}
  CudaGroup(const CudaGroup&) = delete;
  CudaGroup& operator=(const CudaGroup&) = delete;

  CudaContext& gpu;
  const CUcontext context;
  const bool urgent;  // whether its work stops that of the other group
  // Null, unless this is the ordinary group and there is an urgent one. Set before other threads use
  // the object.
  std::unique_ptr<OrdinarySlice> slice;

  // Makes the context current in this thread. Only this backend sets contexts in the daemon's
  // threads.
  void Enter() const;

  // Streams whose work may be in flight.
  void AddStream(const std::shared_ptr<StreamState>& stream);
  std::vector<std::shared_ptr<StreamState>> Streams();
  // Returns whether a stream has work in flight or a thread submits some. Asks the driver about
  // each stream that may have work.
  bool Busy();

  IdleWindow idle{*this};
  GraphOrder graph_order{*this};
  // The largest local memory per thread that a launched kernel needed. Relaxed: a thread that sees
  // an old value only takes the slow path of a launch.
  std::atomic<uint32_t> local_bytes{0};

 private:
  Mutex mutex_;
  std::vector<std::weak_ptr<StreamState>> streams_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace detshare::cuda
