#include "server/backends/cuda/print_capture.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>

namespace detshare::cuda {

PrintCapture& PrintCapture::Get() {
  static PrintCapture capture;
  return capture;
}

std::string PrintCapture::During(const std::function<void()>& run) {
  MutexLock lock(&mutex_);
  // Uses a file and not a pipe, because the driver writes before any thread could read.
  if (file_ < 0) file_ = memfd_create("detshare-print", MFD_CLOEXEC);
  fflush(stdout);
  const int output = file_ < 0 ? -1 : fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
  if (output < 0 || dup2(file_, STDOUT_FILENO) < 0) {
    if (output >= 0) close(output);
    run();
    return "";
  }
  run();
  fflush(stdout);
  dup2(output, STDOUT_FILENO);
  close(output);

  std::string text;
  const off_t bytes = lseek(file_, 0, SEEK_END);
  if (bytes > 0) {
    text.resize(static_cast<size_t>(bytes));
    const ssize_t got = pread(file_, text.data(), text.size(), 0);
    text.resize(got < 0 ? 0 : static_cast<size_t>(got));
    if (ftruncate(file_, 0) != 0 || lseek(file_, 0, SEEK_SET) != 0) {
      close(file_);
      file_ = -1;
    }
  }
  return text;
}

}  // namespace detshare::cuda
