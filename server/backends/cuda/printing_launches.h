// Launches of kernels that print, and the text that they print.
//
// The driver does not say which kernel a text is from. So kernels of one output print at a time: the
// first launch for another output waits until they have completed and their text has come. Meanwhile
// launches for the output whose turn it is wait a little, so that the turn can end, and not for long,
// because a kernel that runs may need them. Kernels of one output run as others do.
#pragma once

#include <memory>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "coroutine_runtime/device.h"
#include "proto/mutex.h"
#include "server/backends/cuda/cuda_group.h"

namespace detshare::cuda {

// One for the process, as DriverOutput. Any thread may call it.
class PrintingLaunches {
 public:
  // The latest such launch on one stream.
  class Latest {
   public:
    explicit Latest(CudaGroup& group) : group_(group) {}
    ~Latest();
    Latest(const Latest&) = delete;
    Latest& operator=(const Latest&) = delete;

   private:
    friend class PrintingLaunches;
    CudaGroup& group_;
    CUevent event_ = nullptr;  // made at the first launch
    bool waited_for_ = false;  // is in `running_` or `stalled_`
  };

  static PrintingLaunches& Get();

  // Calls `launch`, which launches kernels on `stream` that print to `output` (null: nobody reads it),
  // and returns its status. May wait for kernels of another output, for some seconds at most. If they
  // run on then, text is lost until they have completed.
  absl::Status Launch(const std::shared_ptr<Latest>& latest, CUstream stream,
                      const std::shared_ptr<KernelOutput>& output,
                      absl::FunctionRef<absl::Status()> launch);
  // Gives the output the text of its kernels that have completed.
  void Flush(const std::shared_ptr<KernelOutput>& output);
  // The same at the end of the output, whose kernels have all completed.
  void End(const std::shared_ptr<KernelOutput>& output);

 private:
  using Launches = std::vector<std::shared_ptr<Latest>>;
  PrintingLaunches() = default;
  // Returns when it is the output's turn.
  void AwaitTurn(const std::shared_ptr<KernelOutput>& output) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void TakeTurn(const std::shared_ptr<KernelOutput>& output) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Has the driver write the text of those that have completed, and removes them.
  void Collect(Launches& launches) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Collects the stalled ones. When there are none any more, text is for the current output again.
  void CollectStalled() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  Mutex mutex_;  // held before that of DriverOutput
  std::shared_ptr<KernelOutput> output_ ABSL_GUARDED_BY(mutex_);  // whose turn it is
  int waiting_ ABSL_GUARDED_BY(mutex_) = 0;                       // launches for other outputs
  Launches running_ ABSL_GUARDED_BY(mutex_);                      // of that output
  Launches stalled_ ABSL_GUARDED_BY(mutex_);  // of earlier outputs, which have run for too long
};

}  // namespace detshare::cuda
