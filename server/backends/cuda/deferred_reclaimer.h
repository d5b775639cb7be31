// Watches one GPU in the background. It notices faults while work is in flight. It also makes the
// calls that would delay all launches (unregistering memory, unloading code) when nothing is in
// flight.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <list>
#include <thread>

#include "coroutine_runtime/clock.h"
#include "proto/mutex.h"
#include "server/backends/cuda/cuda_context.h"

namespace detshare::cuda {

class DeferredReclaimer {
 public:
  explicit DeferredReclaimer(CudaContext& context);
  // Makes the calls that are left, even while work is in flight, unless the context is lost.
  ~DeferredReclaimer();

  // Tells that work will be submitted. Cheap while the thread is awake. Any thread may call it.
  void NoteWork() {
    if (!watched_.load()) Wake();
  }

  // The groups that a call drains.
  enum class Drains { kOrdinary, kUrgent, kBoth };
  static Drains Of(const CudaGroup& group) {
    return group.urgent ? Drains::kUrgent : Drains::kOrdinary;
  }
  // Runs `work` in the background when the groups are idle, or after half a minute even while work
  // is in flight (unless a stream waits for its client). Any thread may call it.
  void Later(Drains drains, std::function<void()> work);
  // Makes the calls that are left, of each group for which an idle moment comes within `limit`, but not
  // those that drain both. On behalf of `space`, in this thread. Returns whether it made some.
  bool MakeNow(CudaAddressSpace& space, std::chrono::milliseconds limit);

 private:
  struct Item {
    Drains drains;
    std::function<void()> work;
    int64_t deadline_ns;
  };

  void Wake();
  void Run();
  // Runs the items for which the moment is right.
  void Reclaim();
  bool TryRun(const Item& item);
  // Removes the first item of the kind.
  std::list<Item> Take(Drains drains);
  bool Has(Drains drains);

  CudaContext& context_;
  const RealClock clock_;

  // Whether the thread polls. A thread that submits work first counts it in StreamState and then
  // reads this flag. The background thread first clears the flag and then reads the counts. So one
  // of them sees the other's store (sequentially consistent).
  std::atomic<bool> watched_{false};

  // Held by the thread that has taken items, so that they run in their order. The background thread
  // holds it while it tries to enter an idle moment; MakeNow() locks it inside of one.
  Mutex order_;
  Mutex mutex_;  // after order_
  CondVar wake_;
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  std::list<Item> later_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace detshare::cuda
