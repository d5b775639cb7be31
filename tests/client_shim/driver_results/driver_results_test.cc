#include <catch2/catch.hpp>
#include <fstream>
#include <sstream>

#include "tests/client_shim/e2e/harness.h"

namespace detshare::e2e {
namespace {

TEST_CASE("The shim refuses what driver 580 refuses, with the same codes") {
  std::ifstream file(Path("tests/client_shim/driver_results/driver_results.expected"));
  std::stringstream expected;
  expected << file.rdbuf();
  REQUIRE_FALSE(expected.str().empty());
  Daemon daemon;
  const Outcome outcome =
      Run({Path("tests/client_shim/driver_results/driver_results")}, daemon.Environment());
  CHECK(outcome.exit_code == 0);
  CHECK(outcome.err == "");
  CHECK(outcome.out == expected.str());
}

TEST_CASE("Threads that use everything at once get the results that each gets alone") {
  Daemon daemon;
  const Outcome outcome =
      Run({Path("tests/client_shim/driver_results/driver_threads")}, daemon.Environment());
  CHECK(outcome.exit_code == 0);
  CHECK(outcome.err == "");
  CHECK(outcome.out == "ok\n");
}

}  // namespace
}  // namespace detshare::e2e
