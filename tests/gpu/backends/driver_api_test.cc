#include "server/backends/cuda/driver_api.h"

#include <catch2/catch.hpp>

#include "server/backends/cuda/cuda_backend.h"

namespace detshare::cuda {
namespace {

TEST_CASE("Without a driver there is a message that says where one was looked for") {
  const absl::Status status = OpenDriver("/nowhere/libcuda.so.1").status();
  CHECK(status.code() == absl::StatusCode::kNotFound);
  CHECK(std::string(status.message()).find("/nowhere/libcuda.so.1") != std::string::npos);
  CHECK(CreateCudaDevices({.driver_path = "/nowhere/libcuda.so.1"}).status().code() ==
        absl::StatusCode::kNotFound);
}

// The stand-in has no function of CUDA.
TEST_CASE("DetShare's own libcuda is taken for the driver where somebody names it") {
  const absl::Status status = OpenDriver("tests/gpu/backends/libown.so").status();
  CHECK(std::string(status.message()).find("is older than CUDA 12") != std::string::npos);
}

TEST_CASE("A driver that is too old is reported as too old") {
  const absl::Status status = OpenDriver("tests/gpu/backends/libold.so").status();
  CHECK(status.code() == absl::StatusCode::kFailedPrecondition);
  CHECK(std::string(status.message()).find("cuLibraryLoadData") != std::string::npos);
}

}  // namespace
}  // namespace detshare::cuda
