#include "server/backends/cuda/host_nvml.h"

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <numeric>

#include "proto/nvml/nvml_types.h"

namespace detshare {
namespace {

std::string StandIn() { return std::filesystem::absolute(std::getenv("STAND_IN")).string(); }

DeviceProperties Known() {
  DeviceProperties properties;
  std::iota(properties.uuid.begin(), properties.uuid.end(), 1);
  return properties;
}

struct Fixture {
  Fixture() {
    auto opened = OpenHostNvml({Known()}, StandIn());
    REQUIRE(opened.ok());
    host = *std::move(opened);
  }
  HostResult Ask(std::string_view function, std::vector<uint32_t> arguments = {}, int device = 0,
                 int peer = -1) {
    return host->Ask({function, device, peer, arguments});
  }
  std::unique_ptr<HostTelemetry> host;
};

TEST_CASE("Numbers, texts, lists and structs come back as the library wrote them") {
  Fixture f;
  CHECK(f.Ask("nvmlDeviceGetPowerUsage").data == Packed(0, 123456u).data);
  CHECK(f.Ask("nvmlDeviceGetMinMaxClockOfPState", {7, 9}).data == Packed(0, 7u, 9u).data);
  CHECK(f.Ask("nvmlDeviceGetP2PStatus", {3}, 0, 0).data == Packed(0, 3u).data);
  CHECK(f.Ask("nvmlSystemGetDriverVersion", {}, -1).data == "1.2.3");
  CHECK(f.Ask("nvmlDeviceGetGspFirmwareVersion").data == "firmware");
  CHECK(f.Ask("nvmlDeviceGetSupportedMemoryClocks").data == Packed(0, 3201u, 1593u).data);
  const HostResult value = f.Ask("nvmlDeviceGetFieldValues", {12, 5});
  REQUIRE(value.data.size() == sizeof(nvmlFieldValue_t));
  CHECK(reinterpret_cast<const nvmlFieldValue_t*>(value.data.data())->value.ullVal == 1205);
  const HostResult words = f.Ask("nvmlDeviceGetCpuAffinity");
  CHECK(words.data.size() == 512);
  CHECK(words.data[0] == '\xFF');
}

TEST_CASE("A versioned struct has the size that its version says, if the library knows that") {
  Fixture f;
  const unsigned version = NvmlStructVersion(8, 1);
  const HostResult reply = f.Ask("nvmlDeviceGetMarginTemperature", {version});
  CHECK(reply.result == NVML_SUCCESS);
  CHECK(reply.data == Packed(0, version, 48u).data);
  for (const unsigned wrong :
       {0u, 3u, NvmlStructVersion(8, 2), 0x01000000u, 0xFFFFFFFFu, NvmlStructVersion(5000, 1)})
    CHECK(f.Ask("nvmlDeviceGetMarginTemperature", {wrong}).result ==
          NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
}

TEST_CASE("Errors are the library's, and functions that an old library lacks are not found") {
  Fixture f;
  CHECK(f.Ask("nvmlDeviceGetFanSpeed").result == NVML_ERROR_NOT_SUPPORTED);
  CHECK(f.Ask("nvmlDeviceGetSerial").result == NVML_ERROR_FUNCTION_NOT_FOUND);
  CHECK(f.Ask("nvmlDeviceSetPersistenceMode", {1}).result == NVML_ERROR_FUNCTION_NOT_FOUND);
}

TEST_CASE("A library that does not know a device of the daemon is not used") {
  DeviceProperties stranger = Known();
  stranger.uuid[0] = 99;
  CHECK(absl::IsNotFound(OpenHostNvml({Known(), stranger}, StandIn()).status()));
}

TEST_CASE("Our own libnvidia-ml.so.1 is not the host's") {
  const std::string own = std::filesystem::absolute("client_shim/libnvidia-ml.so.1").string();
  const auto opened = OpenHostNvml({Known()}, own);
  REQUIRE(absl::IsNotFound(opened.status()));
  CHECK(std::string(opened.status().message()).find("DetShare's own") != std::string::npos);
}

}  // namespace
}  // namespace detshare
