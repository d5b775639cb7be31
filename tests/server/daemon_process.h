// The daemon as its own process, with a software GPU.
#pragma once

#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <catch2/catch.hpp>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "tests/server/daemon_fixture.h"

namespace detshare {

// A kernel named `fault`.
inline constexpr char kFaultPtx[] = R"(
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
  // The socket lies in the directory `in`, which the daemon makes; "": in `directory`.
  explicit DaemonProcess(std::vector<std::string> more, const std::string& in = "")
      : runtime(!in.empty() ? in : directory.path) {
    const AddressWindows windows = TestWindows();
    command = {getenv("DETSHARED"),
               "--socket",
               socket(),
               "--socket-mode",
               "666",
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
    // Other users can reach the socket, and engines that run as other users their files.
    chmod(directory.path.c_str(), 0755);
    Start();
  }
  ~DaemonProcess() { Kill(); }

  // Starts the daemon once more, after it has ended.
  void Start() {
    Spawn();
    AwaitSocket();
  }
  // The two parts of Start().
  void Spawn() {
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
  }
  // A process that the last daemon had just spawned may hold that daemon's socket until its exec.
  // So it counts which process listens.
  void AwaitSocket() {
    REQUIRE(Eventually([&] {
      const int fd = ConnectTo(socket());
      if (fd < 0) return false;
      ucred listener{};
      socklen_t bytes = sizeof(listener);
      getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &listener, &bytes);
      close(fd);
      return listener.pid == pid;
    }));
  }
  void Kill() {
    if (pid > 0) {
      kill(pid, SIGKILL);
      waitpid(pid, nullptr, 0);
    }
    pid = -1;
  }
  std::string socket() const { return runtime + "/d.sock"; }
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
  const std::string runtime;  // the directory of the socket and of the sessions' files
  std::vector<std::string> command;
  pid_t pid = -1;
};

}  // namespace detshare
