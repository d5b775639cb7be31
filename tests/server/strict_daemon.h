// A daemon with strict isolation, and programs of several users.
#pragma once

#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <memory>
#include <string>
#include <vector>

#include "tests/server/daemon_process.h"
#include "tests/server/grpc_stubs.h"

namespace detshare {

inline constexpr uid_t kSomebody = 54321, kSomebodyElse = 54322;

struct StrictDaemon : DaemonProcess {
  explicit StrictDaemon(std::vector<std::string> more = {})
      : DaemonProcess([&] {
          more.insert(more.end(), {"--isolation", "strict"});
          return more;
        }()) {
    // Other users can reach the socket.
    chmod(directory.path.c_str(), 0755);
  }
  std::string DomainOf(uid_t user) const {
    return directory.path + "/domains/" + std::to_string(user);
  }
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

}  // namespace detshare
