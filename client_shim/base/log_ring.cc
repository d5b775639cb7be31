#include "client_shim/base/log_ring.h"

#include <time.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>

namespace detshare::shim {
namespace {

struct Line {
  size_t length = 0;
  char text[LogRing::kLineBytes];
};

// Taken while one line is copied. A child of fork may find it taken for ever, so no thread waits
// long for it.
std::atomic<bool> g_taken{false};
Line g_lines[LogRing::kLines];
std::atomic<uint32_t> g_next{0};
std::atomic<LogRing::Listener> g_listener{nullptr};

class Hold {
 public:
  Hold() {
    constexpr int kTries = 100'000;
    // Acquire: the lines are as the last holder left them.
    for (int i = 0; i < kTries && !held_; ++i)
      held_ = !g_taken.exchange(true, std::memory_order_acquire);
  }
  ~Hold() {
    if (held_) g_taken.store(false, std::memory_order_release);
  }
  explicit operator bool() const { return held_; }

 private:
  bool held_ = false;
};

}  // namespace

LogRing& log_ring() {
  static LogRing ring;
  return ring;
}

void LogRing::Add(LogLevel level, const char* line, size_t length) {
  char text[kLineBytes];
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  tm parts{};
  gmtime_r(&now.tv_sec, &parts);
  const int written =
      snprintf(text, sizeof(text), "[%02d:%02d:%02d.%03ld][%c] %.*s", parts.tm_hour, parts.tm_min,
               parts.tm_sec, now.tv_nsec / 1'000'000, level == LogLevel::kError ? 'E' : 'W',
               static_cast<int>(length), line);
  const size_t bytes = std::min<size_t>(std::max(written, 0), sizeof(text) - 1);
  if (const Hold hold; hold) {
    Line& to = g_lines[g_next.load(std::memory_order_relaxed) % kLines];
    memcpy(to.text, text, bytes + 1);
    to.length = bytes;
    g_next.fetch_add(1, std::memory_order_relaxed);
  }
  // Acquire: the listener's data was written before the listener was set.
  const Listener listener = g_listener.load(std::memory_order_acquire);
  if (listener != nullptr) listener(level, text, bytes);
}

uint32_t LogRing::next() const { return g_next.load(std::memory_order_relaxed); }

size_t LogRing::Get(uint32_t number, char* line) const {
  const Hold hold;
  const uint32_t behind = g_next.load(std::memory_order_relaxed) - number;
  if (!hold || behind == 0 || behind > kLines) return 0;
  const Line& from = g_lines[number % kLines];
  memcpy(line, from.text, from.length + 1);
  return from.length;
}

uint32_t LogRing::OldestFrom(uint32_t number) const {
  const uint32_t next = g_next.load(std::memory_order_relaxed);
  const uint32_t kept = std::min(next, kLines);
  return next - number > kept ? next - kept : number;
}

void LogRing::SetListener(Listener listener) {
  g_listener.store(listener, std::memory_order_release);
}

}  // namespace detshare::shim
