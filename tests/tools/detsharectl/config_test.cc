// The output of detsharectl config for programs.
#include "tools/detsharectl/config.h"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "policy/config/config_file.h"

namespace detshare::ctl {
namespace {

TEST_CASE("JSON has every key, and values that depend on the machine are null") {
  const nlohmann::json json = nlohmann::json::parse(ConfigJson(Config()));
  for (const ConfigSetting& setting : AllConfigSettings()) {
    INFO(std::string(setting.section) << "." << std::string(setting.key));
    CHECK(json.at(std::string(setting.section)).contains(std::string(setting.key)));
  }
  CHECK(json["daemon"]["spin_us"].is_null());
  CHECK(json["daemon"]["log_level"] == "info");
  CHECK(json["limits"]["streams"] == 16384);
  CHECK(json["tenant"].empty());
  CHECK(json["policy"]["parameters"].empty());
}

TEST_CASE("JSON shows tenants as they are") {
  const ParsedConfig parsed = ParseConfig(
      "[daemon]\nspin_us = 3\n[[tenant]]\nname = \"a\"\nclass = \"latency\"\nsms = \"8..16\"\n"
      "slo_tpot = \"30ms\"\nusers = [\"u\"]\n[[tenant]]\nname = \"b\"\n");
  REQUIRE(parsed.problems.empty());
  const nlohmann::json json = nlohmann::json::parse(ConfigJson(parsed.config));
  CHECK(json["daemon"]["spin_us"] == 3);
  REQUIRE(json["tenant"].size() == 2);
  const nlohmann::json& a = json["tenant"][0];
  CHECK(a["name"] == "a");
  CHECK(a["class"] == "latency");
  CHECK(a["sms"] == nlohmann::json({8, 16}));
  CHECK(a["slo_tpot_ns"] == 30'000'000);
  CHECK(a["users"] == nlohmann::json({"u"}));
  CHECK(json["tenant"][1]["class"].is_null());
  CHECK(json["tenant"][1]["sms"].is_null());
}

}  // namespace
}  // namespace detshare::ctl
