#include "server/logging.h"

#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>

namespace detshare {
namespace {

std::atomic<int> g_level{static_cast<int>(LogLevel::kInfo)};

constexpr const char* kNames[] = {"ERROR", "WARNING", "INFO", "DEBUG"};
constexpr size_t kMaxLine = 4096;

}  // namespace

void SetLogLevel(LogLevel level) {
  g_level.store(static_cast<int>(level), std::memory_order_relaxed);
}

bool LogEnabled(LogLevel level) {
  return static_cast<int>(level) <= g_level.load(std::memory_order_relaxed);
}

bool ParseLogLevel(const std::string& text, LogLevel* level) {
  constexpr const char* kWords[] = {"error", "warning", "info", "debug"};
  for (int i = 0; i < 4; ++i) {
    if (text == kWords[i]) {
      *level = static_cast<LogLevel>(i);
      return true;
    }
  }
  return false;
}

void LogLine(LogLevel level, const std::string& message) {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  tm utc{};
  gmtime_r(&now.tv_sec, &utc);
  char stamp[64];
  std::snprintf(stamp, sizeof(stamp), "%-7s %04d-%02d-%02dT%02d:%02d:%02d.%03ldZ ",
                kNames[static_cast<int>(level)], utc.tm_year + 1900, utc.tm_mon + 1, utc.tm_mday,
                utc.tm_hour, utc.tm_min, utc.tm_sec, now.tv_nsec / 1000000);
  std::string line = stamp;
  line.append(message, 0, kMaxLine);
  for (char& c : line) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) c = ' ';
  }
  line.push_back('\n');
  // Nothing can be done about a log that cannot be written.
  [[maybe_unused]] ssize_t written = write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace detshare
