#include "client_shim/work/copy_threads.h"

#include <pthread.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>

#include "client_shim/base/signal_mask.h"
#include "client_shim/base/usable_cpus.h"

namespace detshare::shim {
namespace {

constexpr int kMaxHelpers = 3;

class Helpers {
 public:
  void Run(void (*work)(void*), void* context) {
    const std::unique_lock busy(run_mutex_, std::try_to_lock);
    if (!busy) return work(context);
    {
      const std::lock_guard lock(mutex_);
      StartThreads();
      work_ = work;
      context_ = context;
      ++job_;
    }
    wake_.notify_all();
    work(context);
    std::unique_lock lock(mutex_);
    // A helper that has not begun must not begin any more.
    work_ = nullptr;
    idle_.wait(lock, [this] { return running_ == 0; });
  }

 private:
  void StartThreads() {
    if (started_) return;
    started_ = true;
    const SignalsBlocked for_the_threads;
    // The helpers inherit this thread's affinity.
    const int helpers = std::min(kMaxHelpers, UsableCpus() - 1);
    for (int i = 0; i < helpers; ++i) {
      pthread_t thread;
      if (pthread_create(&thread, nullptr, Main, this) != 0) break;
      pthread_detach(thread);
      pthread_setname_np(thread, "detshare-copy");
    }
  }

  static void* Main(void* self) {
    static_cast<Helpers*>(self)->Loop();
    return nullptr;
  }

  void Loop() {
    std::unique_lock lock(mutex_);
    for (uint64_t seen = 0;;) {
      wake_.wait(lock, [&] { return job_ != seen; });
      seen = job_;
      if (work_ == nullptr) continue;
      const auto work = work_;
      void* const context = context_;
      ++running_;
      lock.unlock();
      work(context);
      lock.lock();
      if (--running_ == 0) idle_.notify_all();
    }
  }

  std::mutex run_mutex_;  // held by the copy that has the helpers
  std::mutex mutex_;      // guards the rest
  std::condition_variable wake_, idle_;
  bool started_ = false;
  uint64_t job_ = 0;
  int running_ = 0;
  void (*work_)(void*) = nullptr;
  void* context_ = nullptr;
};

}  // namespace

void RunWithHelpers(void (*work)(void* context), void* context) {
  static Helpers* const helpers = new Helpers;
  helpers->Run(work, context);
}

}  // namespace detshare::shim
