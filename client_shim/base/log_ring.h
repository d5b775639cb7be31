// The last lines of the log, for cuLogs*: what DetShare had to say, whether it was shown or not.
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

  // Called with every line that is kept, without a lock.
  using Listener = void (*)(LogLevel level, const char* line, size_t length);

  void Add(LogLevel level, const char* line, size_t length);
  // The number of the line that comes next; lines are numbered from 0, around 2^32.
  uint32_t next() const;
  // Copies line `number` to `line` (kLineBytes); its length, or 0 when it is gone or not yet there.
  size_t Get(uint32_t number, char* line) const;
  // The oldest line that is still kept and not before `number`.
  uint32_t OldestFrom(uint32_t number) const;
  // Who listens from now on, or null.
  void SetListener(Listener listener);
};

LogRing& log_ring();

}  // namespace detshare::shim
