// Settings of a running daemon, through the service and across a replacement of the daemon.
#include "server/services/settings_store.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <limits>
#include <thread>

#include "server/access/identity.h"
#include "tests/server/daemon_fixture.h"
#include "tests/server/grpc_stubs.h"
#include "tests/server/instant_device.h"

namespace detshare {
namespace {

grpc::Status Set(TestClient& client, const proto::TenantSetting& setting,
                 proto::TenantSetting* in_force = nullptr) {
  grpc::ClientContext context;
  proto::TenantSetting reply;
  const grpc::Status status = AdminOf(client)->SetTenant(&context, setting, &reply);
  if (in_force != nullptr) *in_force = reply;
  return status;
}

grpc::Status SetPolicy(TestClient& client, const std::string& name,
                       const std::map<std::string, std::string>& parameters = {}) {
  grpc::ClientContext context;
  proto::PolicySetting setting, reply;
  setting.set_name(name);
  for (const auto& [key, value] : parameters) (*setting.mutable_parameters())[key] = value;
  return AdminOf(client)->SetPolicy(&context, setting, &reply);
}

proto::Policies Policies(TestClient& client) {
  grpc::ClientContext context;
  proto::Policies policies;
  REQUIRE(AdminOf(client)->GetPolicies(&context, {}, &policies).ok());
  return policies;
}

proto::Tenants Tenants(TestClient& client) {
  grpc::ClientContext context;
  proto::Tenants tenants;
  REQUIRE(AdminOf(client)->GetTenants(&context, {}, &tenants).ok());
  return tenants;
}

proto::Status StatusOf(TestClient& client) {
  grpc::ClientContext context;
  proto::Status status;
  REQUIRE(AdminOf(client)->GetStatus(&context, {}, &status).ok());
  return status;
}

TEST_CASE("A policy is set while sessions run, and shown") {
  TestDaemon daemon;
  TestClient client(daemon.socket());
  REQUIRE(client.Open());
  CHECK(Policies(client).current().name() == "auto");
  CHECK(SetPolicy(client, "priority").ok());
  CHECK(Policies(client).current().name() == "priority");
  CHECK(StatusOf(client).policy() == "priority");
  CHECK(Policies(client).policies_size() >= 3);
  // The session goes on.
  client.CreateStream(1);
  CHECK(client.Synchronize(1) == 0);
}

TEST_CASE("An unknown policy and invalid parameters change nothing") {
  TestDaemon daemon;
  TestClient client(daemon.socket());
  CHECK(SetPolicy(client, "magic").error_code() == grpc::StatusCode::NOT_FOUND);
  const grpc::Status wrong = SetPolicy(client, "priority", {{"magic", "1"}});
  CHECK(wrong.error_code() == grpc::StatusCode::INVALID_ARGUMENT);
  CHECK(wrong.error_message().find("magic") != std::string::npos);
  CHECK(Policies(client).current().name() == "auto");
}

TEST_CASE("New settings of a tenant are added to its earlier ones") {
  TestDaemon daemon;
  TestClient client(daemon.socket());
  client.tenant = "serve";
  REQUIRE(client.Open());
  proto::TenantSetting setting, in_force;
  setting.set_name("serve");
  setting.set_tenant_class("latency");
  setting.set_slo_tpot_ns(30'000'000);
  REQUIRE(Set(client, setting, &in_force).ok());
  CHECK(in_force.weight() == 1);
  proto::TenantSetting more;
  more.set_name("serve");
  more.set_weight(2);
  more.set_exclusive(true);
  REQUIRE(Set(client, more, &in_force).ok());
  CHECK(in_force.weight() == 2);
  CHECK(in_force.exclusive());
  CHECK(in_force.tenant_class() == "latency");
  CHECK(in_force.slo_tpot_ns() == 30'000'000);
  REQUIRE(Tenants(client).tenants_size() == 1);
  CHECK(StatusOf(client).sessions(0).schedule().tenant_class() == "latency");
}

TEST_CASE("A tenant's first setting keeps the default limits that it does not name") {
  TestDaemon daemon([](Daemon::Options& options) {
    // There are fewer devices. The tenant keeps all of them.
    options.server.default_quota = {4 << 20, 3 << 20, 2, 7};
  });
  TestClient client(daemon.socket());
  client.tenant = "dora";
  REQUIRE(client.Open());
  proto::TenantSetting change, in_force;
  change.set_name("dora");
  change.set_weight(2);
  REQUIRE(Set(client, change, &in_force).ok());
  CHECK(in_force.memory() == 4 << 20);
  CHECK(in_force.pinned_memory() == 3 << 20);
  CHECK(in_force.sessions() == 2);
  CHECK(in_force.devices() == 1);
  CHECK(client.Allocate(6 << 20) == 0);
  change.set_memory(0);
  REQUIRE(Set(client, change, &in_force).ok());
  CHECK(in_force.memory() == 0);
  CHECK(in_force.sessions() == 2);
  CHECK(client.Allocate(6 << 20) != 0);
}

TEST_CASE("A tenant of an endpoint keeps the default limits, also those of a later reload") {
  TenantAccounts accounts(0);
  accounts.SetDefault({0, 0, 2, 0});
  proto::Settings configured;
  configured.mutable_policy()->set_name("fair");
  SettingsStore store({}, accounts, std::numeric_limits<int>::max(), configured, "");
  proto::TenantSetting change;
  change.set_name("chat");
  change.set_tenant_class("latency");
  REQUIRE(store.SetForEndpoint(1, change).ok());
  const auto sessions = [&] {
    const proto::Settings settings = store.current();
    REQUIRE(settings.tenants_size() == 1);
    return settings.tenants(0).sessions();
  };
  CHECK(sessions() == 2);
  REQUIRE(store.Replace(configured, TenantQuota{0, 0, 5, 0}).ok());
  CHECK(sessions() == 5);
  CHECK(accounts.Of("other")->limits().sessions == 5);
  // A reload that is refused leaves the default limits, too.
  proto::Settings wrong = configured;
  wrong.mutable_policy()->set_name("magic");
  CHECK_FALSE(store.Replace(wrong, TenantQuota{0, 0, 9, 0}).ok());
  CHECK(accounts.default_quota().sessions == 5);
  REQUIRE(store.UnsetTenant("chat").ok());  // the endpoint keeps its settings
  CHECK(sessions() == 5);
  REQUIRE(store.UnsetForEndpoint(1).ok());
  CHECK(store.current().tenants_size() == 0);
  CHECK(accounts.Of("chat")->limits().sessions == 5);
}

TEST_CASE("A tenant gets back the settings of the configuration, or none") {
  TestDaemon daemon;
  TestClient client(daemon.socket());
  SettingsStore& settings = daemon.daemon->settings();
  proto::Settings configured = settings.current();
  proto::TenantSetting* const chat = configured.add_tenants();
  chat->set_name("chat");
  chat->set_weight(3);
  REQUIRE(settings.Replace(configured).ok());
  proto::TenantSetting change;
  change.set_name("chat");
  change.set_weight(5);
  change.set_memory(1 << 20);
  REQUIRE(Set(client, change).ok());
  change.set_name("train");
  REQUIRE(Set(client, change).ok());
  const auto unset = [&](const std::string& name, proto::Tenants* left) {
    grpc::ClientContext context;
    proto::UnsetTenantRequest request;
    request.set_name(name);
    return AdminOf(client)->UnsetTenant(&context, request, left);
  };
  proto::Tenants left;
  REQUIRE(unset("chat", &left).ok());
  REQUIRE(left.tenants_size() == 1);
  CHECK(left.tenants(0).weight() == 3);
  CHECK(left.tenants(0).memory() == 0);
  REQUIRE(unset("train", &left).ok());
  CHECK(left.tenants_size() == 0);
  CHECK(Tenants(client).tenants_size() == 1);
  const grpc::Status wrong = unset("trian", &left);
  CHECK(wrong.error_code() == grpc::StatusCode::NOT_FOUND);
  CHECK(wrong.error_message() == "tenant trian has no settings; these tenants have some: chat");
}

TEST_CASE("Invalid settings of a tenant are refused with the allowed values, and change nothing") {
  TestDaemon daemon;
  TestClient client(daemon.socket());
  std::vector<proto::TenantSetting> wrong(13);
  for (proto::TenantSetting& setting : wrong) setting.set_name("t");
  wrong[0].set_name("");
  wrong[1].set_name("a b");
  wrong[2].set_tenant_class("royal");
  wrong[3].set_weight(0);
  wrong[4].set_weight(std::numeric_limits<double>::quiet_NaN());
  wrong[5].set_weight(std::numeric_limits<double>::infinity());
  wrong[6].set_sm_percent(101);
  wrong[7].set_min_sms(-1);
  wrong[8].set_max_sms(1'000'000);
  wrong[9].set_min_sms(2);
  wrong[9].set_max_sms(1);
  wrong[10].set_slo_ttft_ns(-1);
  wrong[11].set_slo_latency_ns(std::numeric_limits<int64_t>::max());
  wrong[12].set_devices(2);  // the daemon has one
  for (const proto::TenantSetting& setting : wrong) {
    INFO(setting.ShortDebugString());
    const grpc::Status status = Set(client, setting);
    CHECK(status.error_code() == grpc::StatusCode::INVALID_ARGUMENT);
    CHECK_FALSE(status.error_message().empty());
  }
  CHECK(Tenants(client).tenants_size() == 0);
}

TEST_CASE(
    "A tenant's limits hold for sessions as soon as they are set, and until they are removed") {
  TestDaemon daemon;
  SettingsStore& settings = daemon.daemon->settings();
  const auto opens = [&] {
    TestClient client(daemon.socket());
    client.tenant = "t";
    return client.Open();
  };
  TestClient first(daemon.socket());
  first.tenant = "t";
  REQUIRE(first.Open());
  CHECK(opens());
  const proto::Settings before = settings.current();
  proto::TenantSetting one;
  one.set_name("t");
  one.set_sessions(1);
  REQUIRE(settings.SetTenant(one).ok());
  CHECK_FALSE(opens());
  REQUIRE(settings.Replace(before).ok());
  CHECK(opens());
  proto::Settings limited = before;
  *limited.add_tenants() = one;
  REQUIRE(settings.Replace(limited).ok());
  CHECK_FALSE(opens());
  REQUIRE(settings.Replace(before).ok());
  CHECK(opens());
}

TEST_CASE("A store that knows no devices bounds what it cannot ask a policy about") {
  TenantAccounts accounts(0);
  SettingsStore store({}, accounts, std::numeric_limits<int>::max(), {}, "");
  proto::TenantSetting setting;
  setting.set_name("t");
  setting.set_devices(1000);
  setting.set_weight(999'999);
  CHECK(store.SetTenant(setting).ok());
  setting.set_weight(1'000'001);
  CHECK(absl::IsInvalidArgument(store.SetTenant(setting).status()));
  CHECK(store.current().tenants(0).weight() == 999'999);
}

// A tenant whose SMs, devices and weight no device allows, and one with a limit.
proto::Settings UnfitSettings() {
  proto::Settings settings;
  settings.mutable_policy()->set_name("fair");
  proto::TenantSetting* const bad = settings.add_tenants();
  bad->set_name("bad");
  bad->set_max_sms(65536);
  bad->set_devices(9);
  bad->set_weight(-1);
  bad->set_sessions(7);
  settings.add_tenants()->set_name("no name");
  proto::TenantSetting* const victim = settings.add_tenants();
  victim->set_name("victim");
  victim->set_memory(1 << 20);
  return settings;
}

TEST_CASE("Settings are made to fit the devices field by field, and each change is named") {
  proto::Settings settings = UnfitSettings();
  const std::vector<std::string> lines = FitSettings(132, 2, &settings);
  REQUIRE(lines.size() == 4);
  CHECK(lines[0] == "tenant bad: max_sms 65536 is lowered to 132, the most that is allowed here");
  CHECK(lines[1] == "tenant bad: devices 9 is lowered to 2, the most that is allowed here");
  CHECK(lines[2] == "tenant bad: the weight is above 0, and at most 1000000: weight is left out");
  CHECK_THAT(lines[3], Catch::Contains("no name is left out"));
  REQUIRE(settings.tenants_size() == 2);
  CHECK(settings.tenants(0).max_sms() == 132);
  CHECK(settings.tenants(0).devices() == 2);
  CHECK(settings.tenants(0).sessions() == 7);
  CHECK_FALSE(settings.tenants(0).has_weight());
  CHECK(settings.tenants(1).memory() == 1 << 20);
  CHECK(FitSettings(132, 2, &settings).empty());
  // A lower limit holds where the wanted one has no meaning.
  settings.mutable_tenants(1)->set_memory(std::numeric_limits<uint64_t>::max());
  CHECK(FitSettings(132, 2, &settings).size() == 1);
  CHECK(settings.tenants(1).memory() == uint64_t{1} << 52);
}

TEST_CASE("The log and events name what a change of a tenant sets, and nothing else") {
  proto::TenantSetting change;
  change.set_name("chat");
  CHECK(ChangeText(change).empty());
  change.set_tenant_class("latency");
  change.set_min_sms(32);
  change.set_slo_tpot_ns(30'000'000);
  change.set_memory(uint64_t{20} << 30);
  change.set_sessions(0);
  CHECK(ChangeText(change) ==
        "class latency, sms 32.., slo_tpot 30ms, memory 20GiB, sessions no limit");
}

TEST_CASE("The supervisor's settings hold also where some do not fit, or the policy refuses them") {
  TestDaemon daemon;
  SettingsStore& settings = daemon.daemon->settings();
  const auto allocates = [&] {
    TestClient client(daemon.socket());
    client.tenant = "victim";
    REQUIRE(client.Open());
    return client.Allocate(2 << 20) != 0;
  };
  CHECK(allocates());
  CHECK(settings.Adopt(UnfitSettings()).size() == 3);
  CHECK(settings.current().policy().name() == "fair");
  CHECK(settings.current().tenants(0).max_sms() == daemon.devices[0]->properties().sm_count);
  CHECK_FALSE(allocates());
  CHECK(settings.Adopt(UnfitSettings()).empty());
  // The shares are more than a device has. The limits are in force, and nothing else.
  proto::Settings refused = UnfitSettings();
  refused.mutable_policy()->set_name("static");
  refused.mutable_tenants(0)->set_sm_percent(80);
  refused.mutable_tenants(2)->set_sm_percent(80);
  refused.mutable_tenants(2)->set_memory(4 << 20);
  proto::TenantSetting* const fresh = refused.add_tenants();
  fresh->set_name("fresh");
  fresh->set_sessions(3);
  const std::vector<std::string> changes = settings.Adopt(refused);
  REQUIRE(changes.size() == 2);
  CHECK(changes[0] == "[[tenant]] victim: memory 1MiB -> 4MiB");
  CHECK(changes[1] == "[[tenant]] fresh: is new: sessions no limit -> 3");
  CHECK(settings.current().policy().name() == "fair");
  CHECK(allocates());
}

TEST_CASE("A store without devices refuses tenants that its policy cannot serve") {
  TenantAccounts accounts(0);
  proto::Settings initial;
  initial.mutable_policy()->set_name("static");
  SettingsStore store({}, accounts, std::numeric_limits<int>::max(), initial, "");
  proto::TenantSetting tenant;
  tenant.set_sm_percent(80);
  tenant.set_name("a");
  REQUIRE(store.SetTenant(tenant).ok());
  tenant.set_name("b");
  CHECK(absl::IsInvalidArgument(store.SetTenant(tenant).status()));
  proto::PolicySetting policy;
  policy.set_name("fair");
  REQUIRE(store.SetPolicy(policy).ok());
  REQUIRE(store.SetTenant(tenant).ok());
  policy.set_name("static");
  CHECK(absl::IsInvalidArgument(store.SetPolicy(policy)));
  proto::Settings wanted = store.current();
  *wanted.mutable_policy() = policy;
  CHECK(absl::IsInvalidArgument(store.Replace(wanted).status()));
  CHECK(store.current().policy().name() == "fair");
}

TEST_CASE(
    "Settings that another process refuses are taken back, unless others have changed since") {
  TenantAccounts accounts(0);
  proto::Settings initial;
  initial.mutable_policy()->set_name("fair");
  SettingsStore store({}, accounts, std::numeric_limits<int>::max(), initial, "");
  proto::PolicySetting policy;
  policy.set_name("whole");
  REQUIRE(store.SetPolicy(policy).ok());
  store.TakeBack();
  CHECK(store.current().policy().name() == "fair");
  proto::TenantSetting tenant;
  tenant.set_name("a");
  tenant.set_devices(9);
  REQUIRE(store.SetTenant(tenant).ok());
  store.TakeBack();
  CHECK(store.current().tenants_size() == 0);
  REQUIRE(store.SetTenant(tenant).ok());
  tenant.set_memory(1 << 20);
  REQUIRE(store.SetForEndpoint(1, tenant).ok());
  store.TakeBack();
  REQUIRE(store.current().tenants_size() == 1);
  CHECK(store.current().tenants(0).memory() == 1 << 20);
}

TEST_CASE("Where engines read the file, a change that cannot be written is not in force") {
  TenantAccounts accounts(0);
  TestDirectory directory;
  const std::string file = directory.path + "/settings", in_the_way = file + ".new";
  proto::Settings initial;
  initial.mutable_policy()->set_name("fair");
  SettingsStore store({}, accounts, std::numeric_limits<int>::max(), initial, file);
  const auto written = [&] { return ReadSettings(file)->ShortDebugString(); };
  REQUIRE(store.Keep().ok());
  proto::TenantSetting tenant;
  tenant.set_name("a");
  tenant.set_memory(1 << 20);
  REQUIRE(store.SetForEndpoint(1, tenant).ok());
  const proto::Settings before = store.current();
  // As on a full file system.
  REQUIRE(std::filesystem::create_directory(in_the_way));
  CHECK(store.Keep().ok());  // the file has them
  proto::PolicySetting policy;
  policy.set_name("whole");
  const absl::Status refused = store.SetPolicy(policy);
  CHECK(absl::IsResourceExhausted(refused));
  CHECK_THAT(std::string(refused.message()), Catch::Contains("cannot write " + file));
  tenant.set_name("b");
  CHECK(absl::IsResourceExhausted(store.SetTenant(tenant).status()));
  CHECK(absl::IsResourceExhausted(store.SetForEndpoint(2, tenant).status()));
  CHECK(store.UnsetTenant("a").ok());  // the endpoint keeps it
  proto::Settings wanted = initial;
  *wanted.add_tenants() = tenant;
  CHECK(absl::IsResourceExhausted(store.Replace(wanted).status()));
  CHECK(store.current().ShortDebugString() == before.ShortDebugString());
  CHECK(written() == before.ShortDebugString());
  // A closed endpoint has no settings, and the next change writes that, too.
  REQUIRE(store.UnsetForEndpoint(1).ok());
  CHECK(store.current().tenants_size() == 0);
  CHECK(written() == before.ShortDebugString());
  CHECK(absl::IsResourceExhausted(store.Replace(initial).status()));
  std::filesystem::remove(in_the_way);
  REQUIRE(store.Replace(initial).ok());
  CHECK(written() == initial.ShortDebugString());
  REQUIRE(store.SetForEndpoint(2, tenant).ok());
  CHECK(ReadSettings(file)->tenants(0).memory() == 1 << 20);
}

TEST_CASE("Settings of restored endpoints are in force before the file has them") {
  TenantAccounts accounts(0);
  TestDirectory directory;
  const std::string file = directory.path + "/settings", in_the_way = file + ".new";
  proto::Settings initial;
  initial.mutable_policy()->set_name("fair");
  proto::TenantSetting tenant;
  tenant.set_name("a");
  tenant.set_memory(1 << 20);
  const auto next = [&] {
    auto store = std::make_unique<SettingsStore>(std::vector<DeviceScheduler*>(), accounts,
                                                 std::numeric_limits<int>::max(), initial, file);
    REQUIRE(store->RestoreForEndpoint(1, tenant).ok());
    CHECK(store->current().tenants_size() == 1);
    CHECK_FALSE(store->written());
    return store;
  };
  {
    const auto store = next();
    CHECK_FALSE(std::filesystem::exists(file));
    REQUIRE(store->Keep().ok());
    CHECK(store->written());
    CHECK(ReadSettings(file)->tenants(0).memory() == 1 << 20);
  }
  // As on a full file system.
  REQUIRE(std::filesystem::create_directory(in_the_way));
  {
    const auto same = next();
    CHECK(same->Keep().ok());
    CHECK(same->written());
  }
  tenant.set_memory(2 << 20);
  const auto store = next();
  CHECK(absl::IsResourceExhausted(store->Keep()));
  CHECK_FALSE(store->written());
  CHECK(ReadSettings(file)->tenants(0).memory() == 1 << 20);
  std::filesystem::remove(in_the_way);
  REQUIRE(store->Keep().ok());
  CHECK(ReadSettings(file)->tenants(0).memory() == 2 << 20);
  REQUIRE(store->UnsetForEndpoint(1).ok());
  CHECK(store->current().tenants_size() == 0);
}

TEST_CASE("A policy that one device cannot have is in force on none") {
  TestDaemon daemon({}, 2);
  SettingsStore& settings = daemon.daemon->settings();
  const auto set_percent = [&](const char* name, int percent) {
    proto::TenantSetting tenant;
    tenant.set_name(name);
    tenant.set_sm_percent(percent);
    return settings.SetTenant(tenant).status();
  };
  // Their partitions are not among those that a device has from the beginning.
  REQUIRE(set_percent("a", 25).ok());
  REQUIRE(set_percent("b", 50).ok());
  daemon.devices[1]->makes_partitions = false;
  proto::PolicySetting shares;
  shares.set_name("static");
  CHECK(absl::IsResourceExhausted(settings.SetPolicy(shares)));
  CHECK(settings.current().policy().name() == "auto");
  // A device that still had the policy would refuse more than 100 percent.
  CHECK(set_percent("b", 80).ok());
  daemon.devices[1]->makes_partitions = true;
  REQUIRE(set_percent("b", 50).ok());
  CHECK(settings.SetPolicy(shares).ok());
  CHECK_FALSE(set_percent("b", 80).ok());
}

TEST_CASE("While a device makes a partition, sessions open and the operator gets the status") {
  TestDaemon daemon;
  TestClient operator_client(daemon.socket()), program(daemon.socket());
  proto::TenantSetting tenant;
  // Their partitions are not among those that a device has from the beginning.
  tenant.set_name("a");
  tenant.set_sm_percent(25);
  REQUIRE(Set(operator_client, tenant).ok());
  tenant.set_name("b");
  tenant.set_sm_percent(50);
  REQUIRE(Set(operator_client, tenant).ok());
  InstantDevice& device = *daemon.devices[0];
  device.holds_partitions = true;
  std::atomic<bool> set{false};
  std::thread setting([&] {
    proto::PolicySetting shares;
    shares.set_name("static");
    set = daemon.daemon->settings().SetPolicy(shares).ok();
  });
  while (!device.asked_for_partition) std::this_thread::yield();
  CHECK(program.Open());
  CHECK(StatusOf(operator_client).policy() == "auto");
  CHECK(StatusOf(operator_client).sessions_size() == 1);
  CHECK(Tenants(operator_client).tenants_size() == 2);
  device.holds_partitions = false;
  setting.join();
  CHECK(set);
  CHECK(StatusOf(operator_client).policy() == "static");
}

TEST_CASE("The number of tenants is bounded") {
  TestDaemon daemon;
  TestClient client(daemon.socket());
  proto::TenantSetting setting;
  for (int i = 0; i < SettingsStore::kMaxTenants; ++i) {
    setting.set_name("t" + std::to_string(i));
    REQUIRE(Set(client, setting).ok());
  }
  setting.set_name("one-more");
  CHECK(Set(client, setting).error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED);
  setting.set_name("t7");
  CHECK(Set(client, setting).ok());
}

TEST_CASE("A daemon that replaces another keeps its settings, and a fresh one does not") {
  std::string kept;
  {
    TestDaemon daemon;
    TestClient client(daemon.socket());
    const auto read = [&] {
      std::ifstream file(daemon.directory.path + "/settings");
      kept.assign(std::istreambuf_iterator<char>(file), {});
    };
    REQUIRE(SetPolicy(client, "priority").ok());
    read();
    CHECK_THAT(kept, Catch::Contains("priority"));
    proto::TenantSetting setting;
    setting.set_name("serve");
    setting.set_tenant_class("latency");
    REQUIRE(Set(client, setting).ok());
    read();
  }
  REQUIRE_FALSE(kept.empty());
  const auto started_with = [](const std::string& contents, uint64_t first_session) {
    auto daemon = std::make_unique<TestDaemon>([&](Daemon::Options& options) {
      const std::string directory = std::filesystem::path(options.socket).parent_path().string();
      std::ofstream(directory + "/settings", std::ios::binary) << contents;
      options.server.first_session = first_session;
    });
    return daemon;
  };
  {
    const auto replaced = started_with(kept, 8);
    TestClient client(replaced->socket());
    CHECK(Policies(client).current().name() == "priority");
    REQUIRE(Tenants(client).tenants_size() == 1);
    CHECK(Tenants(client).tenants(0).tenant_class() == "latency");
  }
  {
    // A field that is not valid costs nothing else.
    const auto replaced =
        started_with(kept + "tenants { name: \"x\" weight: -1 memory: 1048576 devices: 9 }", 8);
    TestClient client(replaced->socket());
    CHECK(Policies(client).current().name() == "priority");
    REQUIRE(Tenants(client).tenants_size() == 2);
    CHECK(Tenants(client).tenants(1).weight() == 1);
    CHECK(Tenants(client).tenants(1).memory() == 1 << 20);
    CHECK(Tenants(client).tenants(1).devices() == 9);  // a card may be missing
    proto::TenantSetting change;
    change.set_name("x");
    change.set_weight(2);
    CHECK(Set(client, change).ok());
    CHECK(Tenants(client).tenants(1).devices() == 9);
    change.set_devices(8);
    CHECK_THAT(Set(client, change).error_message(),
               Catch::Contains("0 (all) to 1, which this host has"));
  }
  for (const auto& [contents, first] : {std::pair<std::string, uint64_t>(kept, 1),
                                        std::pair<std::string, uint64_t>("damaged {", 8)}) {
    const auto fresh = started_with(contents, first);
    TestClient client(fresh->socket());
    CHECK(Policies(client).current().name() == "auto");
    CHECK(Tenants(client).tenants_size() == 0);
  }
}

TEST_CASE("Only root, the daemon's own user and members of the admin group may administer") {
  Identity identity;
  Peer peer;
  peer.uid = 0;
  CHECK(identity.MayAdminister(peer).ok());
  peer.uid = geteuid();
  CHECK(identity.MayAdminister(peer).ok());
  peer.uid = geteuid() + 1;
  peer.gid = 70001;
  peer.groups = {70002, 70003};
  CHECK(absl::IsPermissionDenied(identity.MayAdminister(peer)));
  TenantRules rules;
  rules.admins = {70004};
  identity.SetRules(rules);
  CHECK(absl::IsPermissionDenied(identity.MayAdminister(peer)));
  for (const gid_t group : {70001, 70003}) {
    rules.admins = {group};
    identity.SetRules(rules);
    CHECK(identity.MayAdminister(peer).ok());
  }
}

}  // namespace
}  // namespace detshare
