// Looks after one GPU in the background: notices faults while work is in flight, and does what
// would hold up everybody's launches (unregistering memory, unloading code) when nothing is in
// flight.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <list>
#include <mutex>
#include <thread>

#include "coroutine_runtime/clock.h"
#include "server/backends/cuda/cuda_context.h"

namespace detshare::cuda {

class DeferredReclaimer {
 public:
  explicit DeferredReclaimer(CudaContext& context);
  // Does what is left to do, whatever is in flight, unless the context is lost.
  ~DeferredReclaimer();

  // Says that work is about to be submitted. Cheap while the deferred reclaimer is awake already. Any
  // thread.
  void NoteWork() {
    if (!watched_.load()) Wake();
  }

  // Runs `work` in the background when the GPU is idle, or after half a minute in spite of work in
  // flight. Any thread.
  void Later(std::function<void()> work);

 private:
  struct Item {
    std::function<void()> work;
    int64_t deadline_ns;
  };

  void Wake();
  void Run();
  // Runs what may run now.
  void Reclaim();

  CudaContext& context_;
  const RealClock clock_;

  // Whether the thread polls. Whoever submits work counts it in StreamState first and then looks
  // here; the thread clears this first and then looks at the counts: one of them sees the other
  // (sequentially consistent).
  std::atomic<bool> watched_{false};

  std::mutex mutex_;
  std::condition_variable wake_;
  bool stop_ = false;      // guarded by mutex_
  std::list<Item> later_;  // guarded by mutex_
  std::thread thread_;
};

}  // namespace detshare::cuda
