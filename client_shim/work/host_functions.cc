#include "client_shim/work/host_functions.h"

#include <pthread.h>
#include <sys/prctl.h>

#include <algorithm>
#include <condition_variable>
#include <list>
#include <mutex>

#include "client_shim/base/futex.h"
#include "client_shim/base/signal_mask.h"
#include "client_shim/transport/read_digest.h"
#include "client_shim/transport/session.h"
#include "client_shim/work/streams.h"
#include "proto/wire/stream.h"

namespace detshare::shim {
namespace {

// In microseconds.
constexpr uint32_t kShortestNap = 10;
constexpr uint32_t kLongestNapAtFirst = 20;
constexpr uint32_t kLongestNap = 50;

class Runner {
 public:
  static Runner& Get() {
    static Runner* const runner = new Runner;
    return *runner;
  }

  CUresult Enqueue(Stream& stream, const HostFunction& function) {
    const std::lock_guard stream_lock(stream.lock);
    FenceAllocator& fences = session().fences();
    if (stream.host_reached == kNoFence) {
      const OwnedFence reached = fences.Take();
      const OwnedFence resume = fences.Take();
      if (reached.index == kNoFence || resume.index == kNoFence) {
        fences.Give(reached.index, reached.value);
        return CUDA_ERROR_OUT_OF_MEMORY;
      }
      stream.host_reached = reached.index;
      stream.host_reached_value = reached.value;
      stream.host_resume = resume.index;
      stream.host_resume_value = resume.value;
    }
    {
      const std::lock_guard lock(mutex_);
      if (!started_ && !Start()) return CUDA_ERROR_OUT_OF_MEMORY;
    }
    // Without mutex_: the ring may be full of work that waits for a function, which the thread takes
    // under mutex_. The stream's lock keeps its functions in order.
    const CUresult result =
        SubmitWork(stream, Op::cuLaunchHostFunc,
                   wire::cuLaunchHostFunc{stream.id,
                                          stream.host_resume,
                                          stream.host_resume_value + 1,
                                          {stream.host_reached_value + 1, stream.host_reached, 0}});
    if (result != CUDA_SUCCESS) return result;
    ++stream.host_reached_value;
    ++stream.host_resume_value;
    const std::lock_guard lock(mutex_);
    pending_.push_back({stream.host_reached, stream.host_reached_value, stream.host_resume,
                        stream.host_resume_value,
                        [function](CUresult status) { Call(function, status); }});
    changed_.notify_one();
    return CUDA_SUCCESS;
  }

  bool Enqueue(HostTask task) {
    const std::lock_guard lock(mutex_);
    if (!started_ && !Start()) return false;
    pending_.push_back(std::move(task));
    changed_.notify_one();
    return true;
  }

 private:
  bool Start() {
    const SignalsBlocked for_the_thread;
    pthread_t thread;
    started_ = pthread_create(&thread, nullptr, Main, this) == 0;
    if (!started_) return false;
    pthread_detach(thread);
    pthread_setname_np(thread, "detshare-host");
    return true;
  }

  static void* Main(void* self) {
    static_cast<Runner*>(self)->Loop();
    return nullptr;
  }

  // Takes the first task whose fence has reached its value. Streams may wait for each other, so the
  // task that was added first need not run first. Tasks of one stream are in their order in the
  // list. One may be reached before it is in the list.
  bool TakeReady(HostTask* ready) {
    FenceAllocator& fences = session().fences();
    for (auto it = pending_.begin(); it != pending_.end(); ++it) {
      if (it->reached != kNoFence && !fences.Reached(it->reached, it->reached_value)) continue;
      *ready = std::move(*it);
      pending_.erase(it);
      return true;
    }
    return false;
  }

  void Loop() {
    // Naps take as long as they should, and not 50 us longer.
    prctl(PR_SET_TIMERSLACK, 1);
    uint64_t since_us = 0;
    uint32_t nap_us = 0;
    const auto begin_again = [&] {
      since_us = NowMicroseconds();
      nap_us = kShortestNap;
    };
    std::unique_lock lock(mutex_);
    for (;;) {
      if (pending_.empty()) {
        changed_.wait(lock);
        begin_again();
        continue;
      }
      HostTask ready;
      if (TakeReady(&ready)) {
        lock.unlock();
        Run(ready);
        // Destroying a task may enqueue another task.
        ready = {};
        lock.lock();
        begin_again();
        continue;
      }
      lock.unlock();
      // The GPU wakes no thread, so this thread looks again soon, and then less often.
      const uint64_t waited_us = NowMicroseconds() - since_us;
      if (waited_us < session().spin_us()) {
        SpinUntil([] { return false; }, 5);
      } else {
        const timespec nap{0, nap_us * 1000L};
        nanosleep(&nap, nullptr);
        // While other waits would still poll, a program that waits for its function must not notice
        // the naps.
        const uint32_t longest =
            waited_us < session().wait_spin_us() ? kLongestNapAtFirst : kLongestNap;
        nap_us = std::min(nap_us + 5, longest);
      }
      if (session().closed()) {
        std::list<HostTask> dropped;
        lock.lock();
        dropped.swap(pending_);
        lock.unlock();
        dropped.clear();
        lock.lock();
        continue;
      }
      lock.lock();
    }
  }

  static void Call(const HostFunction& function, CUresult status) {
    if (function.callback != nullptr) {
      thread_state.in_host_function = true;
      function.callback(function.stream_handle, status, function.data);
      thread_state.in_host_function = false;
    } else if (status == CUDA_SUCCESS) {
      CallHostFunction(function.function, function.data);
    }
  }

  static void Run(const HostTask& task) {
    CollectReads();  // the function knows that they are complete
    task.run(session().sticky_error());
    // Release: what the task did happens before the stream's later work.
    if (task.resume == kNoFence) return;
    session().fences()[task.resume].store(task.resume_value, std::memory_order_release);
    session().ring().WakeReader();
  }

  std::mutex mutex_;  // guards the rest
  std::condition_variable changed_;
  std::list<HostTask> pending_;
  bool started_ = false;
};

}  // namespace

CUresult EnqueueHostFunction(Stream& stream, const HostFunction& function) {
  return Runner::Get().Enqueue(stream, function);
}

bool EnqueueHostTask(HostTask task) { return Runner::Get().Enqueue(std::move(task)); }

void CallHostFunction(CUhostFn function, void* data) {
  thread_state.in_host_function = true;
  function(data);
  thread_state.in_host_function = false;
}

}  // namespace detshare::shim
