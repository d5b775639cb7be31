#include "tools/slurm/arguments.h"

#include <catch2/catch.hpp>

#include "absl/strings/match.h"

namespace detshare::slurm {
namespace {

TEST_CASE("Without arguments the plugin uses what the packages install") {
  const auto arguments = ParseArguments({});
  REQUIRE(arguments.ok());
  CHECK(arguments->socket == "/run/detshare/detshared.sock");
  CHECK(arguments->detsharectl == "/usr/bin/detsharectl");
}

TEST_CASE("The operator names other paths in plugstack.conf") {
  const auto arguments = ParseArguments(
      {"socket=/a/d.sock", "libraries=/b", "detsharectl=/c", "state=/d", "slurm=/opt/slurm/bin"});
  REQUIRE(arguments.ok());
  CHECK(arguments->socket == "/a/d.sock");
  CHECK(arguments->libraries == "/b");
  CHECK(arguments->detsharectl == "/c");
  CHECK(arguments->state == "/d");
  CHECK(arguments->slurm == "/opt/slurm/bin");
}

TEST_CASE("A mistake in plugstack.conf is named") {
  for (const char* wrong : {"socket", "socket=", "socket=d.sock", "sockets=/a", "", "=/a"}) {
    INFO(wrong);
    const auto arguments = ParseArguments({wrong});
    REQUIRE(!arguments.ok());
    CHECK(absl::StartsWith(arguments.status().message(), "plugstack.conf: "));
  }
}

}  // namespace
}  // namespace detshare::slurm
