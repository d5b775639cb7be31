#include "server/backends/cuda/idle_window.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "coroutine_runtime/status_cuda.h"
#include "server/backends/cuda/cuda_address_space.h"
#include "server/backends/cuda/cuda_context.h"

namespace detshare::cuda {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

// How long others' work is held back for one try, from the first try to the last.
constexpr milliseconds kFirstHold(10), kLongestHold(500);
// Between tries everybody goes on for as long as they were held back; while somebody waits for the
// host there is no point in trying.
constexpr milliseconds kHostWaitPoll(1);
// An idle moment is near while nothing new comes: look often.
constexpr microseconds kIdlePoll(5);

}  // namespace

absl::Status IdleWindow::Run(CudaAddressSpace& space, const std::function<absl::Status()>& call) {
  const std::lock_guard<std::mutex> turn(turn_);
  for (milliseconds hold = kFirstHold;; hold = std::min(hold * 2, kLongestHold)) {
    while (context_.AnySpaceWaitsForTheHost()) {
      if (context_.lost()) return context_.health();
      if (space.abandoned()) return CudaError(kCudaErrorDeinitialized, "the session is over");
      std::this_thread::sleep_for(kHostWaitPoll);
    }
    Hold();
    const Clock::time_point end = Clock::now() + hold;
    do {
      if (context_.lost() || space.abandoned()) break;
      if (!context_.Busy()) {
        const absl::Status status = call();
        Open();
        return status;
      }
      std::this_thread::sleep_for(kIdlePoll);
    } while (Clock::now() < end);
    Open();
    if (context_.lost()) return context_.health();
    if (space.abandoned()) return CudaError(kCudaErrorDeinitialized, "the session is over");
    std::this_thread::sleep_for(hold);
  }
}

bool IdleWindow::TryRun(const std::function<void()>& call, bool in_spite_of_work) {
  const std::unique_lock<std::mutex> turn(turn_, std::try_to_lock);
  if (!turn.owns_lock()) return false;
  Hold();
  // A wait for the host may be among what is just being submitted.
  const bool now = !context_.Busy() || (in_spite_of_work && !context_.AnySpaceWaitsForTheHost());
  if (now) call();
  Open();
  return now;
}

void IdleWindow::WaitUntilOpen() {
  std::unique_lock<std::mutex> lock(mutex_);
  opened_.wait(lock, [this] { return !holding(); });
}

void IdleWindow::Open() {
  {
    // The lock lets a waiter either see the change or be asleep already.
    const std::lock_guard<std::mutex> lock(mutex_);
    holding_.store(false);
  }
  opened_.notify_all();
}

}  // namespace detshare::cuda
