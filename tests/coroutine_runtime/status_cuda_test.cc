#include "coroutine_runtime/status_cuda.h"

#include <cuda.h>

#include <catch2/catch.hpp>
#include <string>

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

TEST_CASE("The results have the values and the names of cuda.h") {
#define DETSHARE_CHECK(name, value, cuda_name) \
  CHECK(name == static_cast<int>(cuda_name));  \
  CHECK(CudaResultName(name) == #cuda_name);
  DETSHARE_RUNTIME_RESULTS(DETSHARE_CHECK)
#undef DETSHARE_CHECK
  CHECK(CudaResultName(12345) == "CUDA error 12345");
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
