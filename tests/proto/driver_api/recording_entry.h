// Replaces the shim's entry.h for the generated entry points.
#pragma once

#include "proto/driver_api/driver_api_table.h"
#include "tests/proto/driver_api/recorder.h"

namespace detshare::shim {

template <size_t kRow>
CUresult Enter() {
  return kRows[kRow].before_init ? CUDA_SUCCESS : enter_result;
}

inline bool InHostFunction() { return in_host_function; }

template <size_t kRow>
CUresult Leave(CUresult result) {
  return result;
}

CUresult Unsupported(size_t row);

inline CUstream PerThreadStream(CUstream stream) {
  return stream == nullptr ? CU_STREAM_PER_THREAD : stream;
}

struct PerThreadDefaultScope {
  PerThreadDefaultScope() { ++per_thread_default_depth; }
  ~PerThreadDefaultScope() { --per_thread_default_depth; }
};

}  // namespace detshare::shim
