#include "client_shim/host_functions.h"

#include <pthread.h>

#include <condition_variable>
#include <list>
#include <mutex>

#include "client_shim/futex.h"
#include "client_shim/session.h"
#include "client_shim/signal_mask.h"
#include "client_shim/streams.h"
#include "proto/wire/stream.h"

namespace detshare::shim {
namespace {

class Runner {
 public:
  CUresult Enqueue(Stream& stream, const HostFunction& function) {
    const std::lock_guard stream_lock(stream.lock);
    FencePool& fences = session().fences();
    if (stream.host_reached == kNoFence) {
      const FenceLease reached = fences.Take();
      const FenceLease resume = fences.Take();
      if (reached.index == kNoFence || resume.index == kNoFence) {
        fences.Give(reached.index, reached.value);
        return CUDA_ERROR_OUT_OF_MEMORY;
      }
      stream.host_reached = reached.index;
      stream.host_reached_value = reached.value;
      stream.host_resume = resume.index;
      stream.host_resume_value = resume.value;
    }
    const std::lock_guard lock(mutex_);
    if (!started_ && !Start()) return CUDA_ERROR_OUT_OF_MEMORY;
    const CUresult result =
        SubmitWork(stream, Op::cuLaunchHostFunc,
                   wire::cuLaunchHostFunc{stream.id,
                                          stream.host_resume,
                                          stream.host_resume_value + 1,
                                          {stream.host_reached_value + 1, stream.host_reached, 0}});
    if (result != CUDA_SUCCESS) return result;
    ++stream.host_reached_value;
    ++stream.host_resume_value;
    pending_.push_back({function, stream.host_reached, stream.host_reached_value,
                        stream.host_resume, stream.host_resume_value});
    changed_.notify_one();
    return CUDA_SUCCESS;
  }

 private:
  struct Pending {
    HostFunction function;
    FenceIndex reached;
    uint64_t reached_value;
    FenceIndex resume;
    uint64_t resume_value;
  };

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

  // The first function whose stream has arrived, taken out. (Streams wait for each other, so the
  // first to come need not be the first to run.)
  bool TakeReady(Pending* ready) {
    FencePool& fences = session().fences();
    for (auto it = pending_.begin(); it != pending_.end(); ++it) {
      if (!fences.Reached(it->reached, it->reached_value)) continue;
      *ready = *it;
      pending_.erase(it);
      return true;
    }
    return false;
  }

  void Loop() {
    uint32_t nap_us = 0;
    std::unique_lock lock(mutex_);
    for (;;) {
      if (pending_.empty()) {
        changed_.wait(lock);
        nap_us = 0;
        continue;
      }
      Pending ready;
      if (TakeReady(&ready)) {
        lock.unlock();
        Run(ready);
        lock.lock();
        nap_us = 0;
        continue;
      }
      lock.unlock();
      // The GPU wakes nobody: look again soon, then less often.
      if (nap_us == 0) {
        SpinUntil([] { return false; }, 10);
        nap_us = 10;
      } else {
        const timespec nap{0, nap_us * 1000L};
        nanosleep(&nap, nullptr);
        if (nap_us < 200) nap_us += 10;
      }
      if (session().closed()) {
        lock.lock();
        pending_.clear();
        continue;
      }
      lock.lock();
    }
  }

  static void Run(const Pending& pending) {
    const CUresult status = session().sticky_error();
    thread_state.in_host_function = true;
    if (pending.function.callback != nullptr) {
      pending.function.callback(pending.function.stream_handle, status, pending.function.data);
    } else if (status == CUDA_SUCCESS) {
      pending.function.function(pending.function.data);
    }
    thread_state.in_host_function = false;
    // Release: what the function did happens before what follows in the stream.
    session().fences()[pending.resume].store(pending.resume_value, std::memory_order_release);
  }

  std::mutex mutex_;  // guards the rest
  std::condition_variable changed_;
  std::list<Pending> pending_;
  bool started_ = false;
};

}  // namespace

CUresult EnqueueHostFunction(Stream& stream, const HostFunction& function) {
  static Runner* const runner = new Runner;
  return runner->Enqueue(stream, function);
}

}  // namespace detshare::shim
