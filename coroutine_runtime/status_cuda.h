// CUresult numbers in absl::Status, without cuda.h.
//
// The code inside is free to choose the canonical code; the CUresult that a client finally sees
// rides along as a payload.
#pragma once

#include <string_view>

#include "absl/status/status.h"

namespace detshare {

// The results that the runtime itself gives. Values of CUDA's CUresult; server/cuda_results_test.cc
// holds them against cuda.h.
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

// A status whose CUresult is `result` (not kCudaSuccess). The canonical code is the nearest one.
absl::Status CudaError(int result, std::string_view message);

// The CUresult of a status: 0 for OK, the payload when there is one, else the nearest to the
// canonical code.
int CudaResultOf(const absl::Status& status);

}  // namespace detshare
