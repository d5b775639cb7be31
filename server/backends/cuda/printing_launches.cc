#include "server/backends/cuda/printing_launches.h"

#include <chrono>
#include <string_view>
#include <thread>
#include <utility>

#include "server/backends/cuda/cuda_context.h"
#include "server/backends/cuda/driver_output.h"

namespace detshare::cuda {
namespace {

using Clock = std::chrono::steady_clock;

// How long a launch waits for the turn of its output, and to let the next output's turn begin.
constexpr std::chrono::seconds kLongestWait(2);
constexpr std::chrono::milliseconds kLongestPause(20);
constexpr std::chrono::microseconds kPoll(50);

class Discarded final : public KernelOutput {
 public:
  void Print(std::string_view) override {}
  void PrintError(std::string_view) override {}
  void SetPending(bool) override {}
  void NoteLoss(std::string_view) override {}
};

const std::shared_ptr<KernelOutput>& Discard() {
  static const auto& discarded = *new std::shared_ptr<KernelOutput>(new Discarded);
  return discarded;
}

const std::shared_ptr<KernelOutput>& OrDiscard(const std::shared_ptr<KernelOutput>& output) {
  return output != nullptr ? output : Discard();
}

bool Completed(CudaGroup& group, CUevent event) {
  group.Enter();
  // After an error that ends the context nothing runs.
  return group.gpu.api.cuEventQuery(event) != CUDA_ERROR_NOT_READY;
}

}  // namespace

PrintingLaunches::Latest::~Latest() {
  if (event_ == nullptr) return;
  group_.Enter();
  group_.gpu.api.cuEventDestroy(event_);
}

PrintingLaunches& PrintingLaunches::Get() {
  static PrintingLaunches* const launches = new PrintingLaunches;
  return *launches;
}

absl::Status PrintingLaunches::Launch(const std::shared_ptr<Latest>& latest, CUstream stream,
                                      const std::shared_ptr<KernelOutput>& wanted,
                                      absl::FunctionRef<absl::Status()> launch) {
  const std::shared_ptr<KernelOutput>& output = OrDiscard(wanted);
  const MutexLock lock(&mutex_);
  CollectStalled();
  AwaitTurn(output);
  CudaGroup& group = latest->group_;
  group.Enter();
  const DriverApi& api = group.gpu.api;
  if (latest->event_ == nullptr) {
    if (absl::Status made = group.gpu.Check(
            api.cuEventCreate(&latest->event_, CU_EVENT_DISABLE_TIMING), "cuEventCreate");
        !made.ok())
      return made;
  }
  // Before the launch: see KernelOutput::SetPending().
  output->SetPending(true);
  absl::Status status = launch();
  if (status.ok())
    status = group.gpu.Check(api.cuEventRecord(latest->event_, stream), "cuEventRecord");
  if (status.ok() && !std::exchange(latest->waited_for_, true)) running_.push_back(latest);
  if (running_.empty()) output->SetPending(false);
  return status;
}

void PrintingLaunches::AwaitTurn(const std::shared_ptr<KernelOutput>& output) {
  const Clock::time_point begin = Clock::now();
  for (;;) {
    if (output_ == output) {
      if (waiting_ == 0 || Clock::now() - begin >= kLongestPause) return;
      // The turn may end, and this launch then waits for the next one.
      Collect(running_);
    } else {
      Collect(running_);
      if (running_.empty() || Clock::now() - begin >= kLongestWait) return TakeTurn(output);
    }
    const bool other = output_ != output;
    if (other) ++waiting_;
    mutex_.Unlock();
    std::this_thread::sleep_for(kPoll);
    mutex_.Lock();
    if (other) --waiting_;
  }
}

void PrintingLaunches::TakeTurn(const std::shared_ptr<KernelOutput>& output) {
  if (output_ != nullptr) output_->SetPending(false);
  if (!running_.empty()) {
    for (KernelOutput* const loser : {output_.get(), output.get()})
      loser->NoteLoss(
          "a kernel runs on while kernels of two sessions print; text is lost meanwhile");
    for (std::shared_ptr<Latest>& latest : std::exchange(running_, {}))
      stalled_.push_back(std::move(latest));
  }
  output_ = output;
  DriverOutput::Get().SetReceiver(stalled_.empty() ? output_ : Discard());
}

void PrintingLaunches::Collect(Launches& launches) {
  std::erase_if(launches, [](const std::shared_ptr<Latest>& latest) {
    CudaGroup& group = latest->group_;
    if (!Completed(group, latest->event_)) return false;
    // A query lets the driver write nothing; a wait does, also for an event that has completed.
    group.gpu.api.cuEventSynchronize(latest->event_);
    latest->waited_for_ = false;
    return true;
  });
}

void PrintingLaunches::CollectStalled() {
  if (stalled_.empty()) return;
  Collect(stalled_);
  if (stalled_.empty()) DriverOutput::Get().SetReceiver(output_);
}

void PrintingLaunches::Flush(const std::shared_ptr<KernelOutput>& output) {
  const MutexLock lock(&mutex_);
  if (output_ != OrDiscard(output)) return;  // the next output's first launch has taken the text
  CollectStalled();
  Collect(running_);
  if (running_.empty()) output_->SetPending(false);
}

void PrintingLaunches::End(const std::shared_ptr<KernelOutput>& output) {
  const MutexLock lock(&mutex_);
  if (output_ != OrDiscard(output)) return;
  Collect(running_);
  // Their device may end next.
  for (const std::shared_ptr<Latest>& latest : std::exchange(running_, {}))
    latest->waited_for_ = false;
  output_->SetPending(false);
  output_ = nullptr;
  DriverOutput::Get().SetReceiver(Discard());
}

}  // namespace detshare::cuda
