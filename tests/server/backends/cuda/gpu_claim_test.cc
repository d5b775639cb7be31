#include "server/backends/cuda/gpu_claim.h"

#include <fcntl.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>

#include "tests/server/test_windows.h"

namespace detshare::cuda {
namespace {

constexpr uint64_t kOne = 5, kOther = uint64_t{1} << 62;

// A file in the place of a GPU's device file.
struct Node {
  Node() { std::ofstream(path).put('\n'); }
  const TestDirectory directory;
  const std::string path = directory.path + "/nvidia0";
};

TEST_CASE("All processes of one daemon claim a GPU") {
  const Node node;
  const auto first = GpuClaim::Take(node.path, kOne), second = GpuClaim::Take(node.path, kOne);
  CHECK(first.ok());
  CHECK(second.ok());
}

TEST_CASE("Another daemon cannot claim a GPU until all processes of the first have ended") {
  const Node node;
  for (const auto& [owner, other] : {std::pair(kOne, kOther), std::pair(kOther, kOne)}) {
    std::optional<GpuClaim> first = GpuClaim::Take(node.path, owner).value();
    std::optional<GpuClaim> second = GpuClaim::Take(node.path, owner).value();
    CHECK(absl::IsUnavailable(GpuClaim::Take(node.path, other).status()));
    first.reset();
    CHECK(absl::IsUnavailable(GpuClaim::Take(node.path, other).status()));
    second.reset();
    CHECK(GpuClaim::Take(node.path, other).ok());
  }
}

TEST_CASE("A claim that was refused leaves no mark") {
  const Node node;
  const GpuClaim first = GpuClaim::Take(node.path, kOne).value();
  CHECK_FALSE(GpuClaim::Take(node.path, kOther).ok());
  CHECK(GpuClaim::Take(node.path, kOne).ok());
}

TEST_CASE("A claim stays when the driver closes the device file") {
  const Node node;
  const GpuClaim claim = GpuClaim::Take(node.path, kOne).value();
  close(open(node.path.c_str(), O_RDWR | O_CLOEXEC));
  CHECK_FALSE(GpuClaim::Take(node.path, kOther).ok());
}

TEST_CASE("A GPU without a device file is not claimed") {
  CHECK(GpuClaim::Take("", kOne).ok());
  CHECK(GpuClaim::Take("/nonexistent/nvidia0", kOne).ok());
}

TEST_CASE("The kernel module tells the device file of a GPU") {
  const TestDirectory gpus;
  const std::string gpu = gpus.path + "/0000:0a:00.0";
  std::filesystem::create_directories(gpu);
  std::ofstream(gpu + "/information")
      << "Model: \t\t NVIDIA H200\nDevice Minor: \t 3\nGPU Excluded:\t No\n";
  CHECK(DeviceNode("0000:0a:00.0", gpus.path) == "/dev/nvidia3");
  CHECK(DeviceNode("0000:0b:00.0", gpus.path).empty());
  std::ofstream(gpu + "/information") << "Device Minor: \t none\n";
  CHECK(DeviceNode("0000:0a:00.0", gpus.path).empty());
}

}  // namespace
}  // namespace detshare::cuda
