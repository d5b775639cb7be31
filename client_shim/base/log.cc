#include "client_shim/base/log.h"

#include <unistd.h>

#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "client_shim/base/log_ring.h"

namespace detshare::shim {
namespace {

LogLevel LevelFromEnvironment() {
  const char* name = getenv("DETSHARE_LOG");
  if (name == nullptr) return LogLevel::kError;
  if (strcmp(name, "debug") == 0) return LogLevel::kDebug;
  if (strcmp(name, "info") == 0) return LogLevel::kInfo;
  if (strcmp(name, "warning") == 0) return LogLevel::kWarning;
  return LogLevel::kError;
}

}  // namespace

bool LogShown(LogLevel level) {
  static const LogLevel shown = LevelFromEnvironment();
  return level <= shown;
}

void Log(LogLevel level, const char* format, ...) {
  const bool kept = level <= LogLevel::kWarning;
  if (!kept && !LogShown(level)) return;
  const int saved_errno = errno;
  char line[1024];
  int length = snprintf(line, sizeof(line), "detshare: ");
  va_list arguments;
  va_start(arguments, format);
  const int text = vsnprintf(line + length, sizeof(line) - length - 1, format, arguments);
  va_end(arguments);
  if (text > 0) length += text;
  if (length > static_cast<int>(sizeof(line)) - 2) length = sizeof(line) - 2;
  constexpr int kPrefix = sizeof("detshare: ") - 1;
  if (kept) log_ring().Add(level, line + kPrefix, length - kPrefix);
  if (!LogShown(level)) {
    errno = saved_errno;
    return;
  }
  line[length++] = '\n';
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, line, length);
  errno = saved_errno;
}

}  // namespace detshare::shim
