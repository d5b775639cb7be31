// The daemon's log. Each event is one line on stderr, "LEVEL time message". If stderr is systemd's
// journal, each event is an entry with fields (docs/observing.md names them).
#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "server/base/journal.h"

namespace detshare {

enum class LogLevel : int { kError = 0, kWarning = 1, kInfo = 2, kDebug = 3 };

// Drops messages above this level from this call on. The level is kInfo before the first call. Any
// thread may call it.
void SetLogLevel(LogLevel level);
bool LogEnabled(LogLevel level);
// Accepts error, warning, info and debug. Returns false for any other text and leaves `level`
// alone.
bool ParseLogLevel(const std::string& text, LogLevel* level);

// Sends entries to the journal from this call on, if stderr is the journal's stream. Must be called
// before any other thread logs. `socket` differs only in tests.
void LogToJournal(const std::string& socket = kJournalSocket);

// Marks what this thread logs as about one session, as long as the scope lives. A thread has at
// most one scope at a time.
class LogScope {
 public:
  LogScope(uint64_t session, const std::string& tenant);
  ~LogScope();
  LogScope(const LogScope&) = delete;
  LogScope& operator=(const LogScope&) = delete;
};

// Writes one line with a single write(). Replaces control characters in `message`, so that a
// client's strings cannot forge lines. Any thread may call it.
void LogLine(LogLevel level, const std::string& message);

template <typename... Parts>
void LogError(const Parts&... parts) {
  LogLine(LogLevel::kError, absl::StrCat(parts...));
}
template <typename... Parts>
void LogWarning(const Parts&... parts) {
  if (LogEnabled(LogLevel::kWarning)) LogLine(LogLevel::kWarning, absl::StrCat(parts...));
}
template <typename... Parts>
void LogInfo(const Parts&... parts) {
  if (LogEnabled(LogLevel::kInfo)) LogLine(LogLevel::kInfo, absl::StrCat(parts...));
}
template <typename... Parts>
void LogDebug(const Parts&... parts) {
  if (LogEnabled(LogLevel::kDebug)) LogLine(LogLevel::kDebug, absl::StrCat(parts...));
}

// Logs each line of `text` as an error.
void LogErrorLines(absl::string_view text);

}  // namespace detshare
