// The devices that programs get on a host with several, as programs and operators see them.
#include <catch2/catch.hpp>
#include <chrono>
#include <set>
#include <string>
#include <vector>

#include "proto/nvml/nvml_types.h"
#include "proto/telemetry.grpc.pb.h"
#include "proto/tenant_endpoint.grpc.pb.h"
#include "server/sessions/session_manager.h"
#include "server/sessions/session_placement.h"
#include "tests/server/daemon_fixture.h"
#include "tests/server/grpc_stubs.h"
#include "tests/server/instant_device.h"
#include "tests/units.h"

namespace detshare {
namespace {

using Catch::Contains;

constexpr uint64_t kCardBytes = 1024 * kMiB;
using Change = std::function<void(Daemon::Options&)>;

TenantQuota OneDevice(uint64_t memory = 0) {
  TenantQuota quota;
  quota.memory = memory;
  quota.devices = 1;
  return quota;
}

// A client of tenant `tenant`. Clients with the same run belong together.
struct Client : TestClient {
  Client(const std::string& socket, const std::string& tenant, const std::string& run,
         uint32_t count = 0)
      : TestClient(socket) {
    this->tenant = tenant;
    telemetry = proto::Telemetry::NewStub(ClientChannel());
    request.set_run(run);
    request.set_device_count(count);
  }
  // The numbers of the daemon's devices, in the session's order.
  std::vector<int> Devices() {
    REQUIRE(Open());
    return Granted();
  }
  std::vector<int> Granted() const {
    std::vector<int> devices;
    for (const proto::Device& device : grant.devices()) devices.push_back(device.uuid()[15]);
    return devices;
  }
  // The reply that NVML would show.
  proto::TelemetryReply Read() {
    proto::TelemetryRequest question;
    question.set_run(request.run());
    question.set_device_count(request.device_count());
    for (const std::string& id : request.device_ids()) question.add_device_ids(id);
    grpc::ClientContext context;
    proto::TelemetryReply reply;
    REQUIRE(telemetry->Read(&context, question, &reply).ok());
    return reply;
  }
  std::vector<int> Shown() {
    std::vector<int> devices;
    const proto::TelemetryReply reply = Read();
    for (const proto::VisibleDevice& device : reply.devices()) devices.push_back(device.uuid()[15]);
    return devices;
  }
  std::pair<grpc::StatusCode, std::string> Refusal() {
    CHECK_FALSE(Open());
    return {status().error_code(), status().error_message()};
  }

