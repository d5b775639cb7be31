// The right of one client at a time to take a trace. The trace ends when its client says so, or
// when the client uses it no more: a client that has died must not leave tracing on.
//
// Threading: any thread. All functions that it calls run one at a time.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <thread>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/mutex.h"

namespace detshare {

class TraceLease {
 public:
  // A client that fetches nothing for this long counts as gone. A call of detsharectl may take as
  // long.
  static constexpr std::chrono::seconds kTimeout{10};

  // Calls `end` when a trace ends. `timeout`: a trace that is not used for this long ends.
  TraceLease(std::function<void()> end, std::chrono::milliseconds timeout)
      : end_(std::move(end)), timeout_(timeout) {}
  ~TraceLease();  // ends the trace
  TraceLease(const TraceLease&) = delete;
  TraceLease& operator=(const TraceLease&) = delete;

  // Begins a trace by calling `begin`, and returns its number. FailedPrecondition while another
  // trace goes on; otherwise the error of `begin`, after a call of `end`.
  absl::StatusOr<uint64_t> Begin(absl::FunctionRef<absl::Status()> begin);
  // Uses the trace: calls `use`, and then ends the trace if `last` is true. FailedPrecondition if
  // that trace has ended.
  absl::Status Use(uint64_t trace, bool last, absl::FunctionRef<void()> use);

 private:
  void Watch();  // runs on watch_

  const std::function<void()> end_;
  const std::chrono::milliseconds timeout_;
  Mutex mutex_;
  CondVar changed_;
  uint64_t trace_ ABSL_GUARDED_BY(mutex_) = 0;  // number of the latest trace
  bool on_ ABSL_GUARDED_BY(mutex_) = false;     // the latest trace goes on
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::chrono::steady_clock::time_point used_ ABSL_GUARDED_BY(mutex_);
  std::thread watch_;  // exists from the first trace on
};

}  // namespace detshare
