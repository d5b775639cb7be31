// The daemon's log: one line per event on stderr, "LEVEL time message". The service manager keeps
// it.
#pragma once

#include <string>

#include "absl/strings/str_cat.h"

namespace detshare {

enum class LogLevel : int { kError = 0, kWarning = 1, kInfo = 2, kDebug = 3 };

// Messages above this level are dropped. Any thread. kInfo until it is set.
void SetLogLevel(LogLevel level);
bool LogEnabled(LogLevel level);
// error, warning, info or debug; false for anything else.
bool ParseLogLevel(const std::string& text, LogLevel* level);

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
