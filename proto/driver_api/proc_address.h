// cuGetProcAddress: which entry point a caller means by a name, a CUDA version and flags. The rules
// are what driver 580 (CUDA 13.0) was seen to do; where it crashes (null pointers), these answer
// CUDA_ERROR_INVALID_VALUE.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "proto/driver_api/cuda_unrenamed.h"

namespace detshare {

struct FoundRow {
  CUdriverProcAddressQueryResult status;
  size_t row;  // index into kRows, only with CU_GET_PROC_ADDRESS_SUCCESS
};

// The newest ABI of `symbol` that CUDA `version` (12040 for 12.4; negative: any) already had.
// `per_thread` picks the variants whose default stream is the thread's own, for functions that have
// such. Unsupported functions are found, too: callers take an absent function for an old driver.
// Any thread; no allocation; a binary search.
FoundRow FindRow(std::string_view symbol, int version, bool per_thread);

// cuGetProcAddress as of CUDA 12.0. `entry_point` gives the address of a row; `status` may be null.
// A function that is unknown or younger than `version` is CUDA_SUCCESS with a null pointer and the
// reason in *status. Unknown flags and versions above the driver's are CUDA_ERROR_INVALID_VALUE and
// leave *pfn and *status alone.
CUresult GetProcAddress(const char* symbol, void** pfn, int version, uint64_t flags,
                        CUdriverProcAddressQueryResult* status, int driver_version,
                        void* (*entry_point)(size_t row));

// cuGetProcAddress as of CUDA 11.3: the same, but what is not found is CUDA_ERROR_NOT_FOUND and
// leaves *pfn alone.
CUresult GetProcAddressV1(const char* symbol, void** pfn, int version, uint64_t flags,
                          int driver_version, void* (*entry_point)(size_t row));

}  // namespace detshare