  std::unique_ptr<proto::Telemetry::Stub> telemetry;
};

// Tenant "one" gets one device.
struct Host : TestDaemon {
  explicit Host(int devices = 3, const Change& change = {})
      : TestDaemon(
            [&](Daemon::Options& options) {
              options.server.tenant_quotas["one"] = OneDevice();
              if (change) change(options);
            },
            devices) {}
  proto::Status Status() {
    TestClient onlooker(socket());
    grpc::ClientContext context;
    proto::Status status;
    REQUIRE(AdminOf(onlooker)->GetStatus(&context, {}, &status).ok());
    return status;
  }
  grpc::Status Set(const std::string& tenant, uint64_t devices) {
    TestClient operator_(socket());
    grpc::ClientContext context;
    proto::TenantSetting setting, in_force;
    setting.set_name(tenant);
    setting.set_devices(devices);
    return AdminOf(operator_)->SetTenant(&context, setting, &in_force);
  }
};

TEST_CASE("A tenant that may have one device gets one, and its programs different ones") {
  Host host;
  Client a(host.socket(), "one", "a"), b(host.socket(), "one", "b"), c(host.socket(), "one", "c");
  std::set<int> devices;
  for (Client* client : {&a, &b, &c}) {
    REQUIRE(client->Devices().size() == 1);
    devices.insert(client->Granted()[0]);
    CHECK(client->grant.devices(0).peers_size() == 1);
    CHECK(client->Allocate(4096) != 0);
  }
  CHECK(devices == std::set<int>{0, 1, 2});

  // A tenant without such a limit sees all of the host.
  Client all(host.socket(), "all", "");
  CHECK(all.Devices() == std::vector<int>{0, 1, 2});

  const proto::Status status = host.Status();
  REQUIRE(status.sessions_size() == 4);
  for (int i = 0; i < 3; ++i) {
    REQUIRE(status.sessions(i).devices_size() == 1);
    CHECK(devices.contains(static_cast<int>(status.sessions(i).devices(0))));
  }
  CHECK(status.sessions(3).devices_size() == 3);
}

TEST_CASE("The sessions of one run are on the same devices, and NVML shows these") {
  Host host(4);
  Client parent(host.socket(), "all", "r", 2);
  const std::vector<int> shown = parent.Shown();
  REQUIRE(shown.size() == 2);
  // Other programs come and get other devices.
  Client other(host.socket(), "one", "x");
  other.Devices();
  Client child(host.socket(), "all", "r", 2), second(host.socket(), "all", "r", 2);
  CHECK(child.Devices() == shown);
  CHECK(second.Devices() == shown);
  CHECK(parent.Shown() == shown);
  CHECK(parent.Read().devices(0).processes_size() == 2);
  Client stranger(host.socket(), "all", "s", 2);
  CHECK(stranger.Devices() != shown);
}

TEST_CASE("CUDA_VISIBLE_DEVICES chooses among the granted devices") {
  Host host(4);
  Client whole(host.socket(), "all", "r", 2);
  const std::vector<int> granted = whole.Devices();
  const auto seen = [&](const std::vector<std::string>& visible) {
    for (;;) {
      Client client(host.socket(), "all", "r", 2);
      for (const std::string& id : visible) client.request.add_visible_ids(id);
      if (client.Open()) return client.Granted();
      // Sessions of earlier clients may still be ending.
      if (client.status().error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED) continue;
      INFO(client.status().error_message());
      CHECK(client.status().error_code() == grpc::StatusCode::NOT_FOUND);
      return std::vector<int>();
    }
  };
  const auto uuid = [](int device) {
    return "GPU-ab000000-0000-0000-0000-00000000000" + std::to_string(device);
  };
  CHECK(seen({"1"}) == std::vector<int>{granted[1]});
  CHECK(seen({"1", "0"}) == std::vector<int>{granted[1], granted[0]});
  CHECK(seen({uuid(granted[1])}) == std::vector<int>{granted[1]});
  // The list ends at the first entry that is no device or is there already.
  CHECK(seen({"0", "2", "1"}) == std::vector<int>{granted[0]});
  CHECK(seen({"0", uuid(granted[0]), "1"}) == std::vector<int>{granted[0]});
  // Other devices do not exist for the program. An entry that fits several devices names none.
  CHECK(seen({"2"}).empty());
  for (const int device : {0, 1, 2, 3}) {
    if (device != granted[0] && device != granted[1]) CHECK(seen({uuid(device)}).empty());
  }
  CHECK(seen({"GPU-ab"}).empty());
  CHECK(seen({"-1"}).empty());
}

TEST_CASE("A program may ask for a number of devices, up to the existing and permitted ones") {
  Host host(3);
  CHECK(Client(host.socket(), "all", "a", 2).Devices().size() == 2);
  CHECK(Client(host.socket(), "all", "a", 3).Devices().size() == 3);
  CHECK(Client(host.socket(), "one", "a", 1).Devices().size() == 1);
  const auto [code, text] = Client(host.socket(), "one", "b", 2).Refusal();
  CHECK(code == grpc::StatusCode::PERMISSION_DENIED);
  CHECK_THAT(text, Contains("programs of tenant one may have 1") && Contains("--devices"));
  for (const auto& [many, reason] :
       {std::pair(4u, "the program may use 3"), std::pair(UINT32_MAX, "a number from 0")}) {
    const auto [wrong, why] = Client(host.socket(), "all", "c", many).Refusal();
    CHECK(wrong == grpc::StatusCode::INVALID_ARGUMENT);
    CHECK_THAT(why, Contains(reason));
    CHECK(Client(host.socket(), "all", "c", many).Read().devices_size() == 0);
  }
  // Among the devices that it names.
  Client named(host.socket(), "one", "d");
  named.request.add_device_ids("2");
  named.request.add_device_ids("1");
  CHECK(std::set<int>{1, 2}.contains(named.Devices().at(0)));
  Client only(host.socket(), "one", "e");
  only.request.add_device_ids("2");
  CHECK(only.Devices() == std::vector<int>{2});
}

TEST_CASE("A program whose memory fits nowhere is refused with the reason, and sees no device") {
  Host host(2, [](Daemon::Options& options) {
    for (const char* tenant : {"big", "bigger", "biggest"})
      options.server.tenant_quotas[tenant] = OneDevice(700 * kMiB);
    options.server.tenant_quotas["small"] = OneDevice(100 * kMiB);
  });
  Client big(host.socket(), "big", ""), bigger(host.socket(), "bigger", "");
  const std::vector<int> first = big.Devices();
  // Memory that was promised to the first program is not free, although the program has not taken
  // any.
  CHECK(bigger.Devices() != first);
  Client biggest(host.socket(), "biggest", "");
  CHECK(biggest.Read().devices_size() == 0);
  const auto [code, text] = biggest.Refusal();
  CHECK(code == grpc::StatusCode::RESOURCE_EXHAUSTED);
  CHECK_THAT(text, Contains("tenant biggest needs") && Contains("no device has more than"));
  // The tenant's own programs stay together within its limit.
  Client again(host.socket(), "big", "other");
  CHECK(again.Devices() == first);
  // The memory that the tenant uses already is a part of its limit.
  CHECK(big.Allocate(600 * kMiB) != 0);
  CHECK(Client(host.socket(), "big", "more").Devices() == first);
  CHECK(Client(host.socket(), "small", "").Devices().size() == 1);
}

TEST_CASE("Memory that others use is not free") {
  Host host(2, [](Daemon::Options& options) {
    options.server.tenant_quotas["big"] = OneDevice(700 * kMiB);
  });
  host.devices[0]->used = 400 * kMiB;
  CHECK(Client(host.socket(), "big", "").Devices() == std::vector<int>{1});
}

TEST_CASE("If memory may leave the cards, a full host takes one program more") {
  Host host(2, [](Daemon::Options& options) {
    options.server.swap_bytes = 4 * kCardBytes;
    options.server.tenant_quotas["big"] = OneDevice(700 * kMiB);
  });
  for (InstantDevice* device : host.devices) device->used = 400 * kMiB;
  CHECK(Client(host.socket(), "big", "").Devices().size() == 1);
}

TEST_CASE(
    "A tenant's number of devices can be set while programs run, and holds for the next one") {
  Host host(2);
  Client before(host.socket(), "all", "a");
  CHECK(before.Devices().size() == 2);
  REQUIRE(host.Set("all", 1).ok());
  CHECK(Client(host.socket(), "all", "b").Devices().size() == 1);
  CHECK(before.Allocate(4096) != 0);
  REQUIRE(host.Set("all", 0).ok());
  CHECK(Client(host.socket(), "all", "c").Devices().size() == 2);
  const grpc::Status wrong = host.Set("all", 3);
  CHECK(wrong.error_code() == grpc::StatusCode::INVALID_ARGUMENT);
  CHECK_THAT(wrong.error_message(), Contains("0 (all) to 2, which this host has"));
  const proto::Status status = host.Status();
  for (const proto::TenantUse& tenant : status.tenants()) {
    if (tenant.name() == "one") CHECK(tenant.devices_limit() == 1);
  }
}

TEST_CASE("A tenant that may have more devices than a host has left gets all of them") {
  Host host(2, [](Daemon::Options& options) {
    options.server.tenants.emplace_back().name = "many";
    options.server.tenant_quotas["many"].devices = 8;
    options.server.default_quota.devices = 1;
  });
  CHECK(Client(host.socket(), "many", "a").Devices().size() == 2);
  // That is valid until a user changes it.
  CHECK(host.Set("many", 8).ok());
  CHECK_FALSE(host.Set("many", 9).ok());
  // The default holds for all other tenants.
  CHECK(Client(host.socket(), "unnamed", "a").Devices().size() == 1);
}

TEST_CASE("All programs behind an endpoint get the same devices") {
  Host host(3);
  TestClient operator_(host.socket());
  auto endpoints = proto::TenantEndpoints::NewStub(operator_.channel());
  for (const char* name : {"d", "e"}) {
    proto::TenantEndpoint endpoint;
    endpoint.set_name(name);
    endpoint.mutable_tenant()->set_devices(1);
    grpc::ClientContext context;
    proto::OpenedEndpoint opened;
    REQUIRE(endpoints->OpenEndpoint(&context, endpoint, &opened).ok());
  }
  const auto socket = [&](const std::string& endpoint) {
    return host.directory.path + "/endpoints/" + endpoint + "/detshared.sock";
  };
  TestClient first(socket("d")), second(socket("d")), other(socket("e"));
  REQUIRE((first.Open() && second.Open() && other.Open()));
  REQUIRE(first.grant.devices_size() == 1);
  CHECK(first.grant.devices(0).uuid() == second.grant.devices(0).uuid());
  CHECK(first.grant.devices(0).uuid() != other.grant.devices(0).uuid());
}

TEST_CASE("The devices of a program that has ended are forgotten when there were many since") {
  Host host(2);
  const auto run = [&](const std::string& name) {
    Client client(host.socket(), "one", name);
    const std::vector<int> devices = client.Devices();
    client.Close();
    REQUIRE(host.daemon->manager().WaitUntilEmpty(std::chrono::minutes(1)));
    return devices;
  };
  CHECK(run("first") == std::vector<int>{0});
  for (size_t i = 0; i < SessionPlacement::kMaxWithoutSession; ++i) {
    CHECK(run("run" + std::to_string(i)) == std::vector<int>{0});
  }
  Client other(host.socket(), "one", "other");
  CHECK(other.Devices() == std::vector<int>{0});
  Client first(host.socket(), "one", "first");
  CHECK(first.Devices() == std::vector<int>{1});
}

TEST_CASE("An invalid request about devices is refused, for its sender only") {
  Host host(2);
  const auto refused = [&](const std::function<void(proto::OpenSessionRequest&)>& change) {
    Client client(host.socket(), "one", "");
    change(client.request);
    const bool opened = client.Open();
    return opened ? grpc::StatusCode::OK : client.status().error_code();
  };
  using Request = proto::OpenSessionRequest;
  CHECK(refused([](Request& r) { r.set_run("a b"); }) == grpc::StatusCode::INVALID_ARGUMENT);
  CHECK(refused([](Request& r) { r.set_run(std::string(1000, 'x')); }) ==
        grpc::StatusCode::INVALID_ARGUMENT);
  CHECK(refused([](Request& r) {
          for (int i = 0; i < 65; ++i) r.add_visible_ids("0");
        }) == grpc::StatusCode::INVALID_ARGUMENT);
  for (const char* id : {"", "GPU-", "99999999999999999999", "-2147483648", "0x0", "GPU-zz"})
    CHECK(refused([id](Request& r) { r.add_visible_ids(id); }) == grpc::StatusCode::NOT_FOUND);

  proto::TelemetryRequest question;
  question.set_run("../../etc");
  Client client(host.socket(), "one", "");
  grpc::ClientContext context;
  proto::TelemetryReply reply;
  REQUIRE(client.telemetry->Read(&context, question, &reply).ok());
  CHECK(reply.result() == NVML_ERROR_INVALID_ARGUMENT);
  CHECK(client.Devices().size() == 1);
}

TEST_CASE("The known habits of tenants decide where the next one is placed") {
  // Two tenants that serve users get different devices, although a batch program is on the other
  // device.
  Host host(2, [](Daemon::Options& options) {
    for (const char* tenant : {"chat", "search", "train"}) {
      policy::Tenant known;
      known.name = tenant;
      known.tenant_class = std::string(tenant) == "train" ? policy::TenantClass::kBatch
                                                          : policy::TenantClass::kLatency;
      options.server.tenants.push_back(known);
      options.server.tenant_quotas[tenant] = OneDevice();
    }
  });
  Client chat(host.socket(), "chat", ""), train(host.socket(), "train", ""),
      search(host.socket(), "search", "");
  const std::vector<int> first = chat.Devices();
  CHECK(train.Devices() != first);
  CHECK(search.Devices() == train.Granted());
}

TEST_CASE("An unknown placement is an error that names the existing ones") {
  std::vector<Device*> none;
  ServerOptions options;
  options.placement = "fastest";
  const auto made = SessionManager::Create(none, options);
  REQUIRE_FALSE(made.ok());
  CHECK_THAT(std::string(made.status().message()), Contains("workload-aware"));
}

}  // namespace
}  // namespace detshare
