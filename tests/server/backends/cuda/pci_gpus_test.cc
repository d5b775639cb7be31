#include "server/backends/cuda/pci_gpus.h"

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>

#include "tests/server/test_windows.h"

namespace detshare {
namespace {

void AddDevice(const std::string& bus, const std::string& address, const std::string& vendor,
               const std::string& device_class) {
  const std::filesystem::path device = std::filesystem::path(bus) / address;
  std::filesystem::create_directories(device);
  std::ofstream(device / "vendor") << vendor << '\n';
  std::ofstream(device / "class") << device_class << '\n';
}

TEST_CASE("NVIDIA's display and 3D controllers count as GPUs, its other devices do not") {
  const TestDirectory bus;
  AddDevice(bus.path, "0000:41:00.0", "0x10de", "0x030000");  // VGA
  AddDevice(bus.path, "0000:0a:00.0", "0x10de", "0x030200");  // 3D
  AddDevice(bus.path, "0000:0a:00.1", "0x10de", "0x040300");  // its sound device
  AddDevice(bus.path, "0000:05:00.0", "0x10de", "0x068000");  // an NVSwitch
  AddDevice(bus.path, "0000:00:02.0", "0x8086", "0x030000");  // another vendor's VGA
  CHECK(NvidiaGpusOnPci(bus.path) == std::vector<std::string>{"0000:0a:00.0", "0000:41:00.0"});
}

TEST_CASE("Devices without readable numbers, and a bus that is not there, have no GPU") {
  const TestDirectory bus;
  AddDevice(bus.path, "0000:01:00.0", "", "");
  AddDevice(bus.path, "0000:02:00.0", "nvidia", "0x030000");
  std::filesystem::create_directories(std::filesystem::path(bus.path) / "0000:03:00.0");
  CHECK(NvidiaGpusOnPci(bus.path).empty());
  CHECK(NvidiaGpusOnPci(bus.path + "/none").empty());
}

}  // namespace
}  // namespace detshare
