// Measures the time between events of the two time-slice groups of a GPU.
//
// CUDA compares only events of one context (others: CUDA_ERROR_INVALID_HANDLE). So the clock has
// one reference event in each group, and knows how much later the urgent one was reached:
//
//     ordinary   reference .......... event
//                |-offset-|
//     urgent              reference ............... event
//
// The time of an event, counted from the ordinary reference, is the time since its group's
// reference, plus the offset for the urgent group.
//
// Precision. A thread polls each reference until it is reached. The offset is the difference of the
// host times at which the thread saw that, so it is as precise as the polls are close together. A
// round whose polls were further apart than a few microseconds is repeated. CUDA counts from the
// reference to an event in milliseconds of 24 bits: each second between them adds at most 60 ns of
// error. References that are older than kMaxAge are therefore renewed. So the result is precise to
// some microseconds for events that were recorded in the minute before the question, and to one
// part in ten million of their age for older events.
//
// Cost. New references preempt ordinary work once for each round, usually once or twice, and only
// when a program compares events of two groups.
#pragma once

#include <cuda.h>

#include <array>
#include <cstdint>
#include <functional>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coroutine_runtime/clock.h"
#include "proto/mutex.h"
#include "server/backends/cuda/driver_api.h"

namespace detshare::cuda {

// Threading: any thread. Lifetime: ends before the contexts.
class GroupClock {
 public:
  // References that are older are renewed.
  static constexpr int64_t kMaxAge = 2'000'000'000;  // nanoseconds

  struct Parts {
    const DriverApi& api;
    const Clock& clock;
    // Makes the context of the urgent or of the ordinary group current in this thread.
    std::function<void(bool urgent)> enter;
    // As CudaContext::Check.
    std::function<absl::Status(CUresult result, const char* call)> check;
  };
  // Does not call the driver.
  explicit GroupClock(Parts parts) : parts_(std::move(parts)) {}
  ~GroupClock();
  GroupClock(const GroupClock&) = delete;
  GroupClock& operator=(const GroupClock&) = delete;

  // An event and the group in which it was recorded last.
  struct Recorded {
    CUevent event = nullptr;
    bool urgent = false;
  };
  // Returns the milliseconds from `start` to `end`. Errors are those of cuEventElapsedTime. May
  // wait for the GPU, at most some milliseconds. If the GPU does not reach new references in that
  // time, the older ones serve; Unavailable if there are none.
  absl::StatusOr<float> Milliseconds(Recorded start, Recorded end);

 private:
  // Two events, by group: 0 ordinary, 1 urgent.
  struct References {
    std::array<CUevent, 2> events{};
    double offset = 0;  // nanoseconds from the ordinary to the urgent event
    int64_t at = 0;     // host time
    bool valid = false;
  };

  absl::Status Prepare() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Renew() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Records one of the spare references and waits for it. Returns the host time at which it was
  // reached, and sets `*error` to the largest error of that. Unavailable at the deadline.
  absl::StatusOr<double> Reach(bool urgent, int64_t deadline, double* error)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Returns the milliseconds from the ordinary reference to the event.
  absl::StatusOr<double> TimeOf(const Recorded& recorded) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<float> Elapsed(CUevent start, CUevent end) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Parts parts_;
  Mutex mutex_;
  std::array<CUstream, 2> streams_ ABSL_GUARDED_BY(mutex_){};
  References current_ ABSL_GUARDED_BY(mutex_), spare_ ABSL_GUARDED_BY(mutex_);
  bool prepared_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace detshare::cuda
