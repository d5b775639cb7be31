#include "client_shim/entry/entry.h"

#include <array>
#include <atomic>

#include "client_shim/base/log.h"
#include "proto/driver_api/error_names.h"

namespace detshare::shim {

void NoteFailure(size_t row, CUresult result) {
  if (result == CUDA_ERROR_NOT_READY || !LogShown(LogLevel::kDebug)) return;
  const char* const name = ErrorName(result);
  Log(LogLevel::kDebug, "%s: %s", kRows[row].symbol, name != nullptr ? name : "an unknown error");
}

CUresult Unsupported(size_t row) {
  static std::array<std::atomic<bool>, kRowCount> named;
  if (!named[row].exchange(true, std::memory_order_relaxed)) {
    const char* note = kRows[row].note;
    Log(LogLevel::kWarning, "%s is not supported%s%s", kRows[row].symbol, *note != '\0' ? ": " : "",
        note);
  }
  return CUDA_ERROR_NOT_SUPPORTED;
}

}  // namespace detshare::shim
