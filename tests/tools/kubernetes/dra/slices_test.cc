#include "tools/kubernetes/dra/slices.h"

#include <catch2/catch.hpp>

#include "tests/tools/kubernetes/dra/api_server_stand_in.h"
#include "tools/kubernetes/dra/claim.h"

namespace detshare::kubernetes {
namespace {

using Json = nlohmann::json;

Gpu TypicalGpu() {
  Gpu gpu;
  gpu.uuid = "GPU-ab000000-0000-0000-0000-000000000001";
  gpu.memory = 85'520'809'984;
  gpu.healthy = true;
  gpu.name = "NVIDIA H100 80GB HBM3";
  gpu.sm_count = 132;
  gpu.compute_major = 9;
  gpu.driver_version = 13000;
  return gpu;
}

SliceOptions Options() {
  SliceOptions options;
  options.node = "node-1";
  options.places = 8;
  return options;
}

TEST_CASE("A GPU is a device that several claims may have, with consumable capacity") {
  const Json spec = SliceSpec({TypicalGpu()}, true, Options(), 7);
  CHECK(ProblemOfSlice(spec) == "");
  CHECK(spec["pool"]["name"] == "node-1");
  CHECK(spec["pool"]["generation"] == 7);
  REQUIRE(spec["devices"].size() == 1);
  const Json& device = spec["devices"][0];
  CHECK(device["name"] == "gpu-ab000000-0000-0000-0000-000000000001");
  CHECK(device["allowMultipleAllocations"] == true);
  CHECK(device["attributes"]["uuid"]["string"] == TypicalGpu().uuid);
  CHECK(device["attributes"]["productName"]["string"] == "NVIDIA H100 80GB HBM3");
  CHECK(device["attributes"]["cudaComputeCapability"]["version"] == "9.0.0");
  CHECK(device["attributes"]["cudaDriverVersion"]["version"] == "13.0.0");
  CHECK(device["capacity"]["memory"]["value"] == "81559Mi");
  CHECK(device["capacity"]["memory"]["requestPolicy"]["default"] == "10194Mi");
  CHECK(device["capacity"]["multiprocessors"]["value"] == "132");
  CHECK(device["capacity"]["multiprocessors"]["requestPolicy"]["default"] == "0");
  CHECK(device["capacity"]["places"]["value"] == "8");
  CHECK_FALSE(device.contains("taints"));
}

TEST_CASE("Slices of GPUs of every size are valid") {
  for (const uint64_t memory :
       {uint64_t{0}, uint64_t{1 << 20}, uint64_t{2 << 20}, uint64_t{3} << 20, uint64_t{1} << 38}) {
    for (const int places : {1, 7, 60}) {
      Gpu gpu = TypicalGpu();
      gpu.memory = memory;
      gpu.sm_count = memory == 0 ? 0 : 1;
      gpu.name = std::string(300, 'x');
      SliceOptions options = Options();
      options.places = places;
      INFO(memory << " bytes, " << places << " places");
      CHECK(ProblemOfSlice(SliceSpec({gpu}, true, options, 1)) == "");
    }
  }
}

TEST_CASE("A GPU with which no claim may begin has a taint, or is left out") {
  Gpu lost = TypicalGpu();
  lost.healthy = false;
  const auto taints = [](const Gpu& gpu, bool reachable) {
    const Json spec = SliceSpec({gpu}, reachable, Options(), 1);
    CHECK(ProblemOfSlice(spec) == "");
    return spec["devices"][0].value("taints", Json::array());
  };
  CHECK(taints(lost, true) ==
        Json::parse(R"([{"key": "gpu.detshare.io/lost", "effect": "NoExecute"}])"));
  // A daemon that restarts takes no pod's GPU away.
  CHECK(taints(lost, false) ==
        Json::parse(R"([{"key": "gpu.detshare.io/daemon-unreachable", "effect": "NoSchedule"}])"));
  Gpu shared = TypicalGpu();
  shared.allocator = "detshare-device-plugin";
  CHECK(taints(shared, true) == Json::parse(R"([{"key": "gpu.detshare.io/other-allocator",
                                                 "value": "detshare-device-plugin",
                                                 "effect": "NoSchedule"}])"));
  shared.allocator = kClaimAllocator;
  CHECK(taints(shared, true).empty());

  SliceOptions old = Options();
  old.taints = false;
  CHECK(SliceSpec({lost}, true, old, 1)["devices"].empty());
  CHECK(SliceSpec({TypicalGpu()}, true, old, 1)["devices"].size() == 1);
}

TEST_CASE("A taint that stays keeps its time, and the offer is the same") {
  Gpu lost = TypicalGpu();
  lost.healthy = false;
  Json stored = SliceSpec({lost}, true, Options(), 1);
  stored["devices"][0]["taints"][0]["timeAdded"] = "2026-01-01T00:00:00Z";
  Json again = SliceSpec({lost}, true, Options(), 2);
  CHECK(SameOffer(stored, again));
  KeepTaintTimes(stored, &again);
  CHECK(again["devices"][0]["taints"][0]["timeAdded"] == "2026-01-01T00:00:00Z");
  CHECK_FALSE(SameOffer(stored, SliceSpec({TypicalGpu()}, true, Options(), 2)));
}

}  // namespace
}  // namespace detshare::kubernetes
