// Tenant endpoints: which calls they allow, and what a container may do to its endpoint's
// directory.
#include "server/services/tenant_endpoints.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <set>

#include "coroutine_runtime/status_cuda.h"
#include "proto/admin.pb.h"
#include "proto/owner.h"
#include "proto/telemetry.grpc.pb.h"
#include "proto/tenant_endpoint.grpc.pb.h"
#include "server/services/settings_store.h"
#include "tests/server/daemon_fixture.h"
#include "tests/server/deep_tree.h"
#include "tests/server/endpoint_operator.h"
#include "tests/server/grpc_stubs.h"
#include "tests/server/instant_device.h"

namespace detshare {
namespace {

namespace fs = std::filesystem;

ino_t InodeOf(const std::string& path) {
  struct stat status {};
  lstat(path.c_str(), &status);
  return status.st_ino;
}

struct TenantEndpointsFixture {
  explicit TenantEndpointsFixture(int devices = 1) : daemon({}, devices), me(daemon.socket()) {}
  std::string Path(const std::string& endpoint) const {
    return daemon.directory.path + "/endpoints/" + endpoint;
  }
  std::string Socket(const std::string& endpoint) const {
    return Path(endpoint) + "/detshared.sock";
  }

  TestDaemon daemon;
  Operator me;
};

TEST_CASE("A client of an endpoint is its tenant, and sees its devices only") {
  TenantEndpointsFixture f(2);
  REQUIRE(f.me.Open("a-endpoint", {"1"}).ok());
  CHECK(f.me.directory == "endpoints/a-endpoint");
  const std::string uuid = f.me.List().endpoints(0).device_ids(0);
  CHECK(uuid == "GPU-ab000000-0000-0000-0000-000000000001");

  TestClient client(f.Socket("a-endpoint"));
  REQUIRE(client.Open());
  REQUIRE(client.grant.devices_size() == 1);
  CHECK(static_cast<uint8_t>(client.grant.devices(0).uuid()[15]) == 1);
  CHECK(client.Allocate(4096) != 0);
  // Its files are in the endpoint's directory and nowhere else.
  CHECK(fs::exists(f.Path("a-endpoint") + "/" + client.grant.directory() + "/session"));
  CHECK(f.daemon.session_directories() == 0);
  const proto::Status status = f.me.Status();
  REQUIRE(status.sessions_size() == 1);
  CHECK(status.sessions(0).tenant() == "a-endpoint");

  const auto opens = [&](const std::string& tenant, const std::string& device) {
    TestClient other(f.Socket("a-endpoint"));
    other.tenant = tenant;
    if (!device.empty()) other.request.add_device_ids(device);
    other.Open();
    return other.status().error_code();
  };
  CHECK(opens("a-endpoint", "0") == grpc::StatusCode::OK);
  CHECK(opens("", uuid) == grpc::StatusCode::OK);
  CHECK(opens("root", "") == grpc::StatusCode::PERMISSION_DENIED);
  CHECK(opens("", "1") == grpc::StatusCode::INVALID_ARGUMENT);
  CHECK(opens("", "-1") == grpc::StatusCode::INVALID_ARGUMENT);
  CHECK(opens("", "GPU-ab000000-0000-0000-0000-000000000000") ==
        grpc::StatusCode::INVALID_ARGUMENT);

  // The same for calls of NVML.
  auto telemetry = proto::Telemetry::NewStub(client.channel());
  grpc::ClientContext context;
  proto::TelemetryReply reply;
  REQUIRE(telemetry->Read(&context, {}, &reply).ok());
  REQUIRE(reply.devices_size() == 1);
  CHECK(static_cast<uint8_t>(reply.devices(0).uuid()[15]) == 1);
}

TEST_CASE("A closed endpoint tells what its sessions have used, open ones included") {
  TenantEndpointsFixture f;
  REQUIRE(f.me.Open("d").ok());
  std::optional<TestClient> first(std::in_place, f.Socket("d"));
  TestClient second(f.Socket("d"));
  REQUIRE(first->Open());
  REQUIRE(second.Open());
  const uint64_t address = first->Allocate(8 << 20);
  REQUIRE(address != 0);
  REQUIRE(second.Allocate(4 << 20) != 0);
  first.reset();
  REQUIRE(Eventually([&] { return f.me.Status().sessions_size() == 1; }));
  REQUIRE(f.me.Close("d").ok());
  CHECK(f.me.use.sessions() == 2);
  CHECK(f.me.use.peak_memory() == 12 << 20);
  CHECK(f.me.use.gpu_time_ns() == 0);  // they had no work
  // The next endpoint of the name begins anew.
  REQUIRE(f.me.Open("d").ok());
  REQUIRE(f.me.Close("d").ok());
  CHECK(f.me.use.sessions() == 0);
  CHECK(f.me.use.peak_memory() == 0);
}

TEST_CASE("Time with work on a device counts for the endpoint of the session") {
  TenantEndpointsFixture f;
  f.daemon.devices[0]->busy = true;
  // Samples are taken ten times a second, so a session of some length is seen by one.
  auto length = std::chrono::milliseconds(100);
  REQUIRE(Eventually([&] {
    REQUIRE(f.me.Open("d").ok());
    TestClient client(f.Socket("d"));
    REQUIRE(client.Open());
    std::this_thread::sleep_for(length);
    length *= 2;
    REQUIRE(f.me.Close("d").ok());
    return f.me.use.gpu_time_ns() > 0;
  }));
}

TEST_CASE("An endpoint offers none of the operators' services") {
  TenantEndpointsFixture f;
  REQUIRE(f.me.Open("d").ok());
  Operator inside(f.Socket("d"));
  CHECK(inside.Open("e").error_code() == grpc::StatusCode::UNIMPLEMENTED);
  CHECK(inside.Close("d").error_code() == grpc::StatusCode::UNIMPLEMENTED);
  {
    grpc::ClientContext context;
    proto::Status status;
    CHECK(AdminOf(inside.client)->GetStatus(&context, {}, &status).error_code() ==
          grpc::StatusCode::UNIMPLEMENTED);
  }
  Peer peer;
  peer.endpoint = std::make_shared<TenantEndpoint>();
  CHECK(Identity().MayAdminister(peer).code() == absl::StatusCode::kPermissionDenied);
  peer.endpoint = nullptr;
  CHECK(Identity().MayAdminister(peer).ok());
}

TEST_CASE("A session belongs to the connection that opened it, also across endpoints") {
  TenantEndpointsFixture f;
  REQUIRE(f.me.Open("one").ok());
  REQUIRE(f.me.Open("two").ok());
  // The first connection of each endpoint.
  TestClient one(f.Socket("one")), two(f.Socket("two"));
  REQUIRE(one.Open());
  REQUIRE(two.Open());
  wire::cuLibraryLoadData load{};
  load.context = 1;
  load.image_bytes = 4;
  CHECK(two.Call(Op::cuLibraryLoadData, load, "code", one.grant.session()).first.code() ==
        absl::StatusCode::kNotFound);
  CHECK(one.Call(Op::cuLibraryLoadData, load, "code").first.ok());
}

TEST_CASE("A closed endpoint ends its own sessions only, also those of earlier connections") {
  TenantEndpointsFixture f;
  REQUIRE(f.me.Open("d").ok());
  REQUIRE(f.me.Open("stays").ok());
  TestClient client(f.Socket("d")), idle(f.Socket("d")), other(f.Socket("stays"));
  REQUIRE(client.Open());
  REQUIRE(other.Open());
  // The daemon accepts the connection before the endpoint is closed.
  grpc::ClientContext context;
  proto::TelemetryReply reply;
  REQUIRE(proto::Telemetry::NewStub(idle.ClientChannel())->Read(&context, {}, &reply).ok());

  REQUIRE(f.me.Close("d").ok());
  const std::optional<proto::Ended> ended = client.AwaitEnd();
  REQUIRE(ended.has_value());
  CHECK(ended->result() == kCudaErrorSystemNotReady);
  CHECK_FALSE(fs::exists(f.Path("d")));
  CHECK_FALSE(idle.Open());
  CHECK(idle.status().error_code() == grpc::StatusCode::UNAVAILABLE);
  CHECK(other.Allocate(4096) != 0);
  CHECK(f.me.Close("d").error_code() == grpc::StatusCode::NOT_FOUND);
  CHECK(f.me.List().endpoints_size() == 1);
}

TEST_CASE("A reopened endpoint is new: nothing of the old one is left") {
  TenantEndpointsFixture f;
  REQUIRE(f.me.Open("d").ok());
  const fs::path left = f.Path("d") + "/left behind";
  std::ofstream(left) << "x";
  TestClient client(f.Socket("d"));
  REQUIRE(client.Open());
  const int old = open(f.Path("d").c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);

  REQUIRE(f.me.Open("d").ok());
  CHECK(client.AwaitEnd().has_value());
  CHECK_FALSE(fs::exists(left));
  struct stat before {};
  REQUIRE(fstat(old, &before) == 0);
  CHECK(before.st_nlink == 0);
  close(old);
  TestClient next(f.Socket("d"));
  CHECK(next.Open());
}

TEST_CASE("An endpoint that cannot be made leaves nothing") {
  TenantEndpointsFixture f;
  proto::TenantSetting limits;
  limits.set_name("pod");
  limits.set_memory(1 << 20);
  // What is in the way of its socket.
  const std::string in_the_way = f.daemon.directory.path + "/endpoints/.socket";
  REQUIRE(fs::create_directory(in_the_way));
  CHECK_FALSE(f.me.Open("a", {}, limits).ok());
  CHECK(f.daemon.daemon->settings().current().tenants_size() == 0);
  CHECK(f.me.List().endpoints_size() == 0);
  CHECK_FALSE(fs::exists(f.Path("a")));
  fs::remove_all(in_the_way);
  REQUIRE(f.me.Open("a", {}, limits).ok());
  CHECK(f.daemon.daemon->settings().current().tenants_size() == 1);
}

proto::Tenants TenantsOf(TestClient& client) {
  grpc::ClientContext context;
  proto::Tenants tenants;
  REQUIRE(AdminOf(client)->GetTenants(&context, {}, &tenants).ok());
  return tenants;
}

TEST_CASE("A reload keeps the settings of open endpoints, and they go with the last of a tenant") {
  TenantEndpointsFixture f;
  SettingsStore& settings = f.daemon.daemon->settings();
  proto::TenantSetting limits;
  limits.set_name("pod");
  limits.set_memory(1 << 20);
  REQUIRE(f.me.Open("a", {}, limits).ok());
  limits.set_weight(3);
  limits.clear_memory();
  REQUIRE(f.me.Open("b", {}, limits).ok());
  proto::Settings configured;
  configured.mutable_policy()->set_name("fair");
  configured.add_tenants()->set_name("other");
  REQUIRE(settings.Replace(configured).ok());
  CHECK(settings.current().tenants_size() == 2);
  {
    TestClient client(f.Socket("a"));
    REQUIRE(client.Open());
    CHECK(client.Allocate(2 << 20) == 0);
  }
  // The configuration's settings of the tenant are below those of the endpoints.
  proto::TenantSetting* const pod = configured.add_tenants();
  pod->set_name("pod");
  pod->set_tenant_class("batch");
  pod->set_weight(7);
  REQUIRE(settings.Replace(configured).ok());
  const auto of_pod = [&] {
    const proto::Tenants tenants = TenantsOf(f.me.client);
    for (const proto::TenantSetting& tenant : tenants.tenants()) {
      if (tenant.name() == "pod") return tenant;
    }
    return proto::TenantSetting();
  };
  CHECK(of_pod().tenant_class() == "batch");
  CHECK(of_pod().memory() == 1 << 20);
  CHECK(of_pod().weight() == 3);
  REQUIRE(f.me.Close("a").ok());
  CHECK(of_pod().memory() == 0);
  CHECK(of_pod().weight() == 3);
  REQUIRE(f.me.Close("b").ok());
  CHECK(of_pod().weight() == 7);
  CHECK(of_pod().tenant_class() == "batch");
  // A tenant of which only an endpoint knew has no settings afterwards.
  limits.set_name("gone");
  REQUIRE(f.me.Open("c", {}, limits).ok());
  CHECK(TenantsOf(f.me.client).tenants_size() == 3);
  // Opened again, the endpoint has the new settings only.
  limits.clear_weight();
  limits.set_sessions(5);
  REQUIRE(f.me.Open("c", {}, limits).ok());
  CHECK(TenantsOf(f.me.client).tenants(2).sessions() == 5);
  CHECK(TenantsOf(f.me.client).tenants(2).weight() == 1);
  REQUIRE(f.me.Close("c").ok());
  CHECK(TenantsOf(f.me.client).tenants_size() == 2);
}

TEST_CASE("The settings of an open endpoint change, and its sessions go on") {
  TestDirectory run;
  const auto in_run = [&](Daemon::Options& options) {
    options.server.runtime_directory = run.path;
  };
  const auto settings_of = [](Operator& me) {
    const proto::Tenants tenants = TenantsOf(me.client);
    REQUIRE(tenants.tenants_size() == 1);
    return tenants.tenants(0);
  };
  proto::TenantEndpoint endpoint;
  endpoint.set_name("d");
  endpoint.mutable_tenant()->set_tenant_class("batch");
  endpoint.mutable_tenant()->set_memory(1 << 20);
  {
    TestDaemon daemon(in_run);
    Operator me(daemon.socket());
    CHECK(me.Change(endpoint).error_code() == grpc::StatusCode::NOT_FOUND);
    REQUIRE(me.Open(endpoint).ok());
    TestClient client(run.path + "/endpoints/d/detshared.sock");
    REQUIRE(client.Open());
    CHECK(client.Allocate(2 << 20) == 0);

    proto::TenantEndpoint change;
    change.set_name("d");
    change.mutable_tenant()->set_memory(4 << 20);
    REQUIRE(me.Change(change).ok());
    CHECK(client.Allocate(2 << 20) != 0);
    CHECK(settings_of(me).memory() == 4 << 20);
    CHECK(settings_of(me).tenant_class() == "batch");

    // Nothing changes if a part cannot.
    change.mutable_tenant()->set_memory(8 << 20);
    change.mutable_tenant()->set_weight(-1);
    CHECK(me.Change(change).error_code() == grpc::StatusCode::INVALID_ARGUMENT);
    change.mutable_tenant()->clear_weight();
    change.mutable_tenant()->set_name("other");
    CHECK(me.Change(change).error_code() == grpc::StatusCode::INVALID_ARGUMENT);
    change.mutable_tenant()->clear_name();
    change.add_device_ids("7");
    CHECK(me.Change(change).error_code() == grpc::StatusCode::INVALID_ARGUMENT);
    CHECK(settings_of(me).memory() == 4 << 20);
  }
  // The next daemon has the changed settings.
  TestDaemon daemon(in_run);
  Operator me(daemon.socket());
  CHECK(settings_of(me).memory() == 4 << 20);
  CHECK(settings_of(me).tenant_class() == "batch");
}

TEST_CASE("A device of one allocator's endpoints is not opened for another allocator") {
  TestDirectory run;
  const auto in_run = [&](Daemon::Options& options) {
    options.server.runtime_directory = run.path;
  };
  const auto endpoint = [](const std::string& name, const std::string& allocator,
                           const std::string& device) {
    proto::TenantEndpoint one;
    one.set_name(name);
    one.set_allocator(allocator);
    if (!device.empty()) one.add_device_ids(device);
    return one;
  };
  {
    TestDaemon daemon(in_run, 2);
    Operator me(daemon.socket());
    REQUIRE(me.Open(endpoint("share-0", "device-plugin", "0")).ok());
    CHECK(me.List().endpoints(0).allocator() == "device-plugin");
    const grpc::Status refused = me.Open(endpoint("claim-0", "claims", "0"));
    CHECK(refused.error_code() == grpc::StatusCode::FAILED_PRECONDITION);
    CHECK(refused.error_message() ==
          "its device belongs to device-plugin, which has endpoint share-0 there: end the programs "
          "that use it, then run detsharectl endpoint close share-0");
    // No devices are all devices.
    CHECK(me.Open(endpoint("claim-0", "claims", "")).error_code() ==
          grpc::StatusCode::FAILED_PRECONDITION);
    CHECK(me.Open(endpoint("claim-1", "claims", "1")).ok());
    CHECK(me.Open(endpoint("share-1", "device-plugin", "0")).ok());
    // An operator's own endpoint is nobody's account.
    CHECK(me.Open(endpoint("mine", "", "0")).ok());
    REQUIRE(me.Close("share-0").ok());
    REQUIRE(me.Close("share-1").ok());
    CHECK(me.Open(endpoint("claim-0", "claims", "0")).ok());
  }
  // Also after a restart of the daemon.
  TestDaemon daemon(in_run, 2);
  Operator me(daemon.socket());
  CHECK(me.Open(endpoint("share-0", "device-plugin", "0")).error_code() ==
        grpc::StatusCode::FAILED_PRECONDITION);
}

TEST_CASE("A closed endpoint keeps no descriptor, even if a client stays connected for a while") {
  TenantEndpointsFixture f;
  const auto held = [&] {
    int count = 0;
    for (const auto& entry : fs::directory_iterator("/proc/self/fd")) {
      std::error_code error;
      const std::string path = fs::read_symlink(entry.path(), error).string();
      // Its directory is moved before it is removed.
      count += path.find(f.Path("a")) == 0 || path.find(f.Path(".closed-")) == 0;
    }
    return count;
  };
  REQUIRE(f.me.Open("a").ok());
  CHECK(held() != 0);
  {
    TestClient client(f.Socket("a"));
    REQUIRE(client.Open());
    REQUIRE(f.me.Close("a").ok());
    CHECK(client.AwaitEnd().has_value());
  }
  CHECK(Eventually([&] { return held() == 0; }));
}

TEST_CASE("Sessions, tenants and events tell whose the endpoint is, also if that is known later") {
  TenantEndpointsFixture f;
  REQUIRE(f.me.Open("box", {}, {}, *OwnerOfPod("default/web-0/server")).ok());
  TestClient client(f.Socket("box"));
  REQUIRE(client.Open());
  proto::Status status = f.me.Status();
  REQUIRE(status.sessions_size() == 1);
  CHECK(status.sessions(0).endpoint() == "box");
  CHECK(OwnerText(status.sessions(0).owner()) == "default/web-0/server");
  REQUIRE(status.tenants_size() == 1);
  CHECK(OwnerText(status.tenants(0).owner()) == "default/web-0/server");
  CHECK(OwnerText(f.me.OwnerInEvent("opened")) == "default/web-0/server");
  CHECK(OwnerText(f.me.List().endpoints(0).owner()) == "default/web-0/server");

  REQUIRE(f.me.SetOwner("box", *OwnerOfPod("default/web-1/server")).ok());
  status = f.me.Status();
  CHECK(OwnerText(status.sessions(0).owner()) == "default/web-1/server");
  CHECK(OwnerText(f.me.OwnerInEvent("endpoint")) == "default/web-1/server");

  // The sessions of a closed endpoint end after it, and were the owner's all the same.
  REQUIRE(f.me.Open("box").ok());
  CHECK(client.AwaitEnd().has_value());
  REQUIRE(Eventually([&] { return f.me.Status().sessions_size() == 0; }));
  CHECK(OwnerText(f.me.OwnerInEvent("ended")) == "default/web-1/server");
  CHECK(IsEmpty(f.me.List().endpoints(0).owner()));

  // A session at the daemon's own socket has no owner.
  TestClient other(f.daemon.socket());
  REQUIRE(other.Open());
  status = f.me.Status();
  REQUIRE(status.sessions_size() == 1);
  CHECK(status.sessions(0).endpoint().empty());
  CHECK(IsEmpty(status.sessions(0).owner()));
  CHECK(IsEmpty(f.me.OwnerInEvent("opened")));
}

TEST_CASE("An owner that breaks the rules is refused, and changes nothing") {
  TenantEndpointsFixture f;
  proto::Owner bad;
  bad.set_pod("web-0");
  CHECK(f.me.Open("box", {}, {}, bad).error_code() == grpc::StatusCode::INVALID_ARGUMENT);
  CHECK(f.me.List().endpoints_size() == 0);
  REQUIRE(f.me.Open("box", {}, {}, *OwnerOfPod("default/web-0")).ok());
  CHECK(f.me.SetOwner("box", bad).error_code() == grpc::StatusCode::INVALID_ARGUMENT);
  bad.set_namespace_("a\nb");
  CHECK(f.me.SetOwner("box", bad).error_code() == grpc::StatusCode::INVALID_ARGUMENT);
  CHECK(f.me.SetOwner("none", {}).error_code() == grpc::StatusCode::NOT_FOUND);
  CHECK(OwnerText(f.me.List().endpoints(0).owner()) == "default/web-0");
}

TEST_CASE("Endpoints have names that are directories, and devices that exist") {
  TenantEndpointsFixture f;
  for (const std::string& name : {std::string(), std::string("."), std::string(".."),
                                  std::string("a/b"), std::string(".socket"), std::string(".list"),
                                  std::string("-x"), std::string("a b"), std::string(65, 'a')}) {
    CHECK(f.me.Open(name).error_code() == grpc::StatusCode::INVALID_ARGUMENT);
  }
  CHECK(f.me.Open("d", {"1"}).error_code() == grpc::StatusCode::INVALID_ARGUMENT);
  CHECK(f.me.Open("d", {"0", "0"}).error_code() == grpc::StatusCode::INVALID_ARGUMENT);
  proto::TenantSetting tenant;
  tenant.set_weight(-1);
  CHECK(f.me.Open("d", {}, tenant).error_code() == grpc::StatusCode::INVALID_ARGUMENT);
  CHECK(f.me.List().endpoints_size() == 0);
  CHECK_FALSE(fs::exists(f.Path("d")));
  CHECK(f.me.Close("../sessions").error_code() == grpc::StatusCode::NOT_FOUND);
  CHECK(f.me.Open(std::string(64, 'a')).ok());
}

TEST_CASE("Only administrators open endpoints, and no other user reaches into their directory") {
  TenantEndpointsFixture f;
  REQUIRE(f.me.Open("d").ok());
  struct stat endpoints {
  }, endpoint{}, socket{};
  REQUIRE(stat((f.daemon.directory.path + "/endpoints").c_str(), &endpoints) == 0);
  REQUIRE(stat(f.Path("d").c_str(), &endpoint) == 0);
  REQUIRE(stat(f.Socket("d").c_str(), &socket) == 0);
  CHECK((endpoints.st_mode & 0777) == 0700);
  CHECK((endpoint.st_mode & 0777) == 0711);
  CHECK((socket.st_mode & 0777) == 0666);
}

TEST_CASE("The next daemon opens the endpoints again at the same places") {
  TestDirectory run;
  const auto in_run = [&](Daemon::Options& options) {
    options.server.runtime_directory = run.path;
  };
  const std::string path = run.path + "/endpoints/d";
  ino_t before = 0;
  {
    TestDaemon daemon(in_run);
    Operator me(daemon.socket());
    proto::TenantSetting tenant;
    tenant.set_name("chat");
    tenant.set_tenant_class("latency");
    tenant.set_slo_tpot_ns(40'000'000);
    REQUIRE(me.Open("d", {}, tenant).ok());
    REQUIRE(me.Open("e").ok());
    before = InodeOf(path);
    TestClient client(path + "/detshared.sock");
    REQUIRE(client.Open());
    REQUIRE(client.Allocate(4 << 20) != 0);
    // A container leaves this in its directory.
    REQUIRE(fs::remove(path + "/detshared.sock"));
    fs::create_directories(path + "/detshared.sock/x");
    std::ofstream(path + "/junk") << "x";
    daemon.daemon.reset();
    CHECK(fs::exists(path));
  }
  TestDaemon daemon(in_run);
  Operator me(daemon.socket());
  CHECK(me.List().endpoints_size() == 2);
  CHECK(InodeOf(path) == before);
  CHECK_FALSE(fs::exists(path + "/junk"));
  TestClient client(path + "/detshared.sock");
  REQUIRE(client.Open());
  const proto::Status status = me.Status();
  REQUIRE(status.sessions_size() == 1);
  CHECK(status.sessions(0).tenant() == "chat");
  CHECK(status.sessions(0).schedule().tenant_class() == "latency");
  // What the sessions of the earlier daemon have used still counts.
  REQUIRE(me.Close("d").ok());
  CHECK(me.use.sessions() == 2);
  CHECK(me.use.peak_memory() == 4 << 20);
}

TEST_CASE("An endpoint that was closed stays closed for the next daemon") {
  TestDirectory run;
  const auto in_run = [&](Daemon::Options& options) {
    options.server.runtime_directory = run.path;
  };
  {
    TestDaemon daemon(in_run);
    Operator me(daemon.socket());
    REQUIRE(me.Open("d").ok());
    REQUIRE(me.Close("d").ok());
  }
  TestDaemon daemon(in_run);
  CHECK(Operator(daemon.socket()).List().endpoints_size() == 0);
}

TEST_CASE("New endpoints are not taken for those of the earlier daemon") {
  TestDirectory run;
  const auto in_run = [&](Daemon::Options& options) {
    options.server.runtime_directory = run.path;
  };
  {
    TestDaemon daemon(in_run);
    Operator me(daemon.socket());
    for (const char* name : {"a", "b"}) REQUIRE(me.Open(name).ok());
    REQUIRE(me.Open("stays", {}, {}, *OwnerOfPod("default/web-0/server")).ok());
    REQUIRE(me.Close("a").ok());
    REQUIRE(me.Close("b").ok());
  }
  TestDaemon daemon(in_run);
  Operator me(daemon.socket());
  TestClient client(run.path + "/endpoints/stays/detshared.sock");
  REQUIRE(client.Open());
  for (const char* name : {"x", "y", "z"}) REQUIRE(me.Open(name).ok());
  REQUIRE(me.Status().sessions_size() == 1);
  CHECK(me.Status().sessions(0).endpoint() == "stays");
  CHECK(OwnerText(me.Status().sessions(0).owner()) == "default/web-0/server");
  for (const char* name : {"x", "y", "z"}) REQUIRE(me.Close(name).ok());
  CHECK(me.Status().sessions_size() == 1);
  CHECK(client.Allocate(4096) != 0);
}

// Opens everything, and keeps only the sockets.
struct AnyHost : EndpointHost {
  ~AnyHost() override {
    for (const int fd : sockets) close(fd);
  }
  bool SessionsGoOn() const override { return sessions_go_on; }
  absl::StatusOr<std::vector<std::string>> DevicesOf(const std::vector<std::string>& ids) override {
    return ids;
  }
  absl::Status SetTenant(uint64_t, const proto::TenantSetting&) override {
    return absl::OkStatus();
  }
  void Begin(int listen_fd, std::shared_ptr<TenantEndpoint>) override { sockets.insert(listen_fd); }
  void Stop(int listen_fd) override {
    sockets.erase(listen_fd);
    close(listen_fd);
  }
  void End(const TenantEndpoint&) override {}

