// Places what drains a GPU's context at moments at which nothing is in flight.
//
// Uploading code (the first use of a kernel, compiling PTX, asking for a global), unloading it and
// unregistering memory make the driver wait for everything that runs in the context, with the
// context's lock held: meanwhile nobody can launch, and if what runs waits for its client, and that
// client for a launch, nobody ever will again. So whoever needs such a call waits for an idle
// moment first, and meanwhile others' new work is held back, for a short time at first and longer
// at each try:
//
//     open --nobody waits for the host--> holding --idle--> the call --> open
//       ^                                    |
//       +------- the time is over -----------+   (work goes on; tried again later)
//
// What cannot become idle (a stream that waits for its client, a kernel that never ends) delays
// only those who need the call.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>

#include "absl/status/status.h"

namespace detshare::cuda {

class CudaAddressSpace;
class CudaContext;

// Any thread.
class IdleWindow {
 public:
  explicit IdleWindow(CudaContext& context) : context_(context) {}

  // Makes `call` at an idle moment, in the name of `space`. Waits as long as it takes; the error of
  // the context when that is lost, CUDA_ERROR_DEINITIALIZED when the space is abandoned.
  absl::Status Run(CudaAddressSpace& space, const std::function<absl::Status()>& call);

  // Makes `call` if this is an idle moment, or, with `in_spite_of_work`, if nobody waits for the
  // host. Whether it did.
  bool TryRun(const std::function<void()>& call, bool in_spite_of_work);

  // Whether new work must wait. Sequentially consistent against StreamState::entering: whoever
  // submits stores that and then looks here; whoever waits for an idle moment stores this and then
  // looks there.
  bool holding() const { return holding_.load(); }
  // Waits until new work may go on.
  void WaitUntilOpen();

 private:
  void Hold() { holding_.store(true); }
  void Open();

  CudaContext& context_;
  std::mutex turn_;  // held by whoever's turn it is
  std::atomic<bool> holding_{false};
  std::mutex mutex_;  // with opened_: for those who are held back
  std::condition_variable opened_;
};

}  // namespace detshare::cuda
