#include "client_shim/work/clean_up.h"

#include <pthread.h>

#include <condition_variable>
#include <list>
#include <mutex>
#include <utility>

#include "client_shim/base/signal_mask.h"

namespace detshare::shim {
namespace {

class Cleaner {
 public:
  static Cleaner& Get() {
    static Cleaner* const cleaner = new Cleaner;
    return *cleaner;
  }

  void Add(std::function<void()> task) {
    const std::lock_guard lock(mutex_);
    tasks_.push_back(std::move(task));
    if (!started_) Start();
    changed_.notify_one();
  }

 private:
  void Start() {
    const SignalsBlocked for_the_thread;
    pthread_t thread;
    started_ = pthread_create(&thread, nullptr, Main, this) == 0;
    if (!started_) return;
    pthread_detach(thread);
    pthread_setname_np(thread, "detshare-clean");
  }

  static void* Main(void* self) {
    static_cast<Cleaner*>(self)->Loop();
    return nullptr;
  }

  void Loop() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [this] { return !tasks_.empty(); });
      std::function<void()> task = std::move(tasks_.front());
      tasks_.pop_front();
      lock.unlock();
      task();
      task = nullptr;  // its destruction may add a task
      lock.lock();
    }
  }

  std::mutex mutex_;  // guards the rest
  std::condition_variable changed_;
  std::list<std::function<void()>> tasks_;
  bool started_ = false;
};

}  // namespace

void CleanUpLater(std::function<void()> task) { Cleaner::Get().Add(std::move(task)); }

}  // namespace detshare::shim
