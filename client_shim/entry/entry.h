// What every generated entry point does before and after it calls its implementation in
// detshare::shim::api.
#pragma once

#include <cstddef>

#include "client_shim/base/gate.h"
#include "client_shim/base/thread_state.h"
#include "proto/driver_api/cuda_unrenamed.h"
#include "proto/driver_api/driver_api_table.h"

namespace detshare::shim {

// The checks that come before everything else, for row `row` of kRows.
template <size_t row>
inline CUresult Enter() {
  if constexpr (kRows[row].before_init) {
    return CUDA_SUCCESS;
  } else {
    return g_gate.load(std::memory_order_acquire);
  }
}

// Names the call and its error in the log at DETSHARE_LOG=debug, except for CUDA_ERROR_NOT_READY,
// of which programs that poll get many.
void NoteFailure(size_t row, CUresult result);

// What row `row` of kRows answers.
template <size_t row>
inline CUresult Leave(CUresult result) {
  if (result != CUDA_SUCCESS) [[unlikely]]
    NoteFailure(row, result);
  return result;
}

// The reply of an entry point that is not supported: CUDA_ERROR_NOT_SUPPORTED. Named in the log at
// its first call.
CUresult Unsupported(size_t row);

// What a stream argument means to the variants of entry points with a default stream for each
// thread.
inline CUstream PerThreadStream(CUstream stream) {
  return stream == nullptr ? CU_STREAM_PER_THREAD : stream;
}

// While it lives, the default stream of this thread's calls is the thread's own.
class PerThreadDefaultScope {
 public:
  PerThreadDefaultScope() : before_(thread_state.per_thread_default) {
    thread_state.per_thread_default = true;
  }
  ~PerThreadDefaultScope() { thread_state.per_thread_default = before_; }
  PerThreadDefaultScope(const PerThreadDefaultScope&) = delete;
  PerThreadDefaultScope& operator=(const PerThreadDefaultScope&) = delete;

 private:
  const bool before_;
};

}  // namespace detshare::shim
