#include "server/backends/cuda/cuda_context.h"

#include <catch2/catch.hpp>

#include "tests/server/backends/cuda/stand_in_session.h"

namespace detshare::cuda {
namespace {

TEST_CASE("A device is lost by the errors after which every call of the process fails") {
  const CUresult error = GENERATE(
      CUDA_ERROR_ECC_UNCORRECTABLE, CUDA_ERROR_CONTAINED, CUDA_ERROR_ILLEGAL_ADDRESS,
      CUDA_ERROR_LAUNCH_TIMEOUT, CUDA_ERROR_HARDWARE_STACK_ERROR, CUDA_ERROR_ILLEGAL_INSTRUCTION,
      CUDA_ERROR_MISALIGNED_ADDRESS, CUDA_ERROR_INVALID_ADDRESS_SPACE, CUDA_ERROR_INVALID_PC,
      CUDA_ERROR_LAUNCH_FAILED, CUDA_ERROR_TENSOR_MEMORY_LEAK, CUDA_ERROR_EXTERNAL_DEVICE);
  INFO("error " << error);
  StandInSession session;
  REQUIRE(session.Submit(0).ok());
  CHECK_FALSE(session.context.Check(error, "cuSomeCall").ok());
  CHECK(session.context.lost());
  CHECK_FALSE(session.context.health().ok());
  CHECK_FALSE(session.space->fault().ok());
}

TEST_CASE_METHOD(StandInSession, "A device is not lost by an error of one call") {
  const CUresult error =
      GENERATE(CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_OUT_OF_MEMORY, CUDA_ERROR_INVALID_HANDLE,
               CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE, CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
  CHECK_FALSE(context.Check(error, "cuSomeCall").ok());
  CHECK_FALSE(context.lost());
  CHECK(context.health().ok());
}

}  // namespace
}  // namespace detshare::cuda
