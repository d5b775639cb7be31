#include "server/base/logging.h"

#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>

#include "absl/strings/str_split.h"

namespace detshare {
namespace {

// Relaxed: it publishes only itself, to threads that log.
std::atomic<int> g_level{static_cast<int>(LogLevel::kInfo)};

constexpr const char* kNames[] = {"ERROR", "WARNING", "INFO", "DEBUG"};
constexpr size_t kMaxLine = 4096;
// Priorities as in syslog.
constexpr const char* kPriorities[] = {"3", "4", "6", "7"};

// Set before there are other threads. Never destroyed, because threads may log until the process
// ends.
const Journal* g_journal = nullptr;

thread_local std::string t_session, t_tenant;

void Clean(std::string* text) {
  for (char& c : *text) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) c = ' ';
  }
}

bool SendToJournal(LogLevel level, const std::string& message) {
  Journal::Fields fields = {{"MESSAGE", message},
                            {"PRIORITY", kPriorities[static_cast<int>(level)]},
                            {"SYSLOG_IDENTIFIER", "detshared"}};
  const std::string thread = std::to_string(gettid());
  fields.emplace_back("TID", thread);
  if (!t_session.empty()) fields.emplace_back("DETSHARE_SESSION", t_session);
  if (!t_tenant.empty()) fields.emplace_back("DETSHARE_TENANT", t_tenant);
  return g_journal->Send(fields);
}

}  // namespace

void LogToJournal(const std::string& socket) {
  if (!IsJournalStream(STDERR_FILENO, std::getenv("JOURNAL_STREAM"))) return;
  g_journal = Journal::At(socket).release();
}

LogScope::LogScope(uint64_t session, const std::string& tenant) {
  t_session = std::to_string(session);
  t_tenant = tenant;
}

LogScope::~LogScope() {
  t_session.clear();
  t_tenant.clear();
}

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
  if (g_journal != nullptr) {
    std::string text = message.substr(0, kMaxLine);
    Clean(&text);
    if (SendToJournal(level, text)) return;
  }
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
  Clean(&line);
  // The journal reads the priority at the beginning of a line of its stream.
  if (g_journal != nullptr)
    line.insert(0, absl::StrCat("<", kPriorities[static_cast<int>(level)], ">"));
  line.push_back('\n');
  // A failed write to the log has no remedy.
  [[maybe_unused]] ssize_t written = write(STDERR_FILENO, line.data(), line.size());
}

void LogErrorLines(absl::string_view text) {
  for (const absl::string_view line : absl::StrSplit(text, '\n')) LogError(line);
}

}  // namespace detshare
