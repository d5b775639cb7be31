// The importance of a line of the log.
#pragma once

namespace detshare::shim {

enum class LogLevel { kError = 0, kWarning = 1, kInfo = 2, kDebug = 3 };

}  // namespace detshare::shim
