#include "coroutine_runtime/status_cuda.h"

#include <cuda.h>

#include <catch2/catch.hpp>
#include <utility>

namespace detshare {
namespace {

TEST_CASE("A CUresult survives in a status, known or not") {
  for (int result : {1, 2, 100, 209, 400, 600, 700, 719, 801, 999, 12345}) {
    const absl::Status status = CudaError(result, "message");
    CHECK_FALSE(status.ok());
    CHECK(CudaResultOf(status) == result);
    CHECK(std::string(status.message()) == "message");
  }
}

TEST_CASE("The results have the values of cuda.h") {
  constexpr std::pair<CudaResult, CUresult> kResults[] = {
      {kCudaSuccess, CUDA_SUCCESS},
      {kCudaErrorInvalidValue, CUDA_ERROR_INVALID_VALUE},
      {kCudaErrorOutOfMemory, CUDA_ERROR_OUT_OF_MEMORY},
      {kCudaErrorNotInitialized, CUDA_ERROR_NOT_INITIALIZED},
      {kCudaErrorDeinitialized, CUDA_ERROR_DEINITIALIZED},
      {kCudaErrorNoDevice, CUDA_ERROR_NO_DEVICE},
      {kCudaErrorInvalidDevice, CUDA_ERROR_INVALID_DEVICE},
      {kCudaErrorInvalidImage, CUDA_ERROR_INVALID_IMAGE},
      {kCudaErrorInvalidContext, CUDA_ERROR_INVALID_CONTEXT},
      {kCudaErrorNoBinaryForGpu, CUDA_ERROR_NO_BINARY_FOR_GPU},
      {kCudaErrorInvalidPtx, CUDA_ERROR_INVALID_PTX},
      {kCudaErrorJitCompilerNotFound, CUDA_ERROR_JIT_COMPILER_NOT_FOUND},
      {kCudaErrorInvalidHandle, CUDA_ERROR_INVALID_HANDLE},
      {kCudaErrorIllegalState, CUDA_ERROR_ILLEGAL_STATE},
      {kCudaErrorNotFound, CUDA_ERROR_NOT_FOUND},
      {kCudaErrorNotReady, CUDA_ERROR_NOT_READY},
      {kCudaErrorIllegalAddress, CUDA_ERROR_ILLEGAL_ADDRESS},
      {kCudaErrorLaunchOutOfResources, CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES},
      {kCudaErrorLaunchTimeout, CUDA_ERROR_LAUNCH_TIMEOUT},
      {kCudaErrorAssert, CUDA_ERROR_ASSERT},
      {kCudaErrorIllegalInstruction, CUDA_ERROR_ILLEGAL_INSTRUCTION},
      {kCudaErrorMisalignedAddress, CUDA_ERROR_MISALIGNED_ADDRESS},
      {kCudaErrorInvalidAddressSpace, CUDA_ERROR_INVALID_ADDRESS_SPACE},
      {kCudaErrorInvalidPc, CUDA_ERROR_INVALID_PC},
      {kCudaErrorLaunchFailed, CUDA_ERROR_LAUNCH_FAILED},
      {kCudaErrorCooperativeLaunchTooLarge, CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE},
      {kCudaErrorNotPermitted, CUDA_ERROR_NOT_PERMITTED},
      {kCudaErrorNotSupported, CUDA_ERROR_NOT_SUPPORTED},
      {kCudaErrorSystemNotReady, CUDA_ERROR_SYSTEM_NOT_READY},
      {kCudaErrorSystemDriverMismatch, CUDA_ERROR_SYSTEM_DRIVER_MISMATCH},
      {kCudaErrorInvalidClusterSize, CUDA_ERROR_INVALID_CLUSTER_SIZE},
      {kCudaErrorUnknown, CUDA_ERROR_UNKNOWN},
  };
  for (const auto& [result, cuda] : kResults) CHECK(int{result} == static_cast<int>(cuda));
}

TEST_CASE("A status without a CUresult gives the nearest one") {
  CHECK(CudaResultOf(absl::OkStatus()) == kCudaSuccess);
  CHECK(CudaResultOf(absl::InvalidArgumentError("")) == kCudaErrorInvalidValue);
  CHECK(CudaResultOf(absl::ResourceExhaustedError("")) == kCudaErrorOutOfMemory);
  CHECK(CudaResultOf(absl::UnimplementedError("")) == kCudaErrorNotSupported);
  CHECK(CudaResultOf(absl::NotFoundError("")) == kCudaErrorNotFound);
  CHECK(CudaResultOf(absl::InternalError("")) == kCudaErrorUnknown);
}

}  // namespace
}  // namespace detshare
