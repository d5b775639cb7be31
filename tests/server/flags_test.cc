// The command line, and how it overrides the configuration file.
#include "server/flags.h"

#include <catch2/catch.hpp>
#include <fstream>

#include "tests/server/test_windows.h"

namespace detshare {
namespace {

std::optional<int> Parse(std::vector<std::string> arguments, Flags* flags) {
  std::vector<const char*> argv = {"detshared"};
  for (const std::string& argument : arguments) argv.push_back(argument.c_str());
  return ParseFlags(static_cast<int>(argv.size()), argv.data(), flags);
}

TEST_CASE("Flags override the configuration file, and add tenants to it") {
  TestDirectory directory;
  const std::string file = directory.path + "/detshare.toml";
  std::ofstream(file) << "[daemon]\nlog_level = \"error\"\nsession_slots = 3\n"
                         "[[tenant]]\nname = \"a\"\nsm_percent = 10\n";
  Flags flags;
  REQUIRE_FALSE(Parse({"--config", file, "--log-level=debug", "--tenant", "a=20", "--tenant",
                       "b=30", "--migrate-every", "7"},
                      &flags)
                    .has_value());
  CHECK(flags.server.migrate_every == 7);
  std::string text;
  const absl::StatusOr<Config> config = ReadConfiguration(flags, &text);
  INFO(config.status());
  REQUIRE(config.ok());
  CHECK_THAT(text, Catch::StartsWith("[daemon]\nlog_level = \"error\"\n"));
  CHECK(config->log_level == "debug");
  CHECK(config->session_slots == 3);
  REQUIRE(config->tenants.size() == 2);
  CHECK(config->tenants[0].tenant.sm_percent == 20);
  CHECK(config->tenants[1].tenant.name == "b");
  CHECK(config->tenants[1].tenant.sm_percent == 30);
}

TEST_CASE("A mistake in the file or in a tenant is an error with its place") {
  Flags flags;
  REQUIRE_FALSE(Parse({"--tenant", "a"}, &flags).has_value());
  CHECK_THAT(std::string(ReadConfiguration(flags).status().message()),
             Catch::Contains("--tenant is NAME=PERCENT, not a"));
  for (const char* wrong : {"a=101", "a=-1"}) {
    Flags share;
    REQUIRE_FALSE(Parse({"--tenant", wrong}, &share).has_value());
    CHECK_THAT(std::string(ReadConfiguration(share).status().message()),
               Catch::Contains("the share of the SMs is 0 to 100 percent"));
  }
  TestDirectory directory;
  flags = Flags();
  flags.config_file = directory.path + "/detshare.toml";
  CHECK(ReadConfiguration(flags).status().code() == absl::StatusCode::kNotFound);
  std::ofstream(flags.config_file) << "[daemon]\nx = 1\n";
  CHECK_THAT(std::string(ReadConfiguration(flags).status().message()),
             Catch::Contains("detshare.toml:2:1: "));
}

TEST_CASE("The process ends at once after --version, and after a flag that is not valid") {
  Flags flags;
  CHECK(Parse({"--version"}, &flags) == 0);
  CHECK(Parse({"--log-level", "loud"}, &flags) == 2);
  CHECK(Parse({"--no-such-flag"}, &flags) == 2);
  CHECK(Parse({"argument"}, &flags) == 2);
}

TEST_CASE("A command loses flags with their values, in both notations") {
  using Command = std::vector<std::string>;
  CHECK(CommandWithout({"detshared", "--listen-fd", "5", "--listen-fd=5", "--ready-fd", "6",
                        "--listen-fds", "7", "--socket=--listen-fd"},
                       {"--listen-fd", "--ready-fd"}) ==
        Command{"detshared", "--listen-fds", "7", "--socket=--listen-fd"});
  CHECK(CommandWithout({"detshared", "--ready-fd"}, {"--ready-fd"}) == Command{"detshared"});
}

}  // namespace
}  // namespace detshare
