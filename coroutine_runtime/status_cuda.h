// CUresult numbers in absl::Status, without cuda.h.
//
// Internal code may choose any canonical code. The CUresult that a client finally receives is in
// the status as a payload.
#pragma once

#include <string_view>

#include "absl/status/status.h"

namespace detshare {

// The results that the runtime itself returns. The values are those of CUDA's CUresult; a test compares
// them with cuda.h.
enum CudaResult : int {
  kCudaSuccess = 0,
  kCudaErrorInvalidValue = 1,
  kCudaErrorOutOfMemory = 2,
  kCudaErrorNotInitialized = 3,
  kCudaErrorDeinitialized = 4,
  kCudaErrorNoDevice = 100,
  kCudaErrorInvalidDevice = 101,
  kCudaErrorInvalidImage = 200,
  kCudaErrorInvalidContext = 201,
  kCudaErrorNoBinaryForGpu = 209,
  kCudaErrorInvalidPtx = 218,
  kCudaErrorJitCompilerNotFound = 221,
  kCudaErrorInvalidHandle = 400,
  kCudaErrorIllegalState = 401,
  kCudaErrorNotFound = 500,
  kCudaErrorNotReady = 600,
  kCudaErrorIllegalAddress = 700,
  kCudaErrorLaunchOutOfResources = 701,
  kCudaErrorLaunchTimeout = 702,
  kCudaErrorAssert = 710,
  kCudaErrorIllegalInstruction = 715,
  kCudaErrorMisalignedAddress = 716,
  kCudaErrorInvalidAddressSpace = 717,
  kCudaErrorInvalidPc = 718,
  kCudaErrorLaunchFailed = 719,
  kCudaErrorCooperativeLaunchTooLarge = 720,
  kCudaErrorNotPermitted = 800,
  kCudaErrorNotSupported = 801,
  kCudaErrorSystemNotReady = 802,
  kCudaErrorSystemDriverMismatch = 803,
  kCudaErrorInvalidClusterSize = 912,
  kCudaErrorUnknown = 999,
};

// Returns a status whose CUresult is `result` (not kCudaSuccess), with the nearest canonical code.
absl::Status CudaError(int result, std::string_view message);

// CudaError for the most frequent error of all.
inline absl::Status InvalidValue(std::string_view message) {
  return CudaError(kCudaErrorInvalidValue, message);
}

// Returns the CUresult of a status: 0 for OK, the payload if there is one, otherwise the CUresult
// nearest to the canonical code.
int CudaResultOf(const absl::Status& status);

}  // namespace detshare
