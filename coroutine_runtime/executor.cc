#include "coroutine_runtime/executor.h"

#include <algorithm>
#include <utility>

namespace detshare {

// The frame that keeps a spawned task. It takes itself off the executor's list when the task ends.
struct Executor::Root {
  struct promise_type {
    promise_type(Executor* executor, Task<void>&) : executor(executor) {}
    Root get_return_object() {
      return Root{std::coroutine_handle<promise_type>::from_promise(*this)};
    }
    std::suspend_always initial_suspend() const noexcept { return {}; }
    struct Finish {
      bool await_ready() const noexcept { return false; }
      void await_suspend(std::coroutine_handle<promise_type> ended) const noexcept {
        std::vector<std::coroutine_handle<>>& roots = ended.promise().executor->roots_;
        const auto self = std::find(roots.begin(), roots.end(), ended);
        *self = roots.back();
        roots.pop_back();
        ended.destroy();
      }
      void await_resume() const noexcept {}
    };
    Finish final_suspend() const noexcept { return {}; }
    void return_void() const noexcept {}
    void unhandled_exception() const noexcept { std::terminate(); }

    Executor* executor;
  };
  std::coroutine_handle<promise_type> handle;
};

Executor::Root Executor::Run(Executor*, Task<void> task) { co_await task; }

Executor::Executor(std::function<void()> wake) : wake_(std::move(wake)) {}

Executor::~Executor() {
  // Destroying a frame may release objects, but resumes no coroutine. So the order does not matter.
  waiters_.clear();
  pauses_.clear();
  while (!roots_.empty()) {
    const std::coroutine_handle<> root = roots_.back();
    roots_.pop_back();
    root.destroy();
  }
}

void Executor::Post(std::function<void()> function) {
  {
    MutexLock lock(&mutex_);
    posted_.push_back(std::move(function));
  }
  has_posted_.store(true, std::memory_order_release);
  if (wake_) wake_();
}

void Executor::Spawn(Task<void> task) {
  const Root root = Run(this, std::move(task));
  roots_.push_back(root.handle);
  root.handle.resume();
}

bool Executor::FenceAwaiter::await_ready() const noexcept {
  return executor_.aborted_ || IsReached();
}

void Executor::FenceAwaiter::await_suspend(std::coroutine_handle<> awaiting) {
  awaiting_ = awaiting;
  executor_.waiters_.push_back(this);
  ++executor_.waiting_for_[writer_];
}

bool Executor::FenceAwaiter::await_resume() const noexcept { return IsReached(); }

size_t Executor::Poll() {
  size_t ran = 0;
  if (has_posted_.load(std::memory_order_acquire)) {
    std::vector<std::function<void()>> functions;
    {
      MutexLock lock(&mutex_);
      has_posted_.store(false, std::memory_order_relaxed);
      functions.swap(posted_);
    }
    for (std::function<void()>& function : functions) function();
    ran += functions.size();
  }
  if (!waiters_.empty() || !pauses_.empty()) {
    // A resumed task may wait again or spawn others, so the lists are updated before any task runs.
    ready_.clear();
    size_t kept = 0;
    for (FenceAwaiter* waiter : waiters_) {
      if (aborted_ || waiter->IsReached()) {
        ready_.push_back(waiter->awaiting_);
        --waiting_for_[waiter->writer_];
      } else {
        waiters_[kept++] = waiter;
      }
    }
    waiters_.resize(kept);
    if (!pauses_.empty()) {
      const auto now = std::chrono::steady_clock::now();
      std::erase_if(pauses_, [this, now](const Pausing& pausing) {
        if (!aborted_ && pausing.end > now) return false;
        ready_.push_back(pausing.task);
        return true;
      });
    }
    ran += ready_.size();
    for (const std::coroutine_handle<>& awaiting : ready_) awaiting.resume();
  }
  return ran;
}

std::chrono::steady_clock::time_point Executor::next_pause_end() const {
  auto first = std::chrono::steady_clock::time_point::max();
  for (const Pausing& pausing : pauses_) first = std::min(first, pausing.end);
  return first;
}

bool Executor::ClientHasWritten() const {
  return waiting_for_client() != 0 &&
         std::any_of(waiters_.begin(), waiters_.end(), [](const FenceAwaiter* waiter) {
           return waiter->writer_ == FenceAwaiter::kClient && waiter->IsReached();
         });
}

void Executor::AbortWaits() { aborted_ = true; }

}  // namespace detshare
