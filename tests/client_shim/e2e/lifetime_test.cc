// The ends of programs and daemons, and what they leave behind.
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <memory>
#include <string>

#include "tests/client_shim/e2e/harness.h"

namespace detshare::e2e {
namespace {

using nlohmann::json;

bool NoSessions(const json& status) {
  return status["sessions"].empty() && status["devices"][0]["used_memory"] == 0;
}

void CheckNothingLeft(const Daemon& daemon) {
  CHECK(daemon.Becomes(NoSessions));
  CHECK(Eventually([&] { return daemon.SessionFiles().empty(); }));
}

TEST_CASE("A program that ends leaves nothing behind") {
  Daemon daemon;
  const Outcome outcome = Run({ClientProgram(), "compute"}, daemon.Environment());
  CHECK(outcome.exit_code == 0);
  CheckNothingLeft(daemon);
}

TEST_CASE("CUDA may still be called by exit handlers and destructors") {
  Daemon daemon;
  const Outcome outcome = Run({ClientProgram(), "atexit"}, daemon.Environment());
  CHECK(outcome.exit_code == 0);
  CHECK_FALSE(outcome.timed_out);
  CHECK(outcome.out.find("atexit\n") != std::string::npos);
  CHECK(outcome.out.find("destructor\n") != std::string::npos);
  CheckNothingLeft(daemon);
}

TEST_CASE("A program may end with work in flight") {
  Daemon daemon;
  const Outcome outcome = Run({ClientProgram(), "in-flight"}, daemon.Environment());
  CHECK(outcome.exit_code == 0);
  CHECK_FALSE(outcome.timed_out);
  CheckNothingLeft(daemon);
}

TEST_CASE("A program may end while its threads are inside CUDA") {
  Daemon daemon;
  for (int i = 0; i < 3; ++i) {
    const Outcome outcome = Run({ClientProgram(), "exit-while-threads-work"}, daemon.Environment());
    CHECK(outcome.exit_code == 7);
    CHECK_FALSE(outcome.timed_out);
  }
  CheckNothingLeft(daemon);
}

TEST_CASE("A client that is killed in the middle of a copy leaves nothing behind") {
  Daemon daemon;
  for (int round = 0; round < 3; ++round) {
    Process client({ClientProgram(), "copy-for-ever"}, daemon.Environment());
    REQUIRE(client.ReadLine() == "ready");
    // It holds memory of all kinds and copies.
    REQUIRE(daemon.Becomes([](const json& status) {
      return status["sessions"].size() == 1 && status["sessions"][0]["bytes_copied"] > 0;
    }));
    const json status = daemon.Status();
    CHECK(status["sessions"][0]["device_memory"] >= 32 << 20);
    CHECK(status["sessions"][0]["pinned_memory"] >= 32 << 20);
    CHECK_FALSE(daemon.SessionFiles().empty());
    client.Signal(SIGKILL);
    CHECK(client.Wait().exit_code == 128 + SIGKILL);
    CheckNothingLeft(daemon);
  }
  // The daemon goes on serving.
  CHECK(Run({ClientProgram(), "compute"}, daemon.Environment()).exit_code == 0);
}

TEST_CASE("A client that is killed does not disturb its neighbour") {
  Daemon daemon;
  const std::string alone = Run({ClientProgram(), "compute", "5"}, daemon.Environment()).out;
  Process victim({ClientProgram(), "copy-for-ever"}, daemon.Environment());
  REQUIRE(victim.ReadLine() == "ready");
  Process neighbour({ClientProgram(), "compute-many", "5"}, daemon.Environment());
  REQUIRE(neighbour.ReadLine() + "\n" == alone);
  victim.Signal(SIGKILL);
  victim.Wait();
  const Outcome outcome = neighbour.Wait();
  CHECK(outcome.exit_code == 0);
  std::string expected;
  for (int i = 0; i < 20; ++i) expected += alone;
  CHECK(outcome.out == expected);
  CheckNothingLeft(daemon);
}

TEST_CASE("Only the program that faults gets the error") {
  Daemon daemon;
  const std::string alone = Run({ClientProgram(), "compute", "5"}, daemon.Environment()).out;
  Process neighbour({ClientProgram(), "compute-many", "5"}, daemon.Environment());
  REQUIRE(neighbour.ReadLine() + "\n" == alone);
  for (int i = 0; i < 3; ++i) {
    const Outcome guilty = Run({ClientProgram(), "fault"}, daemon.Environment());
    CHECK(guilty.exit_code == 0);
    CHECK(guilty.out == "cudaErrorIllegalAddress\ncudaErrorIllegalAddress\n");
  }
  const Outcome outcome = neighbour.Wait();
  CHECK(outcome.exit_code == 0);
  std::string expected;
  for (int i = 0; i < 20; ++i) expected += alone;
  CHECK(outcome.out == expected);
  CheckNothingLeft(daemon);
}

TEST_CASE("Two tenants at once get the results that each gets alone") {
  Daemon daemon;
  const std::string first_alone = RunThrough(daemon, {ClientProgram(), "compute-many", "11"}).out;
  const std::string second_alone = RunThrough(daemon, {ClientProgram(), "compute-many", "22"}).out;
  REQUIRE_FALSE(first_alone.empty());
  REQUIRE(first_alone != second_alone);
  Strings environment = daemon.Environment();
  environment.push_back("DETSHARE_TENANT=one");
  Process first({ClientProgram(), "compute-many", "11"}, environment);
  environment.back() = "DETSHARE_TENANT=two";
  Process second({ClientProgram(), "compute-many", "22"}, environment);
  const Outcome first_outcome = first.Wait(), second_outcome = second.Wait();
  CHECK(first_outcome.exit_code == 0);
  CHECK(second_outcome.exit_code == 0);
  CHECK(first_outcome.out == first_alone);
  CHECK(second_outcome.out == second_alone);
  CheckNothingLeft(daemon);
}

TEST_CASE("The status names sessions and their tenants") {
  Daemon daemon;
  Strings environment = daemon.Environment();
  environment.push_back("DETSHARE_TENANT=somebody");
  Process client({ClientProgram(), "work-for-ever"}, environment);
  REQUIRE(client.ReadLine() == "ready");
  const json status = daemon.Status();
  REQUIRE(status["sessions"].size() == 1);
  CHECK(status["sessions"][0]["tenant"] == "somebody");
  CHECK(status["sessions"][0]["pid"] == client.pid());
  CHECK(status["sessions"][0]["program"].get<std::string>().find("client_program") !=
        std::string::npos);
}

TEST_CASE("When the daemon ends, a working client gets an error and neither hangs nor crashes") {
  Daemon daemon;
  Process client({ClientProgram(), "work-for-ever"}, daemon.Environment());
  REQUIRE(client.ReadLine() == "ready");
  daemon.Signal(SIGTERM);
  const Outcome ended = daemon.Wait();
  CHECK(ended.exit_code == 0);
  CHECK_FALSE(ended.timed_out);
  const Outcome outcome = client.Wait();
  CHECK_FALSE(outcome.timed_out);
  CHECK(outcome.exit_code == 3);  // it got an error and ended itself
  CHECK(outcome.out.find("cudaError") != std::string::npos);
  CHECK(daemon.SessionFiles().empty());
}

TEST_CASE(
    "When the daemon is killed, a working client gets an error and neither hangs nor crashes") {
  Daemon daemon;
  Process client({ClientProgram(), "work-for-ever"}, daemon.Environment());
  REQUIRE(client.ReadLine() == "ready");
  daemon.Signal(SIGKILL);
  daemon.Wait();
  const Outcome outcome = client.Wait();
  CHECK_FALSE(outcome.timed_out);
  CHECK(outcome.exit_code == 3);
}

TEST_CASE(
    "A program whose session is killed learns why, also if it ends with the call that failed") {
  Daemon daemon;
  // The reason and the failure come by different ways, so the failure may come first.
  for (int round = 0; round < 10; ++round) {
    Process client({ClientProgram(), "ask-for-ever"}, daemon.Environment());
    REQUIRE(client.ReadLine() == "ready");
    const json status = daemon.Status();
    REQUIRE(status["sessions"].size() == 1);
    const std::string session = std::to_string(status["sessions"][0]["session"].get<uint64_t>());
    CHECK(Run({Path("tools/detsharectl/detsharectl"), "sessions", "kill", session, "--socket",
               daemon.socket()})
              .exit_code == 0);
    const Outcome outcome = client.Wait();
    CHECK(outcome.exit_code == 3);
    CHECK(outcome.out == "ready\ncudaErrorNotPermitted\n");
    CHECK_THAT(outcome.err, Catch::Contains("detshared ended the session: ended by uid"));
    REQUIRE(daemon.Becomes(NoSessions));
  }
}

TEST_CASE("After a fork the child gets CUDA_ERROR_NOT_INITIALIZED, and the parent goes on") {
  Daemon daemon;
  const Outcome outcome = Run({ClientProgram(), "fork-after-init"}, daemon.Environment());
  CHECK(outcome.exit_code == 0);
  CHECK(outcome.out.find("cudaErrorInitializationError") != std::string::npos);
  CheckNothingLeft(daemon);
}

TEST_CASE("Parent and child may both use CUDA when the fork comes first") {
  Daemon daemon;
  const Outcome outcome = Run({ClientProgram(), "fork-before-init"}, daemon.Environment());
  CHECK(outcome.exit_code == 0);
  CHECK(std::count(outcome.out.begin(), outcome.out.end(), '\n') == 2);
}

TEST_CASE("A forked child may execute another CUDA program") {
  Daemon daemon;
  const Outcome outcome = Run({ClientProgram(), "fork-and-execute"}, daemon.Environment());
  CHECK(outcome.exit_code == 0);
  CHECK(std::count(outcome.out.begin(), outcome.out.end(), '\n') == 3);
}

TEST_CASE("A reset of the device begins with fresh variables") {
  Daemon daemon;
  const Outcome outcome = Run({ClientProgram(), "reset"}, daemon.Environment());
  CHECK(outcome.exit_code == 0);
  CHECK(outcome.out.rfind("counter 42\ncounter 42\n", 0) == 0);
}

TEST_CASE("Objects beyond a limit are refused, and the program goes on") {
  char file[] = "/tmp/detshare-limits-XXXXXX";
  const int fd = mkstemp(file);
  REQUIRE(fd >= 0);
  const std::string text = "[limits]\nstreams = 10\nevents = 20\ncontexts = 3\n";
  REQUIRE(write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size()));
  close(fd);
  {
    Daemon daemon({"--config", file});
    const Outcome outcome = Run({ClientProgram(), "limits"}, daemon.Environment());
    CHECK(outcome.exit_code == 0);
    CHECK_THAT(outcome.out, Catch::Contains("streams 9 cudaErrorMemoryAllocation\n"
                                            "events 20 cudaErrorMemoryAllocation\n"
                                            "contexts 2 2\n"));
  }
  unlink(file);
}

TEST_CASE("What a destroyed executable graph had does not outlive its context") {
  Daemon daemon;
  const Outcome outcome = Run({ClientProgram(), "reset-with-graphs"}, daemon.Environment());
  CHECK(outcome.exit_code == 0);
}

TEST_CASE("Memory that has the address of a dead graph's memory can be freed") {
  Daemon daemon;
  const Outcome outcome = Run({ClientProgram(), "reset-with-graph-memory"}, daemon.Environment());
  CHECK(outcome.exit_code == 0);
  CHECK(outcome.out.rfind("same address\n", 0) == 0);
}

TEST_CASE("A program may free registered memory and unregister it afterwards, or never") {
  Daemon daemon;
  const Outcome outcome = Run({ClientProgram(), "freed-registered"}, daemon.Environment());
  CHECK(outcome.exit_code == 0);
  CHECK(outcome.out.rfind("child 0\nkept\n", 0) == 0);
}

TEST_CASE("Allocations do not wait for launches that wait for room") {
  Daemon daemon;
  const Outcome outcome = Run({ClientProgram(), "allocate-past-queue"}, daemon.Environment());
  CHECK(outcome.exit_code == 0);
  CHECK(outcome.out == "allocated\n");
}

TEST_CASE("A program may ask about more events than a session has fences") {
  Daemon daemon;
  const Outcome outcome = Run({ClientProgram(), "many-events"}, daemon.Environment());
  CHECK(outcome.exit_code == 0);
  CHECK(outcome.out.rfind("ran 100\n", 0) == 0);
}

}  // namespace
}  // namespace detshare::e2e
