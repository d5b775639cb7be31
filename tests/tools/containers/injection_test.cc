#include "tools/containers/injection.h"

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>

namespace detshare::containers {
namespace {

TEST_CASE("The CDI specification has a device for each endpoint, and is written when it changes") {
  const Injection common = CommonInjection("/opt/detshare");
  const std::string text = CdiSpec(kCdiGpus, common, "/run/detshare", {"a.0-1", "b.0-2"});
  const auto spec = nlohmann::json::parse(text);
  CHECK(spec["kind"] == "detshare.io/gpu");
  CHECK(spec["containerEdits"]["env"][0] == "NVIDIA_VISIBLE_DEVICES=void");
  CHECK(spec["containerEdits"]["mounts"].size() == 4);
  CHECK(spec["containerEdits"]["mounts"][0]["hostPath"] == "/opt/detshare/libcuda.so.1");
  CHECK(spec["containerEdits"]["mounts"][0]["options"][1] == "ro");
  REQUIRE(spec["devices"].size() == 2);
  CHECK(spec["devices"][1]["name"] == "b.0-2");
  const auto& mount = spec["devices"][1]["containerEdits"]["mounts"][0];
  CHECK(mount["hostPath"] == "/run/detshare/endpoints/b.0-2");
  CHECK(mount["containerPath"] == "/run/detshare");
  CHECK(mount["options"][1] == "rw");

  char pattern[] = "/tmp/detshare-cdi-XXXXXX";
  const std::string directory = std::string(mkdtemp(pattern)) + "/not/there/yet";
  const std::string file = directory + "/detshare.json";
  REQUIRE(WriteCdiSpec(file, text).ok());
  const auto first = std::filesystem::last_write_time(file);
  CHECK((std::filesystem::status(file).permissions() & std::filesystem::perms::all) ==
        std::filesystem::perms(0644));
  CHECK(WriteCdiSpec(file, text).ok());
  CHECK(std::filesystem::last_write_time(file) == first);
  CHECK(WriteCdiSpec(file, "{}").ok());
  CHECK(std::filesystem::file_size(file) == 2);
  CHECK_FALSE(WriteCdiSpec("/proc/none/detshare.json", text).ok());
  std::filesystem::remove_all(pattern);
}

}  // namespace
}  // namespace detshare::containers
