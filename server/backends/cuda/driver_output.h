// Catches what the driver writes to this process's standard output and standard error.
//
// The driver (580) writes the text of kernels' printf through the FILE pointer `stdout`, and that of
// failed assertions through `stderr`: in a call that waits for work that has completed, or some 30 ms
// later in a thread of its own. It does not say which kernel a text is from.
#pragma once

#include <cstdio>
#include <memory>
#include <string>
#include <string_view>

#include "coroutine_runtime/device.h"
#include "proto/mutex.h"

namespace detshare::cuda {

// One for the process, because the process has one `stdout`. Any thread may call it.
class DriverOutput {
 public:
  // The first call puts other streams in the place of `stdout` and `stderr`. Descriptors and std::cout
  // stay. Never destroyed.
  static DriverOutput& Get();

  // Gives text for standard output to `receiver` from now on; null: to descriptor 1.
  void SetReceiver(std::shared_ptr<KernelOutput> receiver);
  // Returns what assertions have written since the last call. It went to descriptor 2, too.
  std::string TakeAssertions();

 private:
  DriverOutput();
  void Write(std::string_view text);
  void WriteError(std::string_view text);

  Mutex mutex_;
  std::shared_ptr<KernelOutput> receiver_ ABSL_GUARDED_BY(mutex_);
  std::string line_ ABSL_GUARDED_BY(mutex_);  // the begin of a line for standard error
  std::string assertions_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace detshare::cuda
