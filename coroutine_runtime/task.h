// Task<T>: a C++20 coroutine that starts when it is awaited, and resumes its awaiter when it ends.
//
// A task runs on the thread that resumes it (the executor's) and is not thread-safe. Destroying a
// task that has not ended destroys everything in its frame, including the tasks that it awaits.
// Exceptions are not used; an exception that escapes ends the process.
//
// A coroutine's parameters live as long as its frame, but a lambda's captures do not. So make
// coroutines functions, not lambdas, and pass by value what must outlive the call.
#pragma once

#include <coroutine>
#include <exception>
#include <optional>
#include <utility>

namespace detshare {

template <typename T>
class [[nodiscard]] Task;

namespace task_internal {

struct PromiseBase {
  // Transfers the thread to the awaiting coroutine without growing the stack.
  struct FinalAwaiter {
    bool await_ready() const noexcept { return false; }
    template <typename Promise>
    std::coroutine_handle<> await_suspend(std::coroutine_handle<Promise> ended) const noexcept {
      std::coroutine_handle<> continuation = ended.promise().continuation;
      return continuation ? continuation : std::noop_coroutine();
    }
    void await_resume() const noexcept {}
  };

  std::suspend_always initial_suspend() const noexcept { return {}; }
  FinalAwaiter final_suspend() const noexcept { return {}; }
  void unhandled_exception() const noexcept { std::terminate(); }

  std::coroutine_handle<> continuation;
};

template <typename T>
struct Promise : PromiseBase {
  Task<T> get_return_object();
  template <typename U>
  void return_value(U&& result) {
    value.emplace(std::forward<U>(result));
  }
  T Take() { return *std::move(value); }
  std::optional<T> value;
};

template <>
struct Promise<void> : PromiseBase {
  Task<void> get_return_object();
  void return_void() const noexcept {}
  void Take() const {}
};

}  // namespace task_internal

template <typename T>
class [[nodiscard]] Task {
 public:
  using promise_type = task_internal::Promise<T>;
  using Handle = std::coroutine_handle<promise_type>;

  explicit Task(Handle handle) : handle_(handle) {}
  Task(Task&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Task& operator=(Task&& other) noexcept {
    if (this != &other) {
      if (handle_) handle_.destroy();
      handle_ = std::exchange(other.handle_, nullptr);
    }
    return *this;
  }
  ~Task() {
    if (handle_) handle_.destroy();
  }

  // A task may be awaited at most once.
  struct Awaiter {
    Handle handle;
    bool await_ready() const noexcept { return false; }
    std::coroutine_handle<> await_suspend(std::coroutine_handle<> awaiting) const noexcept {
      handle.promise().continuation = awaiting;
      return handle;
    }
    T await_resume() const { return handle.promise().Take(); }
  };
  Awaiter operator co_await() const noexcept { return Awaiter{handle_}; }

 private:
  Handle handle_;
};

namespace task_internal {
template <typename T>
Task<T> Promise<T>::get_return_object() {
  return Task<T>(std::coroutine_handle<Promise<T>>::from_promise(*this));
}
inline Task<void> Promise<void>::get_return_object() {
  return Task<void>(std::coroutine_handle<Promise<void>>::from_promise(*this));
}
}  // namespace task_internal

}  // namespace detshare
