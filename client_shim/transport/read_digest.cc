#include "client_shim/transport/read_digest.h"

#include <fcntl.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <span>
#include <vector>

#include "client_shim/base/log.h"

namespace detshare::shim {
namespace {

constexpr uint32_t kTimeoutMs = 10'000;
constexpr size_t kLogBytes = 64 * 1024;
constexpr size_t kLongestName = 1000;

void WriteAll(int fd, const char* text, size_t bytes) {
  while (bytes != 0) {
    const ssize_t written = write(fd, text, bytes);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return;
    text += written;
    bytes -= static_cast<size_t>(written);
  }
}

ContentHash DigestOf(const HostBox& box) {
  ContentHasher hasher;
  for (uint64_t z = 0; z < box.depth; ++z) {
    for (uint64_t y = 0; y < box.height; ++y) {
      hasher.Add(std::span(box.memory + z * box.slice_pitch + y * box.row_pitch, box.width));
    }
  }
  return hasher.Finish();
}

template <typename Value>
void AddValue(ContentHasher& hasher, const Value& value) {
  hasher.Add(std::as_bytes(std::span(&value, 1)));
}

std::string ProgramName() {
  char path[4096];
  const ssize_t length = readlink("/proc/self/exe", path, sizeof(path));
  if (length <= 0) return "?";
  const std::string text(path, static_cast<size_t>(length));
  return text.substr(text.rfind('/') + 1);
}

int OpenForLines(const char* variable) {
  const char* path = getenv(variable);
  if (path == nullptr || *path == '\0' || strcmp(path, "-") == 0) return -1;
  const int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (fd < 0) Log(LogLevel::kError, "cannot write %s=%s: %s", variable, path, strerror(errno));
  return fd;
}

}  // namespace

ReadDigest* g_read_digest = nullptr;

ReadDigest::ReadDigest(FenceAllocator& fences, int log_fd, std::string program)
    : fences_(fences), log_fd_(log_fd), program_(std::move(program)) {
  if (log_fd_ >= 0) log_ = "#process\t" + std::to_string(getpid()) + "\t" + program_ + "\n";
}

void ReadDigest::NoteLaunch(Place place, const char* kernel) {
  const std::lock_guard lock(mutex_);
  sequences_[place].kernel = kernel;
  last_kernel_ = kernel;
}

const char* ReadDigest::KernelBefore(const Sequence& sequence) const {
  return sequence.kernel != nullptr ? sequence.kernel : last_kernel_;
}

void ReadDigest::Read(Place place, const HostBox& box) {
  const std::lock_guard lock(mutex_);
  CollectLocked();
  Sequence& sequence = sequences_[place];
  Entry entry;
  entry.box = box;
  entry.arrived = true;
  entry.digest = DigestOf(box);
  entry.kernel = KernelBefore(sequence);
  sequence.entries.push_back(entry);
  Drain(place, sequence);
}

wire::Signal ReadDigest::Expect(Place place, const HostBox& box) {
  const std::lock_guard lock(mutex_);
  Sequence& sequence = sequences_[place];
  if (sequence.fence.index == kNoFence) sequence.fence = fences_.Take();
  if (sequence.fence.index == kNoFence) {
    ++lost_;
    return {0, kNoFence, 0};
  }
  Entry entry;
  entry.box = box;
  entry.value = ++sequence.fence.value;
  entry.kernel = KernelBefore(sequence);
  sequence.entries.push_back(entry);
  expected_.fetch_add(1, std::memory_order_release);
  return {entry.value, sequence.fence.index, 0};
}

void ReadDigest::TakeBack(Place place, const wire::Signal& signal) {
  const std::lock_guard lock(mutex_);
  if (signal.index == kNoFence) {
    --lost_;
    return;
  }
  Sequence& sequence = sequences_[place];
  // Another thread may have added reads of this place since.
  const auto entry = std::find_if(sequence.entries.begin(), sequence.entries.end(),
                                  [&](const Entry& e) { return e.value == signal.value; });
  sequence.entries.erase(entry);
  --sequence.fence.value;
  expected_.fetch_sub(1, std::memory_order_relaxed);
  Drain(place, sequence);
}

void ReadDigest::CollectSlowly() {
  const std::lock_guard lock(mutex_);
  CollectLocked();
}

void ReadDigest::CollectLocked() {
  if (expected_.load(std::memory_order_relaxed) == 0) return;
  for (auto& [place, sequence] : sequences_) {
    for (Entry& entry : sequence.entries) {
      if (entry.arrived) continue;
      if (!fences_.Reached(sequence.fence.index, entry.value)) break;
      entry.digest = DigestOf(entry.box);
      entry.arrived = true;
      expected_.fetch_sub(1, std::memory_order_relaxed);
    }
    Drain(place, sequence);
  }
}

void ReadDigest::Drain(Place place, Sequence& sequence) {
  while (!sequence.entries.empty() && sequence.entries.front().arrived) {
    const Entry& entry = sequence.entries.front();
    const uint64_t bytes = entry.box.bytes();
    AddValue(sequence.hasher, bytes);
    AddValue(sequence.hasher, entry.digest);
    sequence.bytes += bytes;
    if (log_fd_ >= 0) {
      char line[256];
      snprintf(line, sizeof(line), "%d\t%c%" PRIu64 "\t%" PRIu64 "\t%" PRIu64 "\t%s\t", getpid(),
               (place & 1) != 0 ? 'g' : 's', place >> 1, sequence.reads, bytes,
               ToHex(entry.digest).c_str());
      log_ += line;
      if (entry.kernel != nullptr) log_.append(entry.kernel, strnlen(entry.kernel, kLongestName));
      log_ += '\n';
      if (log_.size() >= kLogBytes) FlushLog();
    }
    ++sequence.reads;
    sequence.entries.pop_front();
  }
  if (sequence.entries.empty() && sequence.fence.index != kNoFence) {
    fences_.Give(sequence.fence.index, sequence.fence.value);
    sequence.fence = {};
  }
}

void ReadDigest::FlushLog() {
  if (log_fd_ >= 0) WriteAll(log_fd_, log_.data(), log_.size());
  log_.clear();
}

ReadDigest::Summary ReadDigest::Finish(uint32_t timeout_ms) {
  for (uint32_t waited = 0; waited < timeout_ms; ++waited) {
    Collect();
    if (expected_.load(std::memory_order_relaxed) == 0) break;
    const timespec nap{0, 1'000'000};
    nanosleep(&nap, nullptr);
  }
  const std::lock_guard lock(mutex_);
  CollectLocked();
  Summary summary;
  summary.lost = lost_ + expected_.load(std::memory_order_relaxed);
  struct Part {
    ContentHash digest;
    uint64_t reads;
  };
  std::vector<Part> parts;
  for (auto& [place, sequence] : sequences_) {
    if (sequence.reads == 0) continue;
    parts.push_back({sequence.hasher.Finish(), sequence.reads});
    summary.reads += sequence.reads;
    summary.bytes += sequence.bytes;
  }
  std::sort(parts.begin(), parts.end(),
            [](const Part& a, const Part& b) { return a.digest < b.digest; });
  ContentHasher hasher;
  for (const Part& part : parts) {
    AddValue(hasher, part.reads);
    AddValue(hasher, part.digest);
  }
  summary.digest = hasher.Finish();
  summary.sequences = parts.size();
  FlushLog();
  sequences_.clear();
  return summary;
}

void StartReadDigest(FenceAllocator& fences) {
  const char* digest = getenv("DETSHARE_DIGEST");
  const int log_fd = OpenForLines("DETSHARE_DIGEST_LOG");
  if (log_fd < 0 && (digest == nullptr || *digest == '\0')) return;
  g_read_digest = new ReadDigest(fences, log_fd, ProgramName());
}

void FinishReadDigest() {
  if (g_read_digest == nullptr) return;
  const ReadDigest::Summary summary = g_read_digest->Finish(kTimeoutMs);
  if (summary.lost != 0) {
    Log(LogLevel::kError, "%" PRIu64 " reads are not part of the digest", summary.lost);
  }
  const char* where = getenv("DETSHARE_DIGEST");
  if (where == nullptr || *where == '\0') return;
  char line[512];
  const std::string hex = ToHex(summary.digest);
  const int fd = OpenForLines("DETSHARE_DIGEST");
  int length;
  if (fd >= 0) {
    length = snprintf(line, sizeof(line), "%s\t%" PRIu64 "\t%" PRIu64 "\t%" PRIu64 "\t%.200s\n",
                      hex.c_str(), summary.reads, summary.bytes, summary.sequences,
                      g_read_digest->program().c_str());
  } else {
    length = snprintf(line, sizeof(line),
                      "detshare: digest %s of %" PRIu64 " reads, %" PRIu64 " bytes, %" PRIu64
                      " stream%s (%.200s)\n",
                      hex.c_str(), summary.reads, summary.bytes, summary.sequences,
                      summary.sequences == 1 ? "" : "s", g_read_digest->program().c_str());
  }
  WriteAll(fd >= 0 ? fd : STDERR_FILENO, line, static_cast<size_t>(length));
  if (fd >= 0) close(fd);
}

}  // namespace detshare::shim
