#include "tools/slurm/command.h"

#include <signal.h>

#include <catch2/catch.hpp>
#include <cstdlib>

#include "absl/strings/match.h"

namespace detshare::slurm {
namespace {

using std::chrono::seconds;

TEST_CASE("A command's exit code and both of its outputs are returned") {
  const auto result = RunCommand({"/bin/sh", "-c", "echo out; echo err >&2; exit 3"}, seconds(60));
  REQUIRE(result.ok());
  CHECK(result->exit_code == 3);
  CHECK(result->output == "out\n");
  CHECK(result->errors == "err\n");
}

TEST_CASE("A command's arguments reach it as they are") {
  const auto result = RunCommand({"/bin/echo", "$HOME; `id`", "a  b"}, seconds(60));
  REQUIRE(result.ok());
  CHECK(result->output == "$HOME; `id` a  b\n");
}

TEST_CASE("A command gets a path and Slurm's configuration, and nothing else of the environment") {
  setenv("SLURM_CONF", "/etc/some.conf", 1);
  setenv("LD_PRELOAD_OF_A_USER", "x", 1);
  const auto result = RunCommand({"/usr/bin/env"}, seconds(60));
  REQUIRE(result.ok());
  CHECK(result->output == "PATH=/usr/sbin:/usr/bin:/sbin:/bin\nSLURM_CONF=/etc/some.conf\n");
}

TEST_CASE("A command that writes much is read to its end, and its first part is kept") {
  const auto result = RunCommand({"/bin/sh", "-c", "head -c 1000000 /dev/zero"}, seconds(60));
  REQUIRE(result.ok());
  CHECK(result->exit_code == 0);
  CHECK(result->output.size() == 64 << 10);
}

TEST_CASE("A program that does not exist and one that is killed are unavailable") {
  const auto missing = RunCommand({"/nowhere/program"}, seconds(60));
  CHECK(absl::IsUnavailable(missing.status()));
  CHECK(absl::StrContains(missing.status().message(), "/nowhere/program: No such file"));
  const auto killed = RunCommand({"/bin/sh", "-c", "kill -KILL $$"}, seconds(60));
  CHECK(absl::IsUnavailable(killed.status()));
  CHECK(absl::StrContains(killed.status().message(), "signal 9"));
}

TEST_CASE("Signals that the caller blocks end a command") {
  sigset_t blocked, before;
  sigemptyset(&blocked);
  sigaddset(&blocked, SIGTERM);
  REQUIRE(pthread_sigmask(SIG_BLOCK, &blocked, &before) == 0);
  const auto ended = RunCommand({"/bin/sh", "-c", "kill -TERM $$; exit 3"}, seconds(60));
  REQUIRE(pthread_sigmask(SIG_SETMASK, &before, nullptr) == 0);
  CHECK(absl::StrContains(ended.status().message(), "signal 15"));
}

TEST_CASE("A command that does not end is killed") {
  const auto result = RunCommand({"/bin/sleep", "3600"}, std::chrono::milliseconds(20));
  CHECK(absl::IsDeadlineExceeded(result.status()));
}

}  // namespace
}  // namespace detshare::slurm
