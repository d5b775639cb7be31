// Programs whose processes end, fork, get signals or lack a resource, in every way that a process
// can.
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <thread>

#include "tests/client_shim/e2e/harness.h"

namespace detshare::e2e {
namespace {

using nlohmann::json;

std::string Program() { return Path("tests/client_shim/e2e/process_program"); }

bool NoSessions(const json& status) {
  return status["sessions"].empty() && status["devices"][0]["used_memory"] == 0;
}

void CheckNothingLeft(const Daemon& daemon) {
  CHECK(daemon.Becomes(NoSessions));
  CHECK(Eventually([&] { return daemon.SessionFiles().empty(); }));
}

// Runs the program. It must end itself with that code, print nothing on stderr and leave nothing
// behind. Returns what it printed.
std::string Live(const Daemon& daemon, const std::string& what, int exit_code = 0,
                 const Strings& more = {}) {
  Strings environment = daemon.Environment();
  environment.insert(environment.end(), more.begin(), more.end());
  const Outcome outcome = Run({Program(), what}, environment);
  INFO(what);
  CHECK_FALSE(outcome.timed_out);
  CHECK(outcome.exit_code == exit_code);
  CHECK(outcome.err.empty());
  CheckNothingLeft(daemon);
  return outcome.out;
}

// ---- ends

TEST_CASE("A program may end in a signal handler, by abort or by another program, at any moment") {
  Daemon daemon;
  CHECK(Live(daemon, "exit-in-handler", 9).empty());
  CHECK(Live(daemon, "abort", 128 + SIGABRT).empty());
  CHECK(Live(daemon, "execute") == "ok\n");
}

TEST_CASE("CUDA goes on when the main thread ends before the others") {
  Daemon daemon;
  CHECK(Live(daemon, "end-main-thread", 5) == "ok\n");
}

TEST_CASE("An exit handler from before cuInit gets CUDA_ERROR_DEINITIALIZED") {
  Daemon daemon;
  CHECK(Live(daemon, "call-after-the-end") ==
        "ok\nCUDA_ERROR_DEINITIALIZED\nCUDA_ERROR_DEINITIALIZED\n");
}

TEST_CASE("Destructors of thread-local variables may call CUDA") {
  Daemon daemon;
  CHECK(Live(daemon, "thread-local-destructors") == "cudaSuccess\ncudaSuccess\n");
}

TEST_CASE("A program may close the library and open it again") {
  Daemon daemon;
  CHECK(Live(daemon, "close-library") == "CUDA_SUCCESS\nCUDA_SUCCESS\nCUDA_SUCCESS\nok\n");
}

// ---- forks

TEST_CASE("In every thread of a child, runtime and driver say that CUDA is not initialised") {
  Daemon daemon;
  CHECK(
      Live(daemon, "fork-and-ask") ==
      "cudaErrorInitializationError\nCUDA_ERROR_NOT_INITIALIZED\nCUDA_ERROR_NOT_INITIALIZED\nok\n");
}

TEST_CASE("Two hundred children that end in four ways do not disturb a parent that launches") {
  Daemon daemon;
  CHECK(Live(daemon, "fork-storm") == "0 children failed, ok\n");
}

TEST_CASE("A child reads its parent's pinned and registered memory and cannot take it away") {
  Daemon daemon;
  CHECK(Live(daemon, "fork-with-host-memory") == "ok\n");
}

TEST_CASE("A working program starts others with system, popen, posix_spawn and vfork") {
  Daemon daemon;
  CHECK(Live(daemon, "start-others") ==
        "ok\nsystem 0\npopen 0 ok\nok\nposix_spawn 0\nok\nvfork 0\nok\n");
}

TEST_CASE("A session ends with its process, although a child of the process lives on") {
  Daemon daemon;
  int input[2];
  REQUIRE(pipe(input) == 0);
  const int own_input = dup(STDIN_FILENO);
  dup2(input[0], STDIN_FILENO);
  Process program({Program(), "leave-child"}, daemon.Environment());
  dup2(own_input, STDIN_FILENO);
  close(own_input);
  close(input[0]);
  REQUIRE(program.ReadLine() == "child");
  CheckNothingLeft(daemon);
  // The child is still alive, so it replies.
  REQUIRE(write(input[1], "x", 1) == 1);
  CHECK(program.ReadLine() == "child ends");
  close(input[1]);
  CHECK(program.Wait().exit_code == 0);
}

TEST_CASE("The child of a refused program gets an error and does not hang") {
  Daemon daemon;
  Strings environment = daemon.Environment();
  environment.push_back("DETSHARE_DEVICES=7");
  const Outcome outcome = Run({Program(), "fork-after-refusal"}, environment);
  CHECK(outcome.exit_code == 0);
  CHECK(outcome.out == "CUDA_ERROR_NO_DEVICE\nCUDA_ERROR_NOT_INITIALIZED\n");
}

TEST_CASE(
    "Python may fork and spawn processes that use CUDA, before and after it uses CUDA itself") {
  Daemon daemon;
  const Outcome outcome =
      Run({"/usr/bin/python3", Path("tests/client_shim/e2e/python_processes.py")},
          daemon.Environment());
  CHECK(outcome.exit_code == 0);
  CHECK(outcome.err.empty());
  CHECK(outcome.out ==
        "fork before: ok\n"
        "here: ok\n"
        "fork after: 3\n"
        "spawn: ok\n"
        "forkserver: ok\n"
        "subprocess: ok\n"
        "preexec: ok\n"
        "system: 0\n"
        "here: ok\n");
  CheckNothingLeft(daemon);
}

// ---- signals

TEST_CASE("Calls that signals interrupt all the time give the same results") {
  Daemon daemon;
  CHECK(Live(daemon, "signal-storm") == "ok\n");
}

TEST_CASE("The thread that waits for a blocked signal gets it") {
  Daemon daemon;
  Process program({Program(), "wait-for-signal"}, daemon.Environment());
  REQUIRE(program.ReadLine() == "ready");
  program.Signal(SIGTERM);
  const Outcome outcome = program.Wait();
  CHECK(outcome.exit_code == 0);
  CHECK(outcome.out == "ready\nok\n");
  CheckNothingLeft(daemon);
}

TEST_CASE("Ctrl-C ends a program that waits for the GPU") {
  Daemon daemon;
  Process program({Program(), "wait-for-ever"}, daemon.Environment());
  REQUIRE(program.ReadLine() == "ready");
  program.Signal(SIGINT);
  const Outcome outcome = program.Wait();
  CHECK_FALSE(outcome.timed_out);
  CHECK(outcome.exit_code == 128 + SIGINT);
  CheckNothingLeft(daemon);
}

TEST_CASE("A handler of Ctrl-C runs while the program waits for the GPU, and the wait goes on") {
  Daemon daemon;
  Process program({Program(), "handle-in-wait"}, daemon.Environment());
  REQUIRE(program.ReadLine() == "ready");
  program.Signal(SIGINT);
  const Outcome outcome = program.Wait();
  CHECK(outcome.exit_code == 0);
  CHECK(outcome.out == "ready\nhandled 1\nok\n");
  CheckNothingLeft(daemon);
}

// ---- threads

TEST_CASE(
    "Sixty-four threads with their own streams, memory and code get the same results as alone") {
  Daemon daemon;
  CHECK(Live(daemon, "threads") == "0 threads wrong\n");
}

// ---- idleness

// Counts how often the threads of a process have been taken off a CPU. gRPC's own timer threads are
// left out.
std::map<std::string, uint64_t> Switches(pid_t pid) {
  std::map<std::string, uint64_t> switches;
  const std::string tasks = "/proc/" + std::to_string(pid) + "/task";
  for (const auto& task : std::filesystem::directory_iterator(tasks)) {
    std::ifstream status(task.path() / "status");
    std::string line, name;
    uint64_t sum = 0;
    while (std::getline(status, line)) {
      if (line.rfind("Name:\t", 0) == 0) name = line.substr(6);
      const size_t colon = line.find("ctxt_switches:");
      if (colon != std::string::npos) sum += std::stoull(line.substr(colon + 14));
    }
    const auto starts = [&](const char* with) { return name.rfind(with, 0) == 0; };
    if (starts("grpc_") || starts("timer_") || starts("nexting_")) continue;
    switches[name + " " + task.path().filename().string()] = sum;
  }
  return switches;
}

TEST_CASE("An idle program costs nothing: none of its threads and none of the daemon's runs") {
#if defined(__SANITIZE_THREAD__)
  WARN("the sanitizer has a thread in the daemon that runs: not tested");
  return;
#endif
  Daemon daemon;
  Process program({Program(), "idle"}, daemon.Environment());
  REQUIRE(program.ReadLine() == "idle");
  // Everything that wakes up from time to time does so within a second and a half.
  bool still = false;
  for (int i = 0; i < 40 && !still; ++i) {
    const auto of_program = Switches(program.pid()), of_daemon = Switches(daemon.pid());
    std::this_thread::sleep_for(std::chrono::milliseconds(1500));
    still = Switches(program.pid()) == of_program && Switches(daemon.pid()) == of_daemon;
  }
  CHECK(still);
  CHECK(Switches(daemon.pid()).size() > 3);
  // Program and daemon react at once when they are needed again.
  program.Signal(SIGTERM);
  CHECK(program.Wait().exit_code == 128 + SIGTERM);
  CheckNothingLeft(daemon);
  CHECK(Live(daemon, "compute") == "ok\n");
}

// ---- limits and surroundings

TEST_CASE("A process that may open few files gets an error, and gets CUDA once it may open more") {
  Daemon daemon;
  const Outcome outcome = Run({Program(), "few-descriptors"}, daemon.Environment());
  CHECK(outcome.exit_code == 0);
  std::string expected;
  for (int i = 0; i < 5; ++i) expected += "CUDA_ERROR_OPERATING_SYSTEM ";
  CHECK(outcome.out == expected + "CUDA_SUCCESS\nok\n");
  CHECK(outcome.err.find("ulimit -n") != std::string::npos);
  CheckNothingLeft(daemon);
}

TEST_CASE("A process with little address space gets an error, and gets CUDA once it has more") {
  Daemon daemon;
  const Outcome outcome = Run({Program(), "little-address-space"}, daemon.Environment());
  CHECK(outcome.exit_code == 0);
  CHECK(outcome.out == "CUDA_ERROR_OUT_OF_MEMORY\nCUDA_SUCCESS\nok\n");
  CHECK(outcome.err.find("ulimit -v") != std::string::npos);
  CheckNothingLeft(daemon);
}

TEST_CASE("A program needs no home directory and may change its root") {
  Daemon daemon;
  CHECK(Live(daemon, "compute", 0, {"HOME", "XDG_CACHE_HOME"}) == "ok\n");
  CHECK(Live(daemon, "compute", 0, {"HOME=/nonexistent"}) == "ok\n");
  if (geteuid() == 0) CHECK(Live(daemon, "change-root") == "ok\n");
}

TEST_CASE("CUDA_LAUNCH_BLOCKING makes launches wait for their kernels") {
  Daemon daemon;
  CHECK(Live(daemon, "blocking", 0, {"CUDA_LAUNCH_BLOCKING=1"}) == "waits\ncudaSuccess\n");
  CHECK(Live(daemon, "blocking", 0, {"CUDA_LAUNCH_BLOCKING"}).rfind("returned\n", 0) == 0);
}

}  // namespace
}  // namespace detshare::e2e
