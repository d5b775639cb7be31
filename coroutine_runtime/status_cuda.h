// CUresult numbers in absl::Status, without cuda.h.
//
// Internal code may choose any canonical code. The CUresult that a client finally receives is in
// the status as a payload.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace detshare {

// The results that the runtime itself returns: X(name here, value, name in cuda.h).
#define DETSHARE_RUNTIME_RESULTS(X)                                                    \
  X(kCudaSuccess, 0, CUDA_SUCCESS)                                                     \
  X(kCudaErrorInvalidValue, 1, CUDA_ERROR_INVALID_VALUE)                               \
  X(kCudaErrorOutOfMemory, 2, CUDA_ERROR_OUT_OF_MEMORY)                                \
  X(kCudaErrorNotInitialized, 3, CUDA_ERROR_NOT_INITIALIZED)                           \
  X(kCudaErrorDeinitialized, 4, CUDA_ERROR_DEINITIALIZED)                              \
  X(kCudaErrorNoDevice, 100, CUDA_ERROR_NO_DEVICE)                                     \
  X(kCudaErrorInvalidDevice, 101, CUDA_ERROR_INVALID_DEVICE)                           \
  X(kCudaErrorInvalidImage, 200, CUDA_ERROR_INVALID_IMAGE)                             \
  X(kCudaErrorInvalidContext, 201, CUDA_ERROR_INVALID_CONTEXT)                         \
  X(kCudaErrorNoBinaryForGpu, 209, CUDA_ERROR_NO_BINARY_FOR_GPU)                       \
  X(kCudaErrorInvalidPtx, 218, CUDA_ERROR_INVALID_PTX)                                 \
  X(kCudaErrorJitCompilerNotFound, 221, CUDA_ERROR_JIT_COMPILER_NOT_FOUND)             \
  X(kCudaErrorInvalidHandle, 400, CUDA_ERROR_INVALID_HANDLE)                           \
  X(kCudaErrorIllegalState, 401, CUDA_ERROR_ILLEGAL_STATE)                             \
  X(kCudaErrorNotFound, 500, CUDA_ERROR_NOT_FOUND)                                     \
  X(kCudaErrorNotReady, 600, CUDA_ERROR_NOT_READY)                                     \
  X(kCudaErrorIllegalAddress, 700, CUDA_ERROR_ILLEGAL_ADDRESS)                         \
  X(kCudaErrorLaunchOutOfResources, 701, CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES)           \
  X(kCudaErrorLaunchTimeout, 702, CUDA_ERROR_LAUNCH_TIMEOUT)                           \
  X(kCudaErrorAssert, 710, CUDA_ERROR_ASSERT)                                          \
  X(kCudaErrorIllegalInstruction, 715, CUDA_ERROR_ILLEGAL_INSTRUCTION)                 \
  X(kCudaErrorMisalignedAddress, 716, CUDA_ERROR_MISALIGNED_ADDRESS)                   \
  X(kCudaErrorInvalidAddressSpace, 717, CUDA_ERROR_INVALID_ADDRESS_SPACE)              \
  X(kCudaErrorInvalidPc, 718, CUDA_ERROR_INVALID_PC)                                   \
  X(kCudaErrorLaunchFailed, 719, CUDA_ERROR_LAUNCH_FAILED)                             \
  X(kCudaErrorCooperativeLaunchTooLarge, 720, CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE) \
  X(kCudaErrorNotPermitted, 800, CUDA_ERROR_NOT_PERMITTED)                             \
  X(kCudaErrorNotSupported, 801, CUDA_ERROR_NOT_SUPPORTED)                             \
  X(kCudaErrorSystemNotReady, 802, CUDA_ERROR_SYSTEM_NOT_READY)                        \
  X(kCudaErrorSystemDriverMismatch, 803, CUDA_ERROR_SYSTEM_DRIVER_MISMATCH)            \
  X(kCudaErrorInvalidClusterSize, 912, CUDA_ERROR_INVALID_CLUSTER_SIZE)                \
  X(kCudaErrorUnknown, 999, CUDA_ERROR_UNKNOWN)

enum CudaResult : int {
#define DETSHARE_ENUMERATOR(name, value, cuda_name) name = value,
  DETSHARE_RUNTIME_RESULTS(DETSHARE_ENUMERATOR)
#undef DETSHARE_ENUMERATOR
};

// Returns "CUDA_ERROR_ILLEGAL_ADDRESS", or "CUDA error 214" for a result that is not among these.
std::string CudaResultName(int result);

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
