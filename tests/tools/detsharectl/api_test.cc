#include "tools/detsharectl/api.h"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

namespace detshare::ctl {
namespace {

TEST_CASE("The table of the API has every symbol that CUDA 13.0's libcuda exports") {
  CHECK(nlohmann::json::parse(ApiJson({})).size() == 637);
}

TEST_CASE("Every unsupported function has a reason") {
  const auto rows = nlohmann::json::parse(ApiJson({.unsupported = true}));
  CHECK(rows.size() > 0);
  for (const auto& row : rows) {
    INFO(row["symbol"]);
    CHECK(row["support"] != "full");
    CHECK(row["note"] != "");
  }
}

TEST_CASE("The text names functions under their family and ends with totals") {
  const std::string text = ApiText({});
  CHECK(text.find("cuLaunchKernel ") != std::string::npos);
  CHECK(text.rfind(" not supported.\n") == text.size() - 16);
  CHECK(ApiText({.unsupported = true}).find("  cuInit ") == std::string::npos);
}

}  // namespace
}  // namespace detshare::ctl
