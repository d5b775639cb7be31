// The options of a compilation or link, as programs give them: an array of CUjit_option and an
// array of values. A value is a number, a pointer to a buffer, or the place for a result.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "proto/driver_api/cuda_unrenamed.h"
#include "proto/wire/library.h"

namespace detshare::shim {

// Not thread-safe. Keeps pointers to the caller's value array, which must outlive the last
// WriteBack. CUDA demands that of its callers, too.
class JitOptions {
 public:
  // Reads the options. CUDA_ERROR_INVALID_VALUE: a null array, an unknown option, or a log buffer
  // that is null but has a size. CUDA_ERROR_NOT_SUPPORTED: options that would bind names to the
  // caller's addresses.
  CUresult Parse(unsigned int count, const CUjit_option* options, void** values);

  // The options with plain numbers, which the shim sends to the daemon.
  const std::vector<wire::JitOption>& plain() const { return plain_; }
  // The number of log characters that the daemon should send: one more than the caller has room
  // for, so that a cut is noticed.
  uint64_t info_log_bytes() const { return info_.wanted(); }
  uint64_t error_log_bytes() const { return error_.wanted(); }

  // Gives the results to the caller: logs (cut to the room), their lengths (for a cut log, the
  // length of its buffer), and the time.
  void WriteBack(std::string_view info, std::string_view error, float milliseconds);

 private:
  struct Log {
    char* buffer = nullptr;
    uint64_t bytes = 0;       // the buffer's size
    void** filled = nullptr;  // where the caller wants the number of written bytes
    uint64_t wanted() const { return buffer != nullptr ? bytes : 0; }
    void Write(std::string_view text);
  };

  std::vector<wire::JitOption> plain_;
  Log info_, error_;
  void** milliseconds_ = nullptr;
};

}  // namespace detshare::shim
