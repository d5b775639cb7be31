// How long a session's worker polls for work before it sleeps.
//
// A thread that polls replies sooner, and takes a CPU from threads that have work. The worker of a
// session whose client waits for each result polls through the client's pauses. If it has to share its
// CPU, it sleeps instead, with a raised priority, so that it has the CPU again when it wakes. (Measured
// on 16 CPUs beside a program with 16 threads that meet at barriers: one such poller costs that program
// two thirds of its speed.)
#pragma once

#include <chrono>
#include <cstdint>

#include "server/base/cpu_wait.h"

namespace detshare {

// The worker's thread creates the object and calls it.
class WorkerPolling {
 public:
  using Clock = std::chrono::steady_clock;

  // `usual`: for sessions whose clients do not wait for each result; 0: no worker polls.
  explicit WorkerPolling(std::chrono::microseconds usual) : usual_(usual) {}

  // Returns how long the worker polls after its last work. Call it in every round without work.
  // `awaited`: the client waits for each result of the session.
  std::chrono::microseconds Time(Clock::time_point now, bool awaited);
  // The worker has found work. It keeps the raised priority for some milliseconds of work at most.
  void NoteWork(Clock::time_point now);
  bool raised() const { return raised_; }
  // The worker has slept since `begin`, and would have slept for `timeout` at most.
  void NoteSleep(Clock::time_point begin, std::chrono::nanoseconds timeout);

 private:
  // Whether other threads want this thread's CPU.
  bool SharesCpu(Clock::time_point now);
  void Raise(bool raised);

  const std::chrono::microseconds usual_;
  const CpuWait cpu_wait_;
  int64_t waited_ns_ = 0;  // of cpu_wait_, at the last look
  Clock::time_point look_at_{};
  Clock::time_point shared_until_{};      // for so long the CPU counts as shared
  Clock::time_point late_until_{};        // for so long the priority does not help
  Clock::time_point works_since_{};       // zero: it had no work in the last round
  int sleeps_ = 0, late_sleeps_ = 0;      // short ones, since the last decision
  bool wanted_ = false, raised_ = false;  // the priority; whether the kernel has raised it
};

}  // namespace detshare
