// Makes the calls that drain a context at moments at which nothing is in flight in the context.
//
// Some calls make the driver wait for everything that runs in the context, with the context's lock
// held: uploading code (the first use of a kernel, compiling PTX, asking for a global), unloading
// code, and unregistering memory. Meanwhile no thread can launch. If the running work waits for its
// client, and that client waits for a launch, all of them wait for ever.
//
// So a thread that needs such a call first waits for an idle moment. Meanwhile it holds back other
// threads' new work, for a short time at first and longer at each try:
//
//     open --no stream waits for the host--> holding --idle--> the call --> open
//       ^                                       |
//       +--------- the time is over ------------+   (work goes on; tried again later)
//
// A context that does not become idle (a stream waits for its client, a kernel never ends) delays
// only the threads that need such a call. What they wait for may need a turn that their own sessions
// have. So the sessions give up their turns meanwhile (CallWait).
#pragma once

#include <atomic>
#include <chrono>
#include <functional>

#include "absl/status/status.h"
#include "proto/mutex.h"

namespace detshare::cuda {

class CudaAddressSpace;
class CudaGroup;

// Any thread may call it.
class IdleWindow {
 public:
  explicit IdleWindow(CudaGroup& group) : group_(group) {}

  static constexpr std::chrono::milliseconds kNoLimit = std::chrono::milliseconds::max();

  // Makes `call` at an idle moment, on behalf of `space`, with the group's context current. Returns
  // DeadlineExceeded if none came within `limit`, the context's error if the context is lost, and
  // CUDA_ERROR_DEINITIALIZED if the space is abandoned.
  absl::Status Run(CudaAddressSpace& space, const std::function<absl::Status()>& call,
                   std::chrono::milliseconds limit = kNoLimit);

  // Makes `call` if nothing is in flight, with the group's context current. With `in_spite_of_work`,
  // also makes it if no stream waits for the host. Returns whether it made the call.
  bool TryRun(const std::function<void()>& call, bool in_spite_of_work);

  // Returns whether new work must wait. Sequentially consistent with StreamState::entering: a
  // thread that submits first stores `entering` and then reads this; a thread that waits for an
  // idle moment first stores this and then reads `entering`.
  bool holding() const { return holding_.load(); }
  // Waits until new work may go on.
  void WaitUntilOpen();

 private:
  using TimePoint = std::chrono::steady_clock::time_point;

  absl::Status RunBefore(TimePoint limit, CudaAddressSpace& space,
                         const std::function<absl::Status()>& call);
  absl::Status RunInTurn(TimePoint limit, CudaAddressSpace& space,
                         const std::function<absl::Status()>& call)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(turn_);
  // As the space's Ended(), and DeadlineExceeded after `limit`.
  static absl::Status Ended(TimePoint limit, const CudaAddressSpace& space);
  void Hold() { holding_.store(true); }
  void Open();

  CudaGroup& group_;
  Mutex turn_;                        // held by the thread that makes or tries a call
  std::atomic<bool> holding_{false};  // tells submitting threads to wait; see holding()
  Mutex mutex_;                       // with opened_: for the threads that are held back
  CondVar opened_;
};

}  // namespace detshare::cuda
