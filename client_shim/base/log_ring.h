// The last lines of the shim's log, for cuLogs*. They include lines that were not shown on stderr.
#pragma once

#include <cstddef>
#include <cstdint>

#include "client_shim/base/log_level.h"

namespace detshare::shim {

// Keeps the last kLines lines of level error and warning. Any thread; no allocation.
class LogRing {
 public:
  static constexpr uint32_t kLines = 100;
  static constexpr size_t kLineBytes = 256;  // with the terminator; longer lines are cut

  // Called with every line that is kept, without a lock. It runs on the thread that logs.
  using Listener = void (*)(LogLevel level, const char* line, size_t length);

  void Add(LogLevel level, const char* line, size_t length);
  // The number that the next line gets. Lines are numbered from 0, and the numbers wrap at 2^32.
  uint32_t next() const;
  // Copies line `number` to `line` (kLineBytes) and returns its length. Returns 0 if the line is
  // gone or not yet written.
  size_t Get(uint32_t number, char* line) const;
  // The oldest line that is still kept and not before `number`.
  uint32_t OldestFrom(uint32_t number) const;
  // Sets the function that gets later lines. Null: none.
  void SetListener(Listener listener);
};

// The log of this process.
LogRing& log_ring();

}  // namespace detshare::shim
