// cuGetProcAddress: which entry point a caller means by a name, a CUDA version and flags.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "proto/driver_api/cuda_unrenamed.h"

namespace detshare {

struct ProcAddress {
  // What cuGetProcAddress returns: CUDA_SUCCESS; CUDA_ERROR_NOT_FOUND when there is no such function, or none so old;
  // CUDA_ERROR_INVALID_VALUE for unknown flags and for a version above the driver's.
  CUresult result;
  CUdriverProcAddressQueryResult status;
  size_t row;  // index into kRows, only with CUDA_SUCCESS
};

// The newest ABI of `symbol` that `version` (12040 for 12.4) already had. With the per-thread flag the variant with the
// thread's own default stream is preferred and the ordinary one is taken where there is none. Unsupported functions are found,
// too: callers take an absent function for an old driver. Any thread; no allocation; a binary search.
ProcAddress FindProcAddress(std::string_view symbol, int version, uint64_t flags, int driver_version);

}  // namespace detshare
