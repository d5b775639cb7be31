#include "server/backends/cuda/other_sharing.h"

#include <catch2/catch.hpp>
#include <cstdlib>
#include <fstream>

#include "tests/server/test_windows.h"

namespace detshare {
namespace {

TEST_CASE("The daemon is no client of MPS: a control daemon is refused with the next step") {
  const TestDirectory pipes;
  CHECK(RefuseMps(pipes.path).ok());
  CHECK(RefuseMps(pipes.path + "/none").ok());
  std::ofstream(pipes.path + "/log") << "";
  CHECK(RefuseMps(pipes.path).ok());
  std::ofstream(pipes.path + "/control") << "";
  const absl::Status refused = RefuseMps(pipes.path);
  CHECK(refused.code() == absl::StatusCode::kFailedPrecondition);
  CHECK_THAT(std::string(refused.message()), Catch::Contains(pipes.path) &&
                                                 Catch::Contains("nvidia-cuda-mps-control") &&
                                                 Catch::Contains("CUDA_MPS_PIPE_DIRECTORY"));
}

TEST_CASE("MPS is looked for where the driver looks for it") {
  setenv("CUDA_MPS_PIPE_DIRECTORY", "/elsewhere", 1);
  CHECK(MpsPipeDirectory() == "/elsewhere");
  setenv("CUDA_MPS_PIPE_DIRECTORY", "", 1);
  CHECK(MpsPipeDirectory() == "/tmp/nvidia-mps");
  unsetenv("CUDA_MPS_PIPE_DIRECTORY");
  CHECK(MpsPipeDirectory() == "/tmp/nvidia-mps");
}

TEST_CASE("A part of a GPU in MIG mode is refused with the next step, a whole GPU is not") {
  CHECK(RefuseMig(0, "NVIDIA H200").ok());
  CHECK(RefuseMig(0, "").ok());
  CHECK(RefuseMig(0, "NVIDIA MIGHTY").ok());
  const absl::Status refused = RefuseMig(3, "NVIDIA H100 80GB HBM3 MIG 3g.40gb");
  CHECK(refused.code() == absl::StatusCode::kFailedPrecondition);
  CHECK_THAT(std::string(refused.message()), Catch::Contains("device 3") &&
                                                 Catch::Contains("3g.40gb") &&
                                                 Catch::Contains("-mig 0"));
}

}  // namespace
}  // namespace detshare
