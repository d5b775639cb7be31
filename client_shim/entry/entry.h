// The code that every generated entry point runs before and after its implementation in
// detshare::shim::api. Any thread.
#pragma once

#include <cstddef>

#include "client_shim/base/gate.h"
#include "client_shim/base/thread_state.h"
#include "proto/driver_api/cuda_unrenamed.h"
#include "proto/driver_api/driver_api_table.h"

namespace detshare::shim {

// Makes the checks that come before everything else, for row `row` of kRows. The entry point
// returns the result if it is an error.
template <size_t row>
inline CUresult Enter() {
  if constexpr (kRows[row].before_init) {
    return CUDA_SUCCESS;
  } else {
    return g_gate.load(std::memory_order_acquire);
  }
}

// Whether the calling thread runs a host function or a stream callback.
inline bool InHostFunction() { return thread_state.in_host_function; }

// Names the call and its error in the log at DETSHARE_LOG=debug. Does not name
// CUDA_ERROR_NOT_READY, which programs that poll get often.
void NoteFailure(size_t row, CUresult result);

// Returns the result of row `row` of kRows and logs it if it is an error.
template <size_t row>
inline CUresult Leave(CUresult result) {
  if (result != CUDA_SUCCESS) [[unlikely]]
    NoteFailure(row, result);
  return result;
}

// The result of an entry point that is not supported: CUDA_ERROR_NOT_SUPPORTED. Its first call is
// logged.
CUresult Unsupported(size_t row);

// The meaning of a stream argument in the variants of entry points that have a default stream for
// each thread.
inline CUstream PerThreadStream(CUstream stream) {
  return stream == nullptr ? CU_STREAM_PER_THREAD : stream;
}

// While this object lives, the calling thread's default stream is its own.
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
