// The shim's log: lines on stderr that begin with "detshare: ". The shim never writes them to
// stdout, which belongs to the program.
#pragma once

#include "client_shim/base/log_level.h"

namespace detshare::shim {

// Whether lines of this level are shown. DETSHARE_LOG selects the most detailed level that is
// shown: error (the default), warning, info or debug. Any thread.
bool LogShown(LogLevel level);

// Writes one line of at most 1,000 characters with one write(2), if its level is shown. Errors and
// warnings are also kept for cuLogs* (log_ring.h). Keeps errno. Allocates nothing. Any thread.
void Log(LogLevel level, const char* format, ...) __attribute__((format(printf, 2, 3)));

}  // namespace detshare::shim
