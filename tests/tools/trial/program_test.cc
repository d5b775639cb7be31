#include "tools/trial/program.h"

#include <signal.h>

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "absl/time/time.h"

namespace detshare::trial {
namespace {

constexpr absl::Duration kPatience = absl::Seconds(60);

std::vector<std::string> Shell(const std::string& script) { return {"/bin/sh", "-c", script}; }

TEST_CASE("A program says that it is ready, waits for its start, and returns JSON") {
  Program program;
  REQUIRE(program.Start(Shell("echo ready; read line; echo '{\"steps\": 3}'"), {}).ok());
  REQUIRE(program.WaitUntilReady(kPatience).ok());
  program.Go();
  const auto result = program.Result(kPatience);
  REQUIRE(result.ok());
  CHECK(result->value("steps", 0) == 3);
}

TEST_CASE("What a native program says before it ends is in the error") {
  Program program;
  REQUIRE(program.Start(Shell("echo 'no GPU can be used: no driver' >&2; exit 1"), {}).ok());
  const absl::Status status = program.WaitUntilReady(kPatience);
  CHECK(std::string(status.message()).find("no driver") != std::string::npos);
}

TEST_CASE("A program that ends without a word, or is not there, is an error") {
  signal(SIGPIPE, SIG_IGN);
  for (const std::vector<std::string>& command :
       {Shell("echo ready; read line; exit 0"), std::vector<std::string>{"/nowhere/program"}}) {
    Program program;
    REQUIRE(program.Start(command, {}).ok());
    program.WaitUntilReady(kPatience).IgnoreError();
    program.Go();
    CHECK_FALSE(program.Result(kPatience).ok());
  }
}

TEST_CASE("A line that is not JSON is an error that quotes it") {
  for (const char* line : {"hello", "[1]", "{\"steps\": "}) {
    Program program;
    REQUIRE(program.Start({"/bin/echo", line}, {}).ok());
    const auto result = program.Result(kPatience);
    REQUIRE_FALSE(result.ok());
    CHECK(std::string(result.status().message()).find(line) != std::string::npos);
  }
}

TEST_CASE("A program that does not answer ends with the object") {
  Program program;
  REQUIRE(program.Start(Shell("exec sleep 600"), {}).ok());
  CHECK(program.Result(absl::Milliseconds(50)).status().code() ==
        absl::StatusCode::kDeadlineExceeded);
}

}  // namespace
}  // namespace detshare::trial
