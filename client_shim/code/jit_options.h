// The options of a compilation or link, as programs give them: an array of CUjit_option, and one of
// values that are sometimes numbers, sometimes pointers, and sometimes answers.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "proto/driver_api/cuda_unrenamed.h"
#include "proto/wire/library.h"

namespace detshare::shim {

// Not thread-safe. Keeps pointers to the caller's value array, which must outlive the last
// WriteBack (as CUDA demands of its callers).
class JitOptions {
 public:
  // CUDA_ERROR_INVALID_VALUE: null arrays, unknown options, a log buffer that is null with a size.
  // CUDA_ERROR_NOT_SUPPORTED: options that would bind names to addresses of the caller.
  CUresult Parse(unsigned int count, const CUjit_option* options, void** values);

  // What crosses to the daemon: the options with plain numbers.
  const std::vector<wire::JitOption>& plain() const { return plain_; }
  // How many characters are worth sending: one more than the caller has room for, so that a cut is
  // noticed.
  uint64_t info_log_bytes() const { return info_.wanted(); }
  uint64_t error_log_bytes() const { return error_.wanted(); }

  // Hands the replies to the caller: logs (cut to the room), their lengths (of a cut one: the
  // buffer's), the time.
  void WriteBack(std::string_view info, std::string_view error, float milliseconds);

 private:
  struct Log {
    char* buffer = nullptr;
    uint64_t bytes = 0;       // of the buffer
    void** filled = nullptr;  // where the caller wants to know how much was written
    uint64_t wanted() const { return buffer != nullptr ? bytes : 0; }
    void Write(std::string_view text);
  };

  std::vector<wire::JitOption> plain_;
  Log info_, error_;
  void** milliseconds_ = nullptr;
};

}  // namespace detshare::shim
