// Tenant endpoints of a supervisor: the endpoint's tenant decides the engine.
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "coroutine_runtime/status_cuda.h"
#include "proto/owner.h"
#include "server/access/peer_table.h"
#include "tests/server/endpoint_operator.h"
#include "tests/server/grpc_stubs.h"
#include "tests/server/supervised_daemon.h"

namespace detshare {
namespace {

namespace fs = std::filesystem;

std::string SocketOf(const DaemonProcess& daemon, const std::string& endpoint) {
  return daemon.directory.path + "/endpoints/" + endpoint + "/detshared.sock";
}

TEST_CASE("Under every isolation a program behind an endpoint is the endpoint's tenant") {
  for (const std::string isolation : {"user", "tenant", "group"}) {
    CAPTURE(isolation);
    SupervisedDaemon daemon({}, isolation);
    Operator me(daemon.socket());
    proto::TenantSetting tenant;
    tenant.set_name("chat");
    tenant.set_memory(1 << 20);
    REQUIRE(me.Open("box", {}, tenant).ok());
    CHECK(me.directory == "endpoints/box");
    TestClient program(SocketOf(daemon, "box"));
    REQUIRE(program.Open());
    CHECK(program.directory ==
          daemon.directory.path + "/endpoints/box/sessions/" + std::to_string(program.session()));
    CHECK(fs::exists(program.directory + "/session"));
    CHECK(program.Allocate(2 << 20) == 0);
    // On an overloaded machine the engine may reply too late for one status.
    proto::Status status;
    REQUIRE(Eventually([&] {
      status = me.Status();
      return status.sessions_size() == 1;
    }));
    REQUIRE(status.engines_size() == 1);
    CHECK(status.engines(0).group() == "chat");
    CHECK(status.sessions(0).tenant() == "chat");
    // The client's word does not count, and it is no operator.
    TestClient liar(SocketOf(daemon, "box"));
    liar.tenant = "train";
    CHECK_FALSE(liar.Open());
    CHECK(liar.status().error_code() == grpc::StatusCode::PERMISSION_DENIED);
    for (const bool before : {false, true}) {
      TestClient curious(SocketOf(daemon, "box"));
      if (before) curious.ClientChannel();
      grpc::ClientContext context;
      proto::Status all;
      CHECK(AdminOf(curious)->GetStatus(&context, {}, &all).error_code() ==
            grpc::StatusCode::UNIMPLEMENTED);
    }
  }
}

TEST_CASE("A closed endpoint ends its own sessions, wherever they are, and no others") {
  SupervisedDaemon daemon({}, "tenant");
  Operator me(daemon.socket());
  proto::TenantSetting tenant;
  tenant.set_name("chat");
  REQUIRE(me.Open("a", {}, tenant).ok());
  REQUIRE(me.Open("b", {}, tenant).ok());
  TestClient a(SocketOf(daemon, "a")), b(SocketOf(daemon, "b")), c(daemon.socket());
  c.tenant = "chat";
  REQUIRE(a.Open());
  REQUIRE(b.Open());
  REQUIRE(c.Open());
  CHECK(me.Status().engines_size() == 1);
  REQUIRE(me.Close("a").ok());
  const auto ended = a.AwaitEnd();
  REQUIRE(ended.has_value());
  CHECK(ended->result() == kCudaErrorSystemNotReady);
  CHECK(ended->reason() == "the endpoint was closed");
  CHECK_FALSE(fs::exists(daemon.directory.path + "/endpoints/a"));
  for (TestClient* const stays : {&b, &c}) {
    stays->CreateStream(1);
    CHECK(stays->Synchronize(1) == 0);
  }
  CHECK(me.List().endpoints_size() == 1);
  // The name leads to a new endpoint.
  REQUIRE(me.Open("a", {}, tenant).ok());
  TestClient next(SocketOf(daemon, "a"));
  CHECK(next.Open());
}

TEST_CASE(
    "The supervisor knows what was used behind an endpoint, also after the engine has ended") {
  SupervisedDaemon daemon({}, "tenant");
  Operator me(daemon.socket());
  proto::TenantSetting tenant;
  tenant.set_name("chat");
  REQUIRE(me.Open("box", {}, tenant).ok());
  const auto uses = [&](uint64_t bytes) {
    TestClient program(SocketOf(daemon, "box"));
    return program.Open() && program.Allocate(bytes) != 0;
  };
  REQUIRE(uses(8 << 20));
  REQUIRE(Eventually([&] { return me.Status().sessions_size() == 0; }));
  const proto::Status status = me.Status();
  REQUIRE(status.engines_size() == 1);
  kill(status.engines(0).pid(), SIGKILL);
  REQUIRE(Eventually([&] { return me.Status().engines_size() == 0; }));
  REQUIRE(Eventually([&] { return uses(4 << 20); }));
  REQUIRE(Eventually([&] { return me.Status().sessions_size() == 0; }));
  // The supervisor admits this one after it has read what the engine said of the ones before.
  REQUIRE(uses(4 << 20));
  REQUIRE(me.Close("box").ok());
  CHECK(me.use.sessions() >= 2);
  CHECK(me.use.peak_memory() == 8 << 20);
}

TEST_CASE("Settings of endpoints reach the engines before their programs, and outlive a reload") {
  TestDirectory configuration;
  const std::string file = configuration.path + "/detshare.toml";
  std::ofstream(file) << "[policy]\nname = \"fair\"\n";
  chmod(file.c_str(), 0600);
  SupervisedDaemon daemon({"--config", file}, "tenant");
  Operator me(daemon.socket());
  proto::TenantSetting tenant;
  tenant.set_name("chat");
  REQUIRE(me.Open("free", {}, tenant).ok());
  TestClient first(SocketOf(daemon, "free"));
  REQUIRE(first.Open());
  CHECK(first.Allocate(2 << 20) != 0);
  tenant.set_memory(3 << 20);
  REQUIRE(me.Open("small", {}, tenant).ok());
  TestClient second(SocketOf(daemon, "small"));
  REQUIRE(second.Open());
  CHECK(second.Allocate(2 << 20) == 0);
  std::ofstream(file) << "[policy]\nname = \"temporal\"\n";
  grpc::ClientContext context;
  proto::Reloaded reloaded;
  REQUIRE(AdminOf(me.client)->Reload(&context, {}, &reloaded).ok());
  REQUIRE(reloaded.changed_size() == 1);
  CHECK(reloaded.changed(0) == "[policy]: fair -> temporal");
  CHECK(me.Status().policy() == "temporal");
  TestClient third(SocketOf(daemon, "small"));
  REQUIRE(third.Open());
  CHECK(third.Allocate(2 << 20) == 0);
  // Without the limit's endpoint there is no limit for later sessions.
  REQUIRE(me.Close("small").ok());
  TestClient fourth(SocketOf(daemon, "free"));
  REQUIRE(fourth.Open());
  CHECK(fourth.Allocate(2 << 20) != 0);
}

TEST_CASE("Limits of sessions that operators set hold instead of the configuration's") {
  TestDirectory configuration;
  const std::string file = configuration.path + "/detshare.toml";
  std::ofstream(file) << "[tenant_defaults]\nsessions = 1\n"
                         "[[tenant]]\nname = \"train\"\nsessions = 1\n";
  chmod(file.c_str(), 0600);
  SupervisedDaemon daemon({"--config", file}, "tenant");
  Operator me(daemon.socket());
  const auto set = [&](const std::string& name, uint64_t sessions) {
    grpc::ClientContext context;
    proto::TenantSetting tenant, in_force;
    tenant.set_name(name);
    tenant.set_sessions(sessions);
    return AdminOf(me.client)->SetTenant(&context, tenant, &in_force).ok();
  };
  std::vector<std::unique_ptr<TestClient>> programs;  // that have a session
  const auto opens = [&](std::unique_ptr<TestClient> program) {
    const bool opened = program->Open();
    if (!opened) CHECK(program->status().error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED);
    if (opened) programs.push_back(std::move(program));
    return opened;
  };
  CHECK(opens(Program(daemon, "train")));
  CHECK_FALSE(opens(Program(daemon, "train")));
  REQUIRE(set("train", 2));
  CHECK(opens(Program(daemon, "train")));
  CHECK_FALSE(opens(Program(daemon, "train")));
  REQUIRE(set("train", 3));
  {
    grpc::ClientContext context;
    proto::UnsetTenantRequest request;
    proto::Tenants left;
    request.set_name("train");
    REQUIRE(AdminOf(me.client)->UnsetTenant(&context, request, &left).ok());
  }
  CHECK_FALSE(opens(Program(daemon, "train")));
  // A tenant without a section has the default limit, which can be removed.
  CHECK(opens(Program(daemon, "dora")));
  CHECK_FALSE(opens(Program(daemon, "dora")));
  REQUIRE(set("dora", 0));
  CHECK(opens(Program(daemon, "dora")));
  CHECK(opens(Program(daemon, "dora")));
  // An endpoint's limit ends with the endpoint.
  proto::TenantSetting tenant;
  tenant.set_name("chat");
  tenant.set_sessions(2);
  REQUIRE(me.Open("box", {}, tenant).ok());
  const auto behind = [&] { return std::make_unique<TestClient>(SocketOf(daemon, "box")); };
  CHECK(opens(behind()));
  CHECK(opens(behind()));
  CHECK_FALSE(opens(behind()));
  REQUIRE(me.Close("box").ok());
  REQUIRE(Eventually([&] {
    const proto::Status status = me.Status();
    return std::none_of(status.sessions().begin(), status.sessions().end(),
                        [](const auto& session) { return session.tenant() == "chat"; });
  }));
  CHECK(Eventually([&] { return opens(Program(daemon, "chat")); }));
  CHECK_FALSE(opens(Program(daemon, "chat")));
}

TEST_CASE("An endpoint whose limits engines would not get is not opened") {
  SupervisedDaemon daemon({}, "tenant");
  Operator me(daemon.socket());
  proto::TenantSetting tenant, in_force;
  tenant.set_name("chat");
  tenant.set_memory(1 << 20);
  // As on a full file system.
  const std::string in_the_way = daemon.directory.path + "/settings.new";
  REQUIRE(fs::create_directory(in_the_way));
  const grpc::Status refused = me.Open("box", {}, tenant);
  CHECK(refused.error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED);
  CHECK_THAT(refused.error_message(), Catch::Contains("cannot write"));
  CHECK(me.List().endpoints_size() == 0);
  CHECK_FALSE(fs::exists(daemon.directory.path + "/endpoints/box"));
  {
    grpc::ClientContext context;
    CHECK(AdminOf(me.client)->SetTenant(&context, tenant, &in_force).error_code() ==
          grpc::StatusCode::RESOURCE_EXHAUSTED);
  }
  fs::remove(in_the_way);
  REQUIRE(me.Open("box", {}, tenant).ok());
  TestClient program(SocketOf(daemon, "box"));
  REQUIRE(program.Open());
  CHECK(program.Allocate(2 << 20) == 0);
  // An open endpoint keeps the limit that it has.
  REQUIRE(fs::create_directory(in_the_way));
  proto::TenantEndpoint more;
  more.set_name("box");
  more.mutable_tenant()->set_memory(8 << 20);
  CHECK(me.Change(more).error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED);
  CHECK(program.Allocate(2 << 20) == 0);
  fs::remove(in_the_way);
  REQUIRE(me.Change(more).ok());
  CHECK(Eventually([&] { return program.Allocate(2 << 20) != 0; }));
}

TEST_CASE("An endpoint shows its devices, and an engine refuses a device that it does not have") {
  SupervisedDaemon daemon({"--soft-devices", "2"}, "tenant");
  Operator me(daemon.socket());
  REQUIRE(me.Open("second", {"1"}).ok());
  TestClient program(SocketOf(daemon, "second"));
  REQUIRE(program.Open());
  CHECK(program.grant.devices_size() == 1);
  REQUIRE(me.Open("none", {"7"}).ok());
  TestClient lost(SocketOf(daemon, "none"));
  CHECK_FALSE(lost.Open());
  CHECK(lost.status().error_code() == grpc::StatusCode::INVALID_ARGUMENT);
  CHECK(me.Open("bad", {std::string(1000, 'x')}).error_code() ==
        grpc::StatusCode::INVALID_ARGUMENT);
  CHECK(me.Open("many", std::vector<std::string>(65, "0")).error_code() ==
        grpc::StatusCode::INVALID_ARGUMENT);
}

TEST_CASE("Endpoints outlive the supervisor, and an engine that is killed ends none") {
  TestDirectory runtime;
  chmod(runtime.path.c_str(), 0755);
  const std::string socket = runtime.path + "/endpoints/box/detshared.sock";
  {
    SupervisedDaemon daemon({}, "tenant", runtime.path);
    Operator me(daemon.socket());
    REQUIRE(me.Open("box").ok());
    REQUIRE(me.SetOwner("box", *OwnerOfPod("default/web-0/server")).ok());
    TestClient first(socket);
    REQUIRE(first.Open());
    const std::string left = first.directory;
    CHECK(fs::exists(left));
    kill(me.Status().engines(0).pid(), SIGKILL);
    first.AwaitEnd();
    CHECK(Eventually([&] { return !fs::exists(left); }));
    CHECK(Eventually([&] { return TestClient(socket).Open(); }));
  }
  SupervisedDaemon successor({}, "tenant", runtime.path);
  Operator me(successor.socket());
  REQUIRE(me.List().endpoints_size() == 1);
  CHECK(OwnerText(me.List().endpoints(0).owner()) == "default/web-0/server");
  TestClient program(socket);
  CHECK(program.Open());
}

TEST_CASE("Many users of one container take few of the supervisor's connections") {
  if (!IsRoot()) return;
  SupervisedDaemon daemon({}, "tenant");
  Operator me(daemon.socket());
  REQUIRE(me.Open("box").ok());
  REQUIRE(me.Open("other").ok());
  // A container reaches its endpoint by a mount.
  REQUIRE(chmod((daemon.directory.path + "/endpoints").c_str(), 0711) == 0);
  const std::string preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
  std::vector<pollfd> inside;
  for (uid_t user = kSomebody; user < kSomebody + 4; ++user) {
    REQUIRE(syscall(SYS_setresuid, -1, user, -1) == 0);
    for (int i = 0; i < 60; ++i) {
      const int fd = ConnectTo(SocketOf(daemon, "box"));
      if (fd < 0) continue;
      send(fd, preface.data(), preface.size(), MSG_NOSIGNAL);
      inside.push_back({fd, POLLRDHUP, 0});
    }
    REQUIRE(syscall(SYS_setresuid, -1, 0, -1) == 0);
  }
  CHECK(inside.size() == 240);
  CHECK(Eventually([&] {
    poll(inside.data(), inside.size(), 0);
    return std::count_if(inside.begin(), inside.end(), [](const pollfd& one) {
             return one.revents == 0;
           }) <= static_cast<ptrdiff_t>(PeerTable::Limits().without_session);
  }));
  TestClient program(SocketOf(daemon, "other"));
  CHECK(program.Open());
  for (const pollfd& one : inside) close(one.fd);
}

TEST_CASE("Refused programs learn why, and do not bury what else has happened") {
  SupervisedDaemon daemon({}, "tenant");
  Operator me(daemon.socket());
  REQUIRE(me.Open("box").ok());
  constexpr int kMany = 60;
  for (int i = 0; i < kMany; ++i) {
    // The supervisor refuses the first, and an engine the second.
    TestClient liar(SocketOf(daemon, "box")), odd(SocketOf(daemon, "box"));
    liar.tenant = "train";
    CHECK_FALSE(liar.Open());
    CHECK(liar.status().error_code() == grpc::StatusCode::PERMISSION_DENIED);
    odd.request.set_run("no name!");
    CHECK_FALSE(odd.Open());
    CHECK(odd.status().error_code() == grpc::StatusCode::INVALID_ARGUMENT);
  }
  const auto events = [&] {
    grpc::ClientContext context;
    proto::Events all;
    REQUIRE(AdminOf(me.client)->GetEvents(&context, {}, &all).ok());
    return all;
  };
  const auto refused = [&](const std::string& why) {
    const proto::Events all = events();
    return std::count_if(all.events().begin(), all.events().end(), [&](const auto& event) {
      return event.kind() == "refused" && event.text().find(why) != std::string::npos;
    });
  };
  CHECK(Eventually([&] { return refused("the name of a run") > 0; }));
  // More than one on a slow machine.
  CHECK(refused("the name of a run") < kMany / 3);
  CHECK(refused("this container is tenant box") > 0);
  CHECK(refused("this container is tenant box") < kMany / 3);
}

TEST_CASE("The supervisor tells whose the sessions of its engines are") {
  SupervisedDaemon daemon({}, "tenant");
  Operator me(daemon.socket());
  REQUIRE(me.Open("box", {}, {}, *OwnerOfPod("default/web-0/server")).ok());
  TestClient program(SocketOf(daemon, "box")), other(daemon.socket());
  REQUIRE(program.Open());
  CHECK(Eventually([&] { return OwnerText(me.OwnerInEvent("opened")) == "default/web-0/server"; }));
  REQUIRE(other.Open());
  proto::Owner job;
  job.set_user("alice");
  job.set_job("17");
  REQUIRE(me.SetOwner("box", job).ok());
  const proto::Status status = me.Status();
  REQUIRE(status.sessions_size() == 2);
  CHECK(status.sessions(0).endpoint() == "box");
  CHECK(OwnerText(status.sessions(0).owner()) == "alice, job 17");
  CHECK(IsEmpty(status.sessions(1).owner()));
  for (const proto::TenantUse& tenant : status.tenants())
    CHECK(OwnerText(tenant.owner()) == (tenant.name() == "box" ? "alice, job 17" : ""));
}

}  // namespace
}  // namespace detshare
