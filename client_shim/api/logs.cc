// Driver logs: the errors and warnings that the shim has logged.
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "client_shim/base/log.h"
#include "client_shim/base/log_ring.h"
#include "proto/driver_api/shim_api.h"

// The target of a callback's handle.
struct CUlogsCallbackEntry_st {
  CUlogsCallback callback;
  void* data;
};

namespace detshare::shim::api {
namespace {

// The limit that the driver documents.
constexpr size_t kLargestDump = 25600;
constexpr char kTruncated[] = "[older lines are gone]\n";

struct Callbacks {
  std::mutex mutex;  // guards the rest
  std::vector<std::unique_ptr<CUlogsCallbackEntry_st>> entries;
};
Callbacks& callbacks() {
  static auto* const all = new Callbacks;
  return *all;
}

// Set while a callback runs. It prevents an endless loop if the callback makes a call that fails.
thread_local bool in_callback = false;

void NotifyCallbacks(LogLevel level, const char* line, size_t length) {
  if (in_callback) return;
  std::vector<CUlogsCallbackEntry_st> listening;
  {
    const std::lock_guard lock(callbacks().mutex);
    for (const auto& entry : callbacks().entries) listening.push_back(*entry);
  }
  in_callback = true;
  for (const CUlogsCallbackEntry_st& entry : listening) {
    std::string message(line, length);
    entry.callback(entry.data,
                   level == LogLevel::kError ? CU_LOG_LEVEL_ERROR : CU_LOG_LEVEL_WARNING,
                   message.data(), message.size());
  }
  in_callback = false;
}

// The lines from *iterator, or all kept lines if it is null. Also whether earlier lines are gone.
std::vector<std::string> Lines(CUlogIterator* iterator, bool* truncated) {
  const LogRing& ring = log_ring();
  const uint32_t wanted = iterator != nullptr ? *iterator : 0;
  const uint32_t end = ring.next();
  uint32_t number = ring.OldestFrom(wanted);
  *truncated = number != wanted;
  std::vector<std::string> lines;
  for (; number != end; ++number) {
    char line[LogRing::kLineBytes];
    const size_t length = ring.Get(number, line);
    if (length != 0) lines.push_back(std::string(line, length) + "\n");
  }
  if (iterator != nullptr) *iterator = end;
  return lines;
}

bool WriteAll(int fd, const std::string& text) {
  for (size_t written = 0; written < text.size();) {
    const ssize_t part = write(fd, text.data() + written, text.size() - written);
    if (part < 0 && errno == EINTR) continue;
    if (part <= 0) return false;
    written += static_cast<size_t>(part);
  }
  return true;
}

}  // namespace

CUresult cuLogsRegisterCallback(CUlogsCallback callbackFunc, void* userData,
                                CUlogsCallbackHandle* callback_out) {
  if (callbackFunc == nullptr) return CUDA_ERROR_INVALID_VALUE;
  auto entry = std::make_unique<CUlogsCallbackEntry_st>();
  *entry = {callbackFunc, userData};
  if (callback_out != nullptr) *callback_out = entry.get();
  const std::lock_guard lock(callbacks().mutex);
  callbacks().entries.push_back(std::move(entry));
  log_ring().SetListener(&NotifyCallbacks);
  return CUDA_SUCCESS;
}

CUresult cuLogsUnregisterCallback(CUlogsCallbackHandle callback) {
  const std::lock_guard lock(callbacks().mutex);
  auto& entries = callbacks().entries;
  for (auto entry = entries.begin(); entry != entries.end(); ++entry) {
    if (entry->get() != callback) continue;
    entries.erase(entry);
    if (entries.empty()) log_ring().SetListener(nullptr);
    return CUDA_SUCCESS;
  }
  return CUDA_ERROR_INVALID_VALUE;
}

CUresult cuLogsCurrent(CUlogIterator* iterator_out, unsigned int flags) {
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  *iterator_out = log_ring().next();
  return CUDA_SUCCESS;
}

CUresult cuLogsDumpToFile(CUlogIterator* iterator, const char* pathToFile, unsigned int flags) {
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  const int fd = open(pathToFile, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (fd < 0) return CUDA_ERROR_INVALID_VALUE;
  bool truncated;
  std::string text;
  for (const std::string& line : Lines(iterator, &truncated)) text += line;
  if (truncated) text.insert(0, kTruncated);
  const bool written = WriteAll(fd, text);
  close(fd);
  return written ? CUDA_SUCCESS : CUDA_ERROR_OPERATING_SYSTEM;
}

CUresult cuLogsDumpToMemory(CUlogIterator* iterator, char* buffer, size_t* size,
                            unsigned int flags) {
  if (flags != 0 || *size == 0 || *size > kLargestDump) return CUDA_ERROR_INVALID_VALUE;
  bool truncated;
  const std::vector<std::string> lines = Lines(iterator, &truncated);
  // The newest lines that fit completely.
  const size_t room = *size - 1;
  size_t bytes = 0;
  auto first = lines.end();
  while (first != lines.begin() && bytes + std::prev(first)->size() <= room)
    bytes += (--first)->size();
  truncated |= first != lines.begin();
  std::string text;
  if (truncated && bytes + strlen(kTruncated) <= room) text = kTruncated;
  for (; first != lines.end(); ++first) text += *first;
  memcpy(buffer, text.c_str(), text.size() + 1);
  *size = text.size() + 1;
  return CUDA_SUCCESS;
}

}  // namespace detshare::shim::api
