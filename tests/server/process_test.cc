// The daemon as a process: its signals, its files, and how it starts again when a device is lost.
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>

#include <algorithm>
#include <catch2/catch.hpp>

#include "coroutine_runtime/status_cuda.h"
#include "proto/control.pb.h"
#include "server/backends/cuda/pci_gpus.h"
#include "tests/server/daemon_process.h"

namespace detshare {
namespace {

TEST_CASE("SIGTERM ends the daemon cleanly: clients are told, files are gone, the exit code is 0") {
  DaemonProcess process({});
  TestClient client(process.socket());
  REQUIRE(client.Open());
  client.CreateStream(1);
  CHECK(client.Allocate(1 << 20) != 0);
  kill(process.pid, SIGTERM);
  const auto ended = client.AwaitEnd();
  REQUIRE(ended.has_value());
  CHECK(ended->result() == kCudaErrorSystemNotReady);
  const int status = process.Wait();
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
  CHECK_FALSE(std::filesystem::exists(process.directory.path + "/sessions"));
  CHECK_FALSE(std::filesystem::exists(process.socket()));
}

TEST_CASE(
    "Backend auto warns in one line of a host without a GPU, and refuses a GPU without a driver") {
  DaemonProcess process({"--cuda-driver", "/nowhere/libcuda.so.1"});
  process.Kill();
  *std::find(process.command.begin(), process.command.end(), "soft") = "auto";
  process.Spawn();
  const bool has_gpu = !NvidiaGpusOnPci().empty();
  if (has_gpu) {
    CHECK(WEXITSTATUS(process.Wait()) == 1);
  } else {
    process.AwaitSocket();
  }
  std::string line;
  for (std::ifstream log(process.directory.path + "/log"); std::getline(log, line);) {
    if (line.find("no CUDA driver") != std::string::npos) break;
  }
  CHECK_THAT(line, Catch::StartsWith(has_gpu ? "ERROR" : "WARNING"));
  CHECK_THAT(line, Catch::Contains("no CUDA driver: /nowhere/libcuda.so.1"));
  CHECK_THAT(line, Catch::Contains(has_gpu ? "choose backend soft" : "a software GPU computes"));
}

TEST_CASE(
    "A lost device ends all sessions with its error, and the daemon serves again in the same "
    "process") {
  DaemonProcess process({"--soft-lose-device-on-fault"});
  TestClient guilty(process.socket()), innocent(process.socket());
  guilty.tenant = "guilty";
  REQUIRE(guilty.Open());
  REQUIRE(innocent.Open());
  guilty.CreateStream(1);
  const KernelId kernel = guilty.GetKernel(guilty.Load(kFaultPtx), "fault");
  REQUIRE(kernel != 0);
  guilty.ring->Send(Op::cuLaunchKernelEx, guilty.LaunchOf(kernel, 1));
  guilty.AwaitEnd();
  innocent.AwaitEnd();
  for (TestClient* client : {&guilty, &innocent}) {
    CHECK(client->ring->header().sticky_error.load() == kCudaErrorIllegalAddress);
    CHECK(client->ring->header().closed.load() == 1);
    CHECK(client->ring->fence(7).load() == UINT64_MAX);
  }
  const auto begin = std::chrono::steady_clock::now();
  uint64_t session = 0;
  REQUIRE(Eventually([&] {
    TestClient next(process.socket());
    if (!next.Open()) return false;
    session = next.grant.session();
    next.CreateStream(1);
    return next.Allocate(4096) != 0;
  }));
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(3));
  CHECK(session > innocent.grant.session());
  CHECK(kill(process.pid, 0) == 0);
  CHECK_THAT(process.Log(), Catch::Contains("session 1 (tenant guilty"));
  CHECK_THAT(process.Log(), Catch::Contains("CUDA_ERROR_ILLEGAL_ADDRESS"));
  kill(process.pid, SIGTERM);
  const int status = process.Wait();
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
}

TEST_CASE("On a device that survives faults, a fault ends one session's work only") {
  DaemonProcess process({});
  TestClient guilty(process.socket()), innocent(process.socket());
  REQUIRE(guilty.Open());
  REQUIRE(innocent.Open());
  guilty.CreateStream(1);
  const KernelId kernel = guilty.GetKernel(guilty.Load(kFaultPtx), "fault");
  REQUIRE(kernel != 0);
  guilty.ring->Send(Op::cuLaunchKernelEx, guilty.LaunchOf(kernel, 1));
  CHECK(guilty.Synchronize(1) == kCudaErrorIllegalAddress);
  CHECK(innocent.Allocate(4096) != 0);
  innocent.CreateStream(1);
  CHECK(innocent.Synchronize(1) == 0);
}

TEST_CASE("Invalid flags are refused with a message") {
  for (const std::vector<std::string>& flags :
       std::vector<std::vector<std::string>>{{"--policy", "nonsense"},
                                             {"--backend", "soft", "--soft-cc", "nine"},
                                             {"--backend", "quantum"}}) {
    TestDirectory directory;
    std::vector<std::string> command = {getenv("DETSHARED"), "--socket", directory.path + "/d.sock",
                                        "--backend", "soft"};
    if (flags[0] == "--backend") command.resize(3);
    command.insert(command.end(), flags.begin(), flags.end());
    std::vector<char*> argv;
    for (std::string& argument : command) argv.push_back(argument.data());
    argv.push_back(nullptr);
    const pid_t pid = fork();
    if (pid == 0) {
      const int null = open("/dev/null", O_WRONLY);
      dup2(null, STDERR_FILENO);
      dup2(null, STDOUT_FILENO);
      execv(argv[0], argv.data());
      _exit(0);
    }
    int status = 0;
    CHECK(Eventually([&] { return waitpid(pid, &status, WNOHANG) == pid; }));
    CHECK(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) != 0);
  }
}

}  // namespace
}  // namespace detshare
