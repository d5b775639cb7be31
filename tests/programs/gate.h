// A gate: a host function in a stream that waits. It holds back the stream's later work until the
// program opens it. So a program can test the order of streams without clocks.
#pragma once

#include <condition_variable>
#include <mutex>

#include "check.h"

class Gate {
 public:
  // Holds back all later work of `stream`.
  void Close(cudaStream_t stream) {
    open_ = false;
    CHECK(cudaLaunchHostFunc(stream, &Gate::Wait, this));
  }

  void Open() {
    std::lock_guard<std::mutex> lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }

 private:
  static void CUDART_CB Wait(void* self) {
    auto* gate = static_cast<Gate*>(self);
    std::unique_lock<std::mutex> lock(gate->mutex_);
    gate->changed_.wait(lock, [gate] { return gate->open_; });
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = true;
};
