// The daemon as a process: its signals, its files, and how it begins anew when a device is lost.
#include <signal.h>
#include <sys/wait.h>

#include <catch2/catch.hpp>
#include <fstream>
#include <sstream>

#include "coroutine_runtime/status_cuda.h"
#include "tests/server/daemon_fixture.h"

namespace detshare {
namespace {

constexpr char kFaultPtx[] = R"(
.version 7.0
.target sm_70
.address_size 64
.visible .entry fault()
{
  .reg .b64 %rd<2>;
  .reg .b32 %r<2>;
  mov.u64 %rd1, 64;
  mov.u32 %r1, 1;
  st.global.u32 [%rd1], %r1;
  ret;
}
)";

class DaemonProcess {
 public:
  explicit DaemonProcess(std::vector<std::string> more) {
    const AddressWindows windows = TestWindows();
    std::vector<std::string> command = {getenv("DETSHARED"),
                                        "--socket",
                                        socket(),
                                        "--backend",
                                        "soft",
                                        "--soft-memory",
                                        "256MB",
                                        "--soft-threads",
                                        "1",
                                        "--device-window-base",
                                        std::to_string(windows.device_base),
                                        "--device-window-bytes",
                                        std::to_string(windows.device_bytes),
                                        "--pinned-window-base",
                                        std::to_string(windows.pinned_base),
                                        "--pinned-window-bytes",
                                        std::to_string(windows.pinned_bytes)};
    command.insert(command.end(), more.begin(), more.end());
    std::vector<char*> argv;
    for (std::string& argument : command) argv.push_back(argument.data());
    argv.push_back(nullptr);
    const std::string log = directory.path + "/log";
    pid = fork();
    if (pid == 0) {
      const int fd = open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
      dup2(fd, STDERR_FILENO);
      execv(argv[0], argv.data());
      _exit(127);
    }
    REQUIRE(Eventually([&] {
      const int fd = ConnectTo(socket());
      if (fd >= 0) close(fd);
      return fd >= 0;
    }));
  }
  ~DaemonProcess() {
    if (pid > 0) {
      kill(pid, SIGKILL);
      waitpid(pid, nullptr, 0);
    }
  }
  std::string socket() const { return directory.path + "/d.sock"; }
  std::string Log() const {
    std::ifstream file(directory.path + "/log");
    std::stringstream text;
    text << file.rdbuf();
    return text.str();
  }
  int Wait() {
    int status = 0;
    const bool ended = Eventually([&] { return waitpid(pid, &status, WNOHANG) == pid; });
    if (ended) pid = -1;
    return ended ? status : -1;
  }

  TestDirectory directory;
  pid_t pid = -1;
};

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
    "A lost device ends all sessions with its error, and the daemon serves again in the same "
    "process") {
  DaemonProcess process({"--soft-lose-device-on-fault"});
  TestClient guilty(process.socket()), innocent(process.socket());
  guilty.request.set_tenant("guilty");
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
  CHECK_THAT(process.Log(), Catch::Contains("CUDA error 700"));
  kill(process.pid, SIGTERM);
  const int status = process.Wait();
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
}

TEST_CASE("A fault on a device that can bear it ends one session's work only") {
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

TEST_CASE("Flags that make no sense are refused with a message") {
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
