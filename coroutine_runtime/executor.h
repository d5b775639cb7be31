// Runs the coroutines of one session on one thread (its owner), between the records of the
// session's ring.
//
// The owner calls Poll() whenever it has nothing else to do. While waiting() is not 0, a task may
// become ready without any call, because the GPU writes a fence. So the owner may then sleep only
// for a short time, unless the device announces the fences that it writes (AddressSpace::Announce)
// and waiting_for_others() is 0. A client that writes a fence wakes the owner. The owner sleeps no
// longer than until next_pause_end().
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <coroutine>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "coroutine_runtime/task.h"
#include "proto/mutex.h"

namespace detshare {

class Executor {
 public:
  // `wake` is called, on any thread, after every Post(), to end the owner's sleep.
  explicit Executor(std::function<void()> wake = {});
  // Destroys the tasks that have not ended. This releases everything in their frames; none of their
  // code runs any more.
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  // Runs `function` in the next Poll(), in the order of the calls. Any thread.
  void Post(std::function<void()> function);

  // Starts `task` at once and keeps it until it ends. Owner only.
  void Spawn(Task<void> task);

  class FenceAwaiter {
   public:
    bool await_ready() const noexcept;
    void await_suspend(std::coroutine_handle<> awaiting);
    bool await_resume() const noexcept;

   private:
    friend class Executor;
    enum Writer { kOwnWork, kOthers, kClient };
    FenceAwaiter(Executor& executor, const std::atomic<uint64_t>* fence, uint64_t value,
                 Writer writer)
        : executor_(executor), fence_(fence), value_(value), writer_(writer) {}
    bool IsReached() const noexcept { return fence_->load(std::memory_order_acquire) >= value_; }

    Executor& executor_;
    const std::atomic<uint64_t>* fence_;
    uint64_t value_;
    Writer writer_;
    std::coroutine_handle<> awaiting_;
  };
  // co_await executor.Reached(fence, value): true once *fence >= value (with acquire), false when
  // the waits were aborted first. The work of the owner's session writes the fence, which must
  // outlive the wait. Owner only.
  FenceAwaiter Reached(const std::atomic<uint64_t>* fence, uint64_t value) {
    return FenceAwaiter(*this, fence, value, FenceAwaiter::kOwnWork);
  }
  // The same for a fence that another session or its work may write.
  FenceAwaiter ReachedByOthers(const std::atomic<uint64_t>* fence, uint64_t value) {
    return FenceAwaiter(*this, fence, value, FenceAwaiter::kOthers);
  }
  // The same for a fence that the session's client writes, which then wakes the owner.
  FenceAwaiter ReachedByClient(const std::atomic<uint64_t>* fence, uint64_t value) {
    return FenceAwaiter(*this, fence, value, FenceAwaiter::kClient);
  }

  // co_await executor.Pause(time): goes on in the first Poll() after that time.
  class PauseAwaiter {
   public:
    bool await_ready() const noexcept { return false; }
    void await_suspend(std::coroutine_handle<> awaiting) {
      executor_.pauses_.push_back({end_, awaiting});
    }
    void await_resume() const noexcept {}

   private:
    friend class Executor;
    PauseAwaiter(Executor& executor, std::chrono::steady_clock::time_point end)
        : executor_(executor), end_(end) {}

    Executor& executor_;
    const std::chrono::steady_clock::time_point end_;
  };
  PauseAwaiter Pause(std::chrono::nanoseconds time) {
    return PauseAwaiter(*this, std::chrono::steady_clock::now() + time);
  }

  // Runs the posted functions, and resumes the tasks whose fences are reached in the order in which
  // they began to wait, and those whose pauses are over. Returns how many it ran; 0 if nothing was ready. Owner only, and not from
  // within a task.
  size_t Poll();

  // Ends all waits: present and future waits on fences that are not reached return false (in Poll).
  // For sessions whose work was lost by a fault. Owner only.
  void AbortWaits();

  // The number of tasks that wait for fences. Owner only.
  size_t waiting() const { return waiters_.size(); }
  // Those of them that began with ReachedByOthers(). Owner only.
  size_t waiting_for_others() const { return waiting_for_[FenceAwaiter::kOthers]; }
  // And with ReachedByClient(). Owner only.
  size_t waiting_for_client() const { return waiting_for_[FenceAwaiter::kClient]; }
  // When the next pause ends; time_point::max() if no task pauses. Owner only.
  std::chrono::steady_clock::time_point next_pause_end() const;
  // Whether the client has written one of these fences, so Poll() has something to do. Owner only.
  bool ClientHasWritten() const;

 private:
  struct Root;
  struct Pausing {
    std::chrono::steady_clock::time_point end;
    std::coroutine_handle<> task;
  };
  static Root Run(Executor* executor, Task<void> task);

  const std::function<void()> wake_;

  // Set (release) after an entry is added to posted_, so the owner sees it without taking the lock.
  std::atomic<bool> has_posted_{false};
  Mutex mutex_;
  std::vector<std::function<void()>> posted_ ABSL_GUARDED_BY(mutex_);

  bool aborted_ = false;
  std::vector<FenceAwaiter*>
      waiters_;  // in order of arrival; the awaiters live in the frames of their tasks
  std::array<size_t, 3> waiting_for_{};  // by writer
  std::vector<Pausing> pauses_;
  std::vector<std::coroutine_handle<>> ready_;
  std::vector<std::coroutine_handle<>> roots_;
};

}  // namespace detshare
