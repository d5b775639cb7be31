// The daemon's log: one line per event on stderr, "LEVEL time message"; or an entry with fields, where
// stderr is systemd's journal (docs/observing.md names them).
#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "server/base/journal.h"

namespace detshare {

enum class LogLevel : int { kError = 0, kWarning = 1, kInfo = 2, kDebug = 3 };

// Messages above this level are dropped. Any thread. kInfo until it is set.
void SetLogLevel(LogLevel level);
bool LogEnabled(LogLevel level);
// error, warning, info or debug; false for anything else.
bool ParseLogLevel(const std::string& text, LogLevel* level);

// Entries go to the journal from now on, if stderr is its stream; `socket` is for tests. Before any
// other thread logs.
void LogToJournal(const std::string& socket = kJournalSocket);

// What this thread logs is about this session, as long as the scope lives. One a thread.
class LogScope {
 public:
  LogScope(uint64_t session, const std::string& tenant);
  ~LogScope();
  LogScope(const LogScope&) = delete;
  LogScope& operator=(const LogScope&) = delete;
};

// Writes one line with a single write(). Control characters in `message` are replaced, so that a
// client's strings cannot forge lines. Any thread.
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

}  // namespace detshare
