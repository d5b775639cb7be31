// What kernels print. The driver writes it to the daemon's standard output when a stream is
// synchronised, with nothing that says whose it is. So kernels that can print run one at a time,
// with the standard output redirected into a file meanwhile.
#pragma once

#include <functional>
#include <mutex>
#include <string>

namespace detshare::cuda {

// One for the process, since file descriptor 1 is.
class PrintCapture {
 public:
  static PrintCapture& Get();

  // Calls `run` and returns what was written to standard output meanwhile. Without a file to
  // redirect it to, calls `run` and returns nothing. Any thread; others wait.
  std::string During(const std::function<void()>& run);

 private:
  PrintCapture() = default;
  std::mutex mutex_;
  int file_ = -1;
};

}  // namespace detshare::cuda
