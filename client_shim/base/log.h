// What the shim says to people: lines on stderr, "detshare: ...". Never stdout, which belongs to
// the program.
#pragma once

#include "client_shim/base/log_level.h"

namespace detshare::shim {

// Whether lines of this level are shown: DETSHARE_LOG is error (the default), warning, info or
// debug. Any thread.
bool LogShown(LogLevel level);

// Errors and warnings are kept for cuLogs*, too (log_ring.h). One line, at most 1,000 characters,
// written by one write(2). Keeps errno. Any thread, no allocation.
void Log(LogLevel level, const char* format, ...) __attribute__((format(printf, 2, 3)));

}  // namespace detshare::shim
