#include "tools/detsharectl/daemon.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstring>
#include <memory>

#include "proto/admin.grpc.pb.h"
#include "proto/warning.h"
#include "tests/server/test_windows.h"

namespace detshare::ctl {
namespace {

const grpc::Status kNoReply(grpc::StatusCode::UNAVAILABLE, "failed to connect to all addresses");

// A socket at which a process may listen that never replies.
struct Silent {
  explicit Silent(bool listens) {
    chmod(directory.path.c_str(), 0755);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path.c_str(), path.size());
    REQUIRE(bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0);
    if (listens) REQUIRE(listen(fd, 4) == 0);
  }
  ~Silent() { close(fd); }

  TestDirectory directory;
  const std::string path = directory.path + "/d.sock";
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
};

TEST_CASE("A user learns whether no daemon is there, or one that hangs") {
  const Failure none = FailureOf(kNoReply, "/no/such/socket");
  CHECK(none.exit_code == kExitNoDaemon);
  CHECK(none.text == "no detshared replies at /no/such/socket");
  CHECK_THAT(none.hint, Catch::Contains("systemctl start detshared"));
  const Silent dead(false), hangs(true);
  CHECK(FailureOf(kNoReply, dead.path).text == "no detshared replies at " + dead.path);
  const Failure silent = FailureOf({grpc::StatusCode::DEADLINE_EXCEEDED, "Deadline"}, hangs.path);
  CHECK(silent.exit_code == kExitNoDaemon);
  CHECK_THAT(silent.text, Catch::Contains("accepts connections but does not reply"));
  CHECK_THAT(silent.hint, Catch::Contains("journalctl"));
}

TEST_CASE("A user who may not connect learns who may") {
  if (geteuid() != 0) {
    WARN("only root can be another user: not tested");
    return;
  }
  const Silent daemon(true);
  chmod(daemon.path.c_str(), 0600);
  REQUIRE(syscall(SYS_setresgid, -1, 54321, -1) == 0);
  REQUIRE(syscall(SYS_setresuid, -1, 54321, -1) == 0);
  const Failure refused = FailureOf(kNoReply, daemon.path);
  REQUIRE(syscall(SYS_setresuid, -1, 0, -1) == 0);
  REQUIRE(syscall(SYS_setresgid, -1, 0, -1) == 0);
  CHECK(refused.exit_code == kExitRefused);
  CHECK(refused.text == "you have no permission to connect to " + daemon.path + "; root may");
}

TEST_CASE("A socket that serves no operators is named, and every refusal has a reason") {
  const Failure endpoint = FailureOf({grpc::StatusCode::UNIMPLEMENTED, ""}, "/run/x.sock");
  CHECK(endpoint.exit_code == kExitRefused);
  CHECK_THAT(endpoint.text, Catch::StartsWith("/run/x.sock serves no operators"));
  CHECK(FailureOf({grpc::StatusCode::NOT_FOUND, "there is no session 7"}, "/s").text ==
        "detshared refused: there is no session 7");
  CHECK(FailureOf({grpc::StatusCode::INTERNAL, ""}, "/s").text ==
        "detshared refused: gRPC error 13");
}

// Has a warning about each change of the policy.
struct Warner final : proto::Admin::Service {
  grpc::Status SetPolicy(grpc::ServerContext* context, const proto::PolicySetting*,
                         proto::PolicySetting*) override {
    context->AddTrailingMetadata(kWarningMetadata, "an engine does not reply");
    return grpc::Status::OK;
  }
  grpc::Status GetPolicies(grpc::ServerContext*, const proto::GetPoliciesRequest*,
                           proto::Policies*) override {
    return grpc::Status::OK;
  }
};

TEST_CASE("A call that succeeds may have a warning of the daemon") {
  TestDirectory directory;
  const std::string socket = directory.path + "/d.sock";
  Warner service;
  grpc::ServerBuilder builder;
  builder.AddListeningPort("unix:" + socket, grpc::InsecureServerCredentials());
  builder.RegisterService(&service);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  REQUIRE(server != nullptr);
  const auto admin = AdminAt(socket);
  grpc::ClientContext set, ask;
  proto::PolicySetting in_force;
  proto::Policies policies;
  REQUIRE(admin->SetPolicy(&set, {}, &in_force).ok());
  CHECK(WarningOf(set) == "an engine does not reply");
  REQUIRE(admin->GetPolicies(&ask, {}, &policies).ok());
  CHECK(WarningOf(ask).empty());
}

}  // namespace
}  // namespace detshare::ctl
