// A daemon with several engines, and programs of several users.
#pragma once

#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "tests/server/daemon_process.h"
#include "tests/server/grpc_stubs.h"

namespace detshare {

inline constexpr uid_t kSomebody = 54321, kSomebodyElse = 54322;

struct SupervisedDaemon : DaemonProcess {
  explicit SupervisedDaemon(std::vector<std::string> more = {}, std::string isolation = "user",
                            const std::string& in = "")
      : DaemonProcess(
            [&] {
              more.insert(more.end(), {"--isolation", isolation});
              return more;
            }(),
            in) {}
  ~SupervisedDaemon() {
    Kill();
    // Engines would go on for a while.
    for (const pid_t engine : ListedEngines()) kill(engine, SIGKILL);
  }

  // The supervisor's list of its engines, for the next supervisor.
  std::string ListFile() const { return runtime + "/engines/.list"; }
  std::vector<pid_t> ListedEngines() const {
    std::vector<pid_t> engines;
    std::ifstream file(ListFile());
    std::string word;
    while (file >> word) {
      pid_t engine = 0;
      if (word == "pid:" && file >> engine) engines.push_back(engine);
    }
    return engines;
  }
  std::string DirectoryOf(const std::string& group) const { return runtime + "/engines/" + group; }
};

// A program of another user. The thread takes that user's identity while it connects. The calling
// process belongs to root.
inline std::unique_ptr<TestClient> As(uid_t user, const DaemonProcess& daemon) {
  REQUIRE(syscall(SYS_setresuid, -1, user, -1) == 0);
  const int reachable = ConnectTo(daemon.socket());
  auto client = reachable >= 0 ? std::make_unique<TestClient>(daemon.socket()) : nullptr;
  REQUIRE(syscall(SYS_setresuid, -1, 0, -1) == 0);
  REQUIRE(client != nullptr);
  close(reachable);
  return client;
}

// A program that asks to be the tenant.
inline std::unique_ptr<TestClient> Program(const DaemonProcess& daemon, const std::string& tenant) {
  auto client = std::make_unique<TestClient>(daemon.socket());
  client->tenant = tenant;
  return client;
}

// Stops all threads of a process of the same user, and waits until they have stopped.
inline void Freeze(pid_t process) {
  kill(process, SIGSTOP);
  REQUIRE(Eventually([&] {
    const std::string tasks = "/proc/" + std::to_string(process) + "/task";
    for (const auto& task : std::filesystem::directory_iterator(tasks)) {
      std::ifstream file(task.path() / "stat");
      std::string text;
      std::getline(file, text);
      // The state follows the name, which is in parentheses.
      if (text.find(") T", text.rfind(')')) == std::string::npos) return false;
    }
    return true;
  }));
}

inline bool IsRoot() {
  if (geteuid() == 0) return true;
  WARN("only root can be several users: not tested");
  return false;
}

inline proto::Status StatusOf(TestClient& client) {
  grpc::ClientContext context;
  proto::Status status;
  REQUIRE(AdminOf(client)->GetStatus(&context, {}, &status).ok());
  return status;
}

// The engine that serves the program.
inline pid_t EngineOf(TestClient& program) { return StatusOf(program).pid(); }

// Whether a process of the same user has not ended.
inline bool Runs(pid_t process) {
  return std::filesystem::exists("/proc/" + std::to_string(process) + "/fdinfo/0");
}

}  // namespace detshare
