#include "server/backends/cuda/driver_output.h"

#include <unistd.h>

#include <utility>

namespace detshare::cuda {
namespace {

// As many bytes of assertions are kept. All threads of a kernel may fail.
constexpr size_t kMaxAssertions = 64 << 10;
constexpr size_t kMaxLine = 4 << 10;

void WriteTo(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(fd, text.data(), text.size());
    if (written <= 0) return;
    text.remove_prefix(static_cast<size_t>(written));
  }
}

FILE* OpenUnbuffered(void* cookie, cookie_write_function_t* write) {
  cookie_io_functions_t functions{};
  functions.write = write;
  FILE* const file = fopencookie(cookie, "w", functions);
  if (file != nullptr) setvbuf(file, nullptr, _IONBF, 0);
  return file;
}

}  // namespace

DriverOutput& DriverOutput::Get() {
  static DriverOutput* const output = new DriverOutput;
  return *output;
}

DriverOutput::DriverOutput() {
  fflush(stdout);
  FILE* const out = OpenUnbuffered(this, [](void* self, const char* text, size_t bytes) {
    static_cast<DriverOutput*>(self)->Write({text, bytes});
    return static_cast<ssize_t>(bytes);
  });
  FILE* const err = OpenUnbuffered(this, [](void* self, const char* text, size_t bytes) {
    static_cast<DriverOutput*>(self)->WriteError({text, bytes});
    return static_cast<ssize_t>(bytes);
  });
  if (out != nullptr) stdout = out;
  if (err != nullptr) stderr = err;
}

void DriverOutput::SetReceiver(std::shared_ptr<KernelOutput> receiver) {
  const MutexLock lock(&mutex_);
  receiver_ = std::move(receiver);
}

std::string DriverOutput::TakeAssertions() {
  const MutexLock lock(&mutex_);
  return std::exchange(assertions_, {});
}

void DriverOutput::Write(std::string_view text) {
  const MutexLock lock(&mutex_);
  if (receiver_ != nullptr) {
    receiver_->Print(text);
  } else {
    WriteTo(STDOUT_FILENO, text);
  }
}

void DriverOutput::WriteError(std::string_view text) {
  WriteTo(STDERR_FILENO, text);
  const MutexLock lock(&mutex_);
  for (const char c : text) {
    if (line_.size() < kMaxLine) line_ += c;
    if (c != '\n') continue;
    // As glibc's assert() and the driver word it.
    const bool assertion = line_.find(" Assertion `") != std::string::npos;
    if (assertion && assertions_.size() + line_.size() <= kMaxAssertions) assertions_ += line_;
    line_.clear();
  }
}

}  // namespace detshare::cuda