  bool sessions_go_on = false;
  std::set<int> sockets;
};

TEST_CASE("The files of sessions stay for the next process if the sessions go on, and only then") {
  for (const bool go_on : {true, false}) {
    TestDirectory run;
    AnyHost host;
    host.sessions_go_on = go_on;
    Owners owners;
    proto::TenantEndpoint endpoint;
    endpoint.set_name("d");
    REQUIRE((*TenantEndpoints::Create(run.path, host, owners))->Open(endpoint).ok());
    const fs::path directory = run.path + "/endpoints/d";
    std::ofstream(directory / "sessions" / "file") << "x";
    std::ofstream(directory / "junk") << "x";
    const auto next = TenantEndpoints::Create(run.path, host, owners);
    REQUIRE(next.ok());
    CHECK((*next)->List().endpoints_size() == 1);
    CHECK(fs::exists(directory / "sessions" / "file") == go_on);
    CHECK_FALSE(fs::exists(directory / "junk"));
  }
}

proto::TenantEndpoint Named(const std::string& name) {
  proto::TenantEndpoint endpoint;
  endpoint.set_name(name);
  return endpoint;
}

// The names in the folder of endpoints, but for the list.
std::set<std::string> NamesIn(const TestDirectory& run) {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(run.path + "/endpoints")) {
    if (!entry.is_regular_file()) names.insert(entry.path().filename().string());
  }
  return names;
}

TEST_CASE(
    "A deep tree in an endpoint's directory goes with its endpoint, and takes no descriptors") {
  constexpr int kDeep = 3000;
  TestDirectory run;
  const std::string path = run.path + "/endpoints/d";
  AnyHost host;
  Owners owners;
  auto endpoints = TenantEndpoints::Create(run.path, host, owners);
  REQUIRE(endpoints.ok());
  REQUIRE((*endpoints)->Open(Named("d")).ok());
  const auto fill = [&] {
    REQUIRE(MakeDeepTree(path, kDeep) == kDeep);
    REQUIRE(MakeDeepTree(path + "/sessions", kDeep) == kDeep);
  };
  const auto is_new = [&] {
    size_t entries = 0;
    for ([[maybe_unused]] const auto& entry : fs::directory_iterator(path)) ++entries;
    return entries == 2 && fs::is_socket(path + "/detshared.sock") &&
           fs::is_empty(path + "/sessions");
  };
  // For the endpoint and the list, and for the removal.
  constexpr rlim_t kFew = 10;
  fill();
  {
    const FewDescriptors few(kFew);
    CHECK((*endpoints)->Open(Named("d")).ok());
  }
  CHECK(is_new());
  CHECK(NamesIn(run) == std::set<std::string>{"d"});
  fill();
  endpoints->reset();
  {
    const FewDescriptors few(kFew);
    endpoints = TenantEndpoints::Create(run.path, host, owners);
  }
  REQUIRE(endpoints.ok());
  CHECK(is_new());
  fill();
  {
    const FewDescriptors few(kFew);
    CHECK((*endpoints)->Close("d").ok());
  }
  CHECK(NamesIn(run).empty());
}

TEST_CASE("An endpoint gets a new directory, also if that of an earlier one cannot be removed") {
  TestDirectory run;
  const std::string path = run.path + "/endpoints/d";
  AnyHost host;
  Owners owners;
  auto endpoints = TenantEndpoints::Create(run.path, host, owners);
  REQUIRE(endpoints.ok());
  for (int i = 0; i < 2; ++i) {
    REQUIRE((*endpoints)->Open(Named("d")).ok());
    CHECK_FALSE(fs::exists(path + "/secret"));
    std::ofstream(path + "/secret") << "x";
    const bool closed = [&] {
      const FewDescriptors none(0);
      return (*endpoints)->Close("d").ok();
    }();
    CHECK(closed);
    CHECK_FALSE(fs::exists(path));
  }
  CHECK(NamesIn(run) == std::set<std::string>{".closed-0", ".closed-1"});
  // What is there without an endpoint goes, too.
  fs::create_directory(path);
  std::ofstream(path + "/secret") << "x";
  std::ofstream(run.path + "/endpoints/e") << "x";
  for (const char* name : {"d", "e"}) REQUIRE((*endpoints)->Open(Named(name)).ok());
  CHECK_FALSE(fs::exists(path + "/secret"));
  // The next daemon removes the rest.
  endpoints->reset();
  endpoints = TenantEndpoints::Create(run.path, host, owners);
  REQUIRE(endpoints.ok());
  CHECK(NamesIn(run) == std::set<std::string>{"d", "e"});
}

TEST_CASE("A list of endpoints that could not be written is written later") {
  TestDirectory run;
  AnyHost host;
  Owners owners;
  const auto endpoints = TenantEndpoints::Create(run.path, host, owners);
  REQUIRE(endpoints.ok());
  // As on a full file system.
  const std::string list = run.path + "/endpoints/.list", in_the_way = list + ".new";
  REQUIRE(fs::create_directory(in_the_way));
  proto::TenantEndpoint endpoint;
  endpoint.set_name("d");
  REQUIRE((*endpoints)->Open(endpoint).ok());
  (*endpoints)->SaveAgain();
  CHECK_FALSE(fs::exists(list));
  fs::remove(in_the_way);
  (*endpoints)->SaveAgain();
  REQUIRE(fs::exists(list));
  // Only what is not written yet is written.
  fs::remove(list);
  (*endpoints)->SaveAgain();
  CHECK_FALSE(fs::exists(list));
}

TEST_CASE("No endpoint's name is that of a file of the daemon") {
  TestDirectory run;
  AnyHost host;
  Owners owners;
  const std::set<std::string> names = {"list", "list.new", "socket", "closed-0", "d"};
  auto endpoints = TenantEndpoints::Create(run.path, host, owners);
  REQUIRE(endpoints.ok());
  for (const std::string& name : names) REQUIRE((*endpoints)->Open(Named(name)).ok());
  for (int i = 0; i < 2; ++i) {
    endpoints->reset();
    endpoints = TenantEndpoints::Create(run.path, host, owners);
    REQUIRE(endpoints.ok());
    CHECK((*endpoints)->List().endpoints_size() == static_cast<int>(names.size()));
    CHECK(NamesIn(run) == names);
  }
}

TEST_CASE("The list of an earlier version's daemon is read once, if it is a file of this user") {
  TestDirectory run, elsewhere;
  AnyHost host;
  Owners owners;
  fs::create_directory(run.path + "/endpoints");
  const std::string before = run.path + "/endpoints/list", now = run.path + "/endpoints/.list";
  const auto open_names = [&] {
    std::set<std::string> names;
    const auto endpoints = TenantEndpoints::Create(run.path, host, owners);
    REQUIRE(endpoints.ok());
    const proto::EndpointList list = (*endpoints)->List();
    for (const auto& endpoint : list.endpoints()) names.insert(endpoint.name());
    return names;
  };
  std::ofstream(before) << "endpoints { name: \"d\" number: 1 }\n";
  CHECK(open_names() == std::set<std::string>{"d"});
  CHECK_FALSE(fs::exists(before));
  CHECK(open_names() == std::set<std::string>{"d"});
  // The new list is the one in force.
  std::ofstream(before) << "endpoints { name: \"e\" number: 2 }\n";
  CHECK(open_names() == std::set<std::string>{"d"});
  fs::remove(before);

  fs::remove(now);
  std::ofstream(elsewhere.path + "/list") << "endpoints { name: \"e\" number: 2 }\n";
  fs::create_symlink(elsewhere.path + "/list", before);
  CHECK(open_names().empty());
  fs::remove(before);
  fs::create_directory(before);
  CHECK(open_names().empty());
  CHECK(fs::is_directory(before));
}

TEST_CASE("The number of endpoints is bounded, also by the descriptors that the daemon may have") {
  rlimit descriptors{};
  REQUIRE(getrlimit(RLIMIT_NOFILE, &descriptors) == 0);
  const bool few = GENERATE(true, false);
  descriptors.rlim_cur = few ? 1024 : descriptors.rlim_max;
  REQUIRE(setrlimit(RLIMIT_NOFILE, &descriptors) == 0);
  const size_t limit = TenantEndpoints::Limit();
  CHECK(limit <= TenantEndpoints::kMaxEndpoints);
  if (few) CHECK(limit == 128);
  TestDirectory run;
  fs::create_directory(run.path + "/endpoints");
  {
    std::ofstream list(run.path + "/endpoints/.list");
    for (size_t i = 1; i < limit; ++i)
      list << "endpoints { name: \"e" << i << "\" number: " << i << " }\n";
  }
  AnyHost host;
  Owners owners;
  const auto endpoints = TenantEndpoints::Create(run.path, host, owners);
  REQUIRE(endpoints.ok());
  const auto open = [&](const std::string& name) {
    proto::TenantEndpoint endpoint;
    endpoint.set_name(name);
    return (*endpoints)->Open(endpoint).status();
  };
  CHECK(open("last").ok());
  const absl::Status refused = open("one-more");
  CHECK(absl::IsResourceExhausted(refused));
  if (few) CHECK_THAT(std::string(refused.message()), Catch::Contains("raise LimitNOFILE="));
  CHECK(open("last").ok());  // again, in the place of itself
  REQUIRE((*endpoints)->Close("e1").ok());
  CHECK(open("one-more").ok());
}

TEST_CASE("A damaged list of endpoints opens none") {
  TestDirectory run;
  fs::create_directory(run.path + "/endpoints");
  const std::string texts[] = {"endpoints { name: \"../x\" }", "endpoints {",
                               std::string(1000, '\0'),
                               "endpoints { name: \"d\" device_ids: \"GPU-ff\" }"};
  for (const std::string& text : texts) {
    std::ofstream(run.path + "/endpoints/.list") << text;
    TestDaemon daemon(
        [&](Daemon::Options& options) { options.server.runtime_directory = run.path; });
    Operator me(daemon.socket());
    CHECK(me.List().endpoints_size() == 0);
    CHECK(me.Open("fresh").ok());
    CHECK(me.Close("fresh").ok());
  }
  CHECK_FALSE(fs::exists(run.path + "/x"));
}

TEST_CASE("A container that replaces files of its directory cannot mislead the daemon") {
  TenantEndpointsFixture f;
  TestDirectory victim;
  fs::create_directory(victim.path + "/1");
  std::ofstream(victim.path + "/session") << "precious";
  fs::permissions(victim.path, fs::perms::owner_all);
  REQUIRE(f.me.Open("d").ok());

  // The container replaces the endpoint's folder of sessions. Sessions are made in the folder that
  // the daemon knows.
  fs::rename(f.Path("d") + "/sessions", f.Path("d") + "/moved");
  fs::create_directory_symlink(victim.path, f.Path("d") + "/sessions");
  TestClient client(f.Socket("d"));
  proto::SessionEvent event;
  grpc::ClientContext context;
  auto reader = ControlOf(client)->OpenSession(&context, client.request);
  REQUIRE(reader->Read(&event));
  const std::string moved = f.Path("d") + "/moved/" + std::to_string(event.grant().session());
  CHECK(fs::exists(moved + "/session"));

  // The container replaces a session's folder. The daemon ignores the replacement when it makes
  // pinned memory and when it removes the session.
  fs::rename(moved, f.Path("d") + "/mine");
  fs::create_directory_symlink(victim.path, moved);
  context.TryCancel();
  reader->Finish();
  while (f.me.Status().sessions_size() != 0) usleep(1000);
  std::ifstream stream(victim.path + "/session");
  std::string text;
  stream >> text;
  CHECK(text == "precious");
  CHECK(fs::exists(victim.path + "/1"));
  CHECK((fs::status(victim.path).permissions() & fs::perms::all) == fs::perms::owner_all);

  // The endpoint can be opened again, whatever the directory has.
  REQUIRE(f.me.Open("d").ok());
  TestClient again(f.Socket("d"));
  CHECK(again.Open());
  CHECK(fs::exists(victim.path + "/1"));
}

TEST_CASE("Pinned memory is not looked up through links in a session's directory") {
  TestDirectory victim, session;
  std::ofstream(victim.path + "/f") << "precious";
  fs::create_directory_symlink(victim.path, session.path + "/link");
  CHECK_FALSE(MappedFile::Create(session.path + "/link/new", 4096, 0, {geteuid(), getegid()}).ok());
  CHECK_FALSE(fs::exists(victim.path + "/new"));
  auto file = MappedFile::Create(session.path + "/file", 8192, 0, {geteuid(), getegid()}, 4096);
  REQUIRE(file.ok());
  REQUIRE(fs::remove(session.path + "/file"));
  fs::create_symlink(victim.path + "/f", session.path + "/file");
  CHECK_FALSE((*file)->Allocate(4096, 4096).ok());
  fs::remove(session.path + "/file");
  REQUIRE(mkfifo((session.path + "/file").c_str(), 0600) == 0);
  CHECK(absl::IsNotFound((*file)->Allocate(4096, 4096)));
  CHECK(fs::file_size(victim.path + "/f") == 8);
}

}  // namespace
}  // namespace detshare
