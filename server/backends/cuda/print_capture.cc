#include "server/backends/cuda/print_capture.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <span>
#include <string_view>
#include <vector>

#include "server/backends/images/fatbin.h"
#include "server/backends/images/image_kind.h"

namespace detshare::cuda {
namespace {

// The function that device printf() calls.
constexpr std::string_view kPrintFunction = "vprintf";
constexpr uint64_t kLargestImage = 1ull << 30;

bool Mentions(std::string_view bytes) {
  return bytes.find(kPrintFunction) != std::string_view::npos;
}

}  // namespace

PrintCapture& PrintCapture::Get() {
  static PrintCapture capture;
  return capture;
}

std::string PrintCapture::During(const std::function<void()>& run) {
  std::lock_guard<std::mutex> lock(mutex_);
  // A file, not a pipe: the driver writes before anybody could read.
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

bool MayPrint(const void* image, size_t bytes, int device_sm) {
  const std::span<const std::byte> span(static_cast<const std::byte*>(image), bytes);
  std::vector<images::FatbinEntry> entries;
  std::string error;
  if (images::SniffImage(span) != images::ImageKind::kFatbin ||
      !images::ParseFatbins(span, &entries, &error)) {
    return Mentions(std::string_view(static_cast<const char*>(image), bytes));
  }
  // The driver prefers machine code; PTX counts only where there is none.
  bool has_code = false;
  for (const images::FatbinEntry& entry : entries) {
    has_code |= entry.kind == images::EntryKind::kElf && images::RunsOn(entry, device_sm);
  }
  const images::EntryKind wanted = has_code ? images::EntryKind::kElf : images::EntryKind::kPtx;
  for (const images::FatbinEntry& entry : entries) {
    if (entry.kind != wanted || !images::RunsOn(entry, device_sm)) continue;
    std::string code;
    if (!images::DecodeEntry(entry, kLargestImage, &code, &error) || Mentions(code)) return true;
  }
  return false;
}

}  // namespace detshare::cuda
