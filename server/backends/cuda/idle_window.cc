#include "server/backends/cuda/idle_window.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "coroutine_runtime/status_cuda.h"
#include "policy/status_macros.h"
#include "server/backends/cuda/cuda_address_space.h"
#include "server/backends/cuda/cuda_context.h"

namespace detshare::cuda {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

// The time for which one try holds back new work: of the first try, and at most.
constexpr milliseconds kFirstHold(10), kLongestHold(500);
// Between tries, work goes on for as long as it was held back. While a stream waits for the host, a
// try is pointless.
constexpr milliseconds kHostWaitPoll(1);
// Other calls are short, unless they wait, too.
constexpr microseconds kTurnPoll(50);
// The device becomes idle soon while no new work comes, so the poll is short.
constexpr microseconds kIdlePoll(5);

}  // namespace

absl::Status IdleWindow::Run(CudaAddressSpace& space, const std::function<absl::Status()>& call,
                             milliseconds limit) {
  const absl::Status status =
      RunBefore(limit == kNoLimit ? TimePoint::max() : Clock::now() + limit, space, call);
  // The caller goes on without the call.
  while (absl::IsDeadlineExceeded(status) && !space.ResumeCall()) {
    DETSHARE_RETURN_IF_ERROR(space.Ended());
    space.SuspendCall();
    std::this_thread::sleep_for(kHostWaitPoll);
  }
  return status;
}

absl::Status IdleWindow::RunBefore(TimePoint limit, CudaAddressSpace& space,
                                   const std::function<absl::Status()>& call) {
  while (!turn_.TryLock()) {
    DETSHARE_RETURN_IF_ERROR(Ended(limit, space));
    space.SuspendCall();
    std::this_thread::sleep_for(kTurnPoll);
  }
  const absl::Status status = RunInTurn(limit, space, call);
  turn_.Unlock();
  return status;
}

absl::Status IdleWindow::RunInTurn(TimePoint limit, CudaAddressSpace& space,
                                   const std::function<absl::Status()>& call) {
  for (milliseconds hold = kFirstHold;; hold = std::min(hold * 2, kLongestHold)) {
    while (group_.gpu.AnySpaceWaitsForTheHost() || !space.ResumeCall()) {
      DETSHARE_RETURN_IF_ERROR(Ended(limit, space));
      space.SuspendCall();
      std::this_thread::sleep_for(kHostWaitPoll);
    }
    Hold();
    const TimePoint end = std::min(limit, Clock::now() + hold);
    do {
      const bool busy = group_.Busy();  // may find that the context is lost
      if (!space.Ended().ok()) break;
      if (!busy) {
        const absl::Status status = [&] {
          const OrdinarySlice::Call own(group_.slice.get());
          group_.Enter();  // the session may have entered the other group while it waited
          return call();
        }();
        Open();
        return status;
      }
      std::this_thread::sleep_for(kIdlePoll);
    } while (Clock::now() < end);
    Open();
    const TimePoint again = Clock::now() + hold;
    do {
      DETSHARE_RETURN_IF_ERROR(Ended(limit, space));
      space.SuspendCall();
      std::this_thread::sleep_for(kHostWaitPoll);
    } while (Clock::now() < again);
  }
}

absl::Status IdleWindow::Ended(TimePoint limit, const CudaAddressSpace& space) {
  DETSHARE_RETURN_IF_ERROR(space.Ended());
  if (Clock::now() < limit) return absl::OkStatus();
  return absl::DeadlineExceededError("the device was not idle in time");
}

bool IdleWindow::TryRun(const std::function<void()>& call, bool in_spite_of_work) {
  // Work is not held back in vain.
  if (!in_spite_of_work && group_.Busy()) return false;
  if (!turn_.TryLock()) return false;
  Hold();
  // The work that is being submitted may contain a wait for the host.
  const bool idle = !group_.Busy() || (in_spite_of_work && !group_.gpu.AnySpaceWaitsForTheHost());
  const bool now = idle && !group_.gpu.lost();  // Busy() may have found the loss
  if (now) {
    const OrdinarySlice::Call own(group_.slice.get());
    group_.Enter();
    call();
  }
  Open();
  turn_.Unlock();
  return now;
}

void IdleWindow::WaitUntilOpen() {
  MutexLock lock(&mutex_);
  opened_.Wait(&mutex_, [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return !holding(); });
}

void IdleWindow::Open() {
  {
    // The lock makes sure that a waiter either sees the change or sleeps already.
    const MutexLock lock(&mutex_);
    holding_.store(false);
  }
  opened_.SignalAll();
}

}  // namespace detshare::cuda
