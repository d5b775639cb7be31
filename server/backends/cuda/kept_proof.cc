#include "server/backends/cuda/kept_proof.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"

namespace detshare::cuda {
namespace {

constexpr size_t kMaxText = 1024;
constexpr std::chrono::milliseconds kLookPeriod(10);
constexpr int kLooks = 500;

// "LATENCY_NS MEMORY_BYTES REASON"; the latency is 0 if urgent work does not preempt, for the reason.
std::optional<Preemption> Parse(absl::string_view text) {
  const std::vector<absl::string_view> parts = absl::StrSplit(text, absl::MaxSplits(' ', 2));
  Preemption result;
  if (parts.size() != 3 || !absl::SimpleAtoi(parts[0], &result.latency_ns) ||
      !absl::SimpleAtoi(parts[1], &result.memory_bytes) || result.latency_ns < 0)
    return std::nullopt;
  result.available = result.latency_ns > 0;
  result.reason = std::string(parts[2]);
  return result;
}

}  // namespace

KeptProof::KeptProof(std::string path) : path_(std::move(path)) {
  if (path_.empty()) return;
  Read();
  if (known_.has_value()) return;
  if (Lock()) {
    Read();
  } else if (errno == EACCES) {
    // Another process of the daemon makes the proof when the daemon starts.
    for (int i = 0; i < kLooks && !known_.has_value(); ++i) {
      std::this_thread::sleep_for(kLookPeriod);
      Read();
    }
  }
}

KeptProof::~KeptProof() {
  if (lock_ >= 0) close(lock_);
}

bool KeptProof::Lock() {
  if (lock_ >= 0) return true;
  lock_ = open((path_ + ".lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (lock_ < 0) return false;
  while (flock(lock_, LOCK_EX) != 0) {
    if (errno == EINTR) continue;
    close(std::exchange(lock_, -1));
    return false;
  }
  return true;
}

void KeptProof::Read() {
  const int file = open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  if (file < 0) return;
  char text[kMaxText];
  const ssize_t size = read(file, text, sizeof(text));
  close(file);
  if (size > 0) known_ = Parse(absl::string_view(text, static_cast<size_t>(size)));
}

void KeptProof::Keep(const Preemption& result) {
  if (path_.empty() || known_.has_value() || !Lock()) return;
  const std::string text =
      absl::StrCat(result.latency_ns, " ", result.memory_bytes, " ", result.reason)
          .substr(0, kMaxText);
  const std::string next = path_ + ".new";
  const int file = open(next.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644);
  if (file < 0) return;
  // Users of other engines read it (engine_users), whatever the umask is.
  const bool written = write(file, text.data(), text.size()) == static_cast<ssize_t>(text.size()) &&
                       fchmod(file, 0644) == 0;
  close(file);
  if (!written || std::rename(next.c_str(), path_.c_str()) != 0) unlink(next.c_str());
}

}  // namespace detshare::cuda
