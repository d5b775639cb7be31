// Captures what kernels print. The driver writes the text to the daemon's standard output when a
// stream is synchronised, without telling which kernel wrote it. So kernels that can print run one
// at a time, with the standard output redirected to a file meanwhile.
#pragma once

#include <functional>
#include <string>

#include "proto/mutex.h"

namespace detshare::cuda {

// There is one for the process, because the process has one file descriptor 1.
class PrintCapture {
 public:
  static PrintCapture& Get();

  // Calls `run` and returns what was written to standard output meanwhile. If there is no file to
  // redirect it to, calls `run` and returns nothing. Any thread may call it; other threads wait.
  std::string During(const std::function<void()>& run);

 private:
  PrintCapture() = default;
  Mutex mutex_;
  int file_ ABSL_GUARDED_BY(mutex_) = -1;
};

}  // namespace detshare::cuda
