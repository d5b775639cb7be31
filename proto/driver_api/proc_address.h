// cuGetProcAddress: finds the entry point for a name, a CUDA version and flags. The rules are the
// observed behaviour of driver 580 (CUDA 13.0). For null pointers, with which the driver crashes,
// these functions return CUDA_ERROR_INVALID_VALUE.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "proto/driver_api/cuda_unrenamed.h"

namespace detshare {

struct FoundRow {
  CUdriverProcAddressQueryResult status;
  size_t row;  // index into kRows; valid only with CU_GET_PROC_ADDRESS_SUCCESS
};

// Finds the newest ABI of `symbol` that CUDA `version` already had (12040 for 12.4; negative: any
// version). With `per_thread` it finds the variant whose default stream is the thread's own, if the
// function has one. Unsupported functions are found, too, because programs take a missing function
// for an old driver. Any thread; a binary search without allocation.
FoundRow FindRow(std::string_view symbol, int version, bool per_thread);

// cuGetProcAddress since CUDA 12.0. `entry_point` returns the address of a row; `status` may be
// null. For a function that is unknown or newer than `version`, the result is CUDA_SUCCESS, *pfn is
// null, and *status has the reason. For unknown flags and for versions above the driver's, the
// result is CUDA_ERROR_INVALID_VALUE, and *pfn and *status do not change.
CUresult GetProcAddress(const char* symbol, void** pfn, int version, uint64_t flags,
                        CUdriverProcAddressQueryResult* status, int driver_version,
                        void* (*entry_point)(size_t row));

// cuGetProcAddress of CUDA 11.3. The same, except that for a function that is not found the result
// is CUDA_ERROR_NOT_FOUND, and *pfn does not change.
CUresult GetProcAddressV1(const char* symbol, void** pfn, int version, uint64_t flags,
                          int driver_version, void* (*entry_point)(size_t row));

}  // namespace detshare
