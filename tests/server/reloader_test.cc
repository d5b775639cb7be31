// Reads the configuration again while sessions run.
#include "server/reloader.h"

#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <fstream>

#include "absl/strings/str_join.h"
#include "policy/config/config_file.h"
#include "proto/admin.pb.h"
#include "proto/control.pb.h"
#include "server/access/identity.h"
#include "server/base/event_log.h"
#include "server/base/logging.h"
#include "server/daemon_options.h"
#include "server/services/settings_store.h"
#include "server/sessions/session_manager.h"
#include "tests/server/daemon_fixture.h"
#include "tests/server/instant_device.h"

namespace detshare {
namespace {

// Does what LoadConfig() does.
absl::StatusOr<Config> Parsed(const std::string& text) {
  ParsedConfig parsed = ParseConfig(text);
  if (!parsed.problems.empty())
    return absl::InvalidArgumentError(ProblemText("file", parsed.problems));
  return std::move(parsed.config);
}

struct Fixture {
  explicit Fixture(const std::string& first = "", int devices = 1)
      : text(first),
        daemon(
            [&](Daemon::Options& options) {
              BackendOptions backend;
              const std::string socket = options.socket;
              const AddressWindows windows = options.server.windows;
              ApplyConfig(*Parsed(first), &options, &backend);
              options.socket = socket;
              options.server.windows = windows;
            },
            devices),
        reloader(
            *Parsed(first), [this] { return Parsed(text); }, *daemon.daemon) {}
  ~Fixture() { SetLogLevel(LogLevel::kError); }

  Reloader::Report Reload(const std::string& with) {
    text = with;
    const absl::StatusOr<Reloader::Report> report = reloader.Reload("a test");
    INFO(report.status());
    REQUIRE(report.ok());
    return *report;
  }

  std::string text;
  TestDaemon daemon;
  Reloader reloader;
};

bool Has(const std::vector<std::string>& lines, const std::string& line) {
  return std::find(lines.begin(), lines.end(), line) != lines.end();
}

constexpr char kBusy[] = R"(
[daemon]
log_level = "warning"
backend = "soft"
[policy]
name = "priority"
[limits]
streams = 3
[[tenant]]
name = "chat"
class = "latency"
slo_tpot = "40ms"
users = [70001]
)";

TEST_CASE("A reload applies what can change, and reports the changes and what needs a restart") {
  Fixture f;
  const Reloader::Report report = f.Reload(kBusy);
  INFO(absl::StrJoin(report.changed, "\n"));
  CHECK(Has(report.changed, "[daemon] log_level: \"info\" -> \"warning\""));
  CHECK(Has(report.changed, "[policy]: auto -> priority"));
  CHECK(Has(report.changed, "[limits] streams: 16384 -> 3"));
  CHECK(
      Has(report.changed, "[[tenant]] chat: is new: class unset -> latency, slo_tpot 0ns -> 40ms"));
  CHECK(Has(report.changed, "who may be which tenant"));
  CHECK(report.restart == std::vector<std::string>{"[daemon] backend: \"auto\" -> \"soft\""});
  const proto::Settings in_force = f.daemon.daemon->settings().current();
  CHECK(in_force.policy().name() == "priority");
  REQUIRE(in_force.tenants_size() == 1);
  CHECK(in_force.tenants(0).slo_tpot_ns() == 40'000'000);
  CHECK_FALSE(LogEnabled(LogLevel::kInfo));

  // A second reload changes nothing. Settings that need a restart are still reported.
  const Reloader::Report again = f.Reload(kBusy);
  CHECK(again.changed.empty());
  CHECK(again.restart.size() == 1);
  // Back to the first configuration.
  const Reloader::Report back = f.Reload("");
  CHECK(Has(back.changed, "[policy]: priority -> auto"));
  CHECK(Has(back.changed, "[[tenant]] chat: is removed"));
  CHECK(back.restart.empty());
  CHECK(f.daemon.daemon->settings().current().tenants_size() == 0);
}

TEST_CASE("A reload decides anew who may administer the daemon") {
  Fixture f;
  Peer peer;
  peer.uid = geteuid() + 1;
  peer.gid = 70001;
  const auto may = [&] { return f.daemon.daemon->identity().MayAdminister(peer).ok(); };
  CHECK_FALSE(may());
  f.Reload("[daemon]\nadmin_group = \"70001\"\n");
  CHECK(may());
  f.Reload("");
  CHECK_FALSE(may());
}

TEST_CASE("A file with any mistake changes nothing") {
  Fixture f(kBusy);
  for (const std::string& wrong :
       {std::string("[daemon"), std::string("[daemon]\nlog_level = \"loud\"\n"),
        std::string("[daemon]\nunknown = 1\n"),
        // Correct in itself, but not for these devices.
        std::string("[policy]\nname = \"fair\"\n[[tenant]]\nname = \"x\"\nsms = \"1..1000000\"\n"),
        // Correct until the policy sees all tenants.
        std::string("[policy]\nname = \"static\"\n[[tenant]]\nname = \"a\"\nsm_percent = "
                    "80\n[[tenant]]\nname = \"b\"\nsm_percent = 80\n")}) {
    INFO(wrong);
    f.text = wrong;
    CHECK_FALSE(f.reloader.Reload("a test").ok());
    const proto::Settings in_force = f.daemon.daemon->settings().current();
    CHECK(in_force.policy().name() == "priority");
    REQUIRE(in_force.tenants_size() == 1);
    CHECK(in_force.tenants(0).name() == "chat");
  }
  CHECK(f.Reload(kBusy).changed.empty());
}

TEST_CASE("An engine takes over the supervisor's settings, whatever else they have") {
  Fixture f;
  TestDirectory directory;
  const std::string file = directory.path + "/settings";
  Reloader engine(
      *Parsed(""), [] { return Parsed(kBusy); }, *f.daemon.daemon, file);
  std::ofstream(file) << "policy { name: \"fair\" }\n"
                         "tenants { name: \"bad\" max_sms: 65536 devices: 9 }\n"
                         "tenants { name: \"victim\" memory: 1048576 }\n";
  // The supervisor has the event of a reload.
  const auto reloads = [&] {
    const auto events = f.daemon.daemon->manager().events().Latest(EventLog::kMax).events;
    return std::count_if(events.begin(), events.end(), [](const DaemonEvent& event) {
      return event.kind == DaemonEvent::Kind::kConfiguration;
    });
  };
  REQUIRE(engine.Reload("a test").ok());
  CHECK(reloads() == 0);
  proto::Settings in_force = f.daemon.daemon->settings().current();
  CHECK(in_force.policy().name() == "fair");
  REQUIRE(in_force.tenants_size() == 2);
  CHECK(in_force.tenants(0).devices() == 1);
  CHECK(in_force.tenants(1).memory() == 1 << 20);
  CHECK(engine.Reload("a test")->changed.empty());
  // What cannot be read changes nothing.
  std::ofstream(file) << "damaged {";
  CHECK_FALSE(engine.Reload("a test").ok());
  CHECK(reloads() == 1);
  CHECK(f.daemon.daemon->settings().current().tenants_size() == 2);
}

TEST_CASE("After a reload the configuration holds, whatever was set before") {
  Fixture f(kBusy);
  proto::PolicySetting fair;
  fair.set_name("fair");
  REQUIRE(f.daemon.daemon->settings().SetPolicy(fair).ok());
  proto::TenantSetting setting;
  setting.set_name("chat");
  setting.set_weight(7);
  REQUIRE(f.daemon.daemon->settings().SetTenant(setting).ok());
  const Reloader::Report report = f.Reload(kBusy);
  CHECK(report.changed ==
        std::vector<std::string>{"[policy]: fair -> priority", "[[tenant]] chat: weight 7 -> 1"});
}

TEST_CASE("A new placement decides about later sessions") {
  const std::string one = "[tenant_defaults]\ndevices = 1\n[policy]\nplacement = ";
  Fixture f(one + "\"best-fit\"\n", 3);
  f.daemon.devices[1]->used = 10 << 20;
  const auto device_of = [&](const std::string& run) {
    TestClient client(f.daemon.socket());
    client.request.set_run(run);
    REQUIRE(client.Open());
    REQUIRE(client.grant.devices_size() == 1);
    return static_cast<int>(client.grant.devices(0).uuid()[15]);
  };
  CHECK(device_of("a") == 1);
  CHECK(f.Reload(one + "\"round-robin\"\n").changed ==
        std::vector<std::string>{"[policy] placement: \"best-fit\" -> \"round-robin\""});
  // It goes on behind the device that was given last.
  CHECK(device_of("b") == 2);
  CHECK(device_of("a") == 1);
  CHECK(device_of("c") == 0);
  CHECK(f.Reload(one + "\"round-robin\"\n").changed.empty());
  CHECK(device_of("d") == 1);
  // Without a limit a tenant gets all devices. One tenant never gets more than the host has.
  f.Reload("");
  TestClient all(f.daemon.socket());
  REQUIRE(all.Open());
  CHECK(all.grant.devices_size() == 3);
  f.text = "[[tenant]]\nname = \"x\"\ndevices = 4\n";
  const absl::Status wrong = f.reloader.Reload("a test").status();
  CHECK_THAT(std::string(wrong.message()), Catch::Contains("to 3, which this host has"));
}

TEST_CASE("Limits hold for later sessions, and running sessions keep theirs") {
  Fixture f;
  TestClient before(f.daemon.socket());
  REQUIRE(before.Open());
  f.Reload("[limits]\nstreams = 3\n");
  TestClient after(f.daemon.socket());
  REQUIRE(after.Open());
  const auto max = [](TestClient& client) {
    StreamId stream = 1;
    wire::cuStreamCreateWithPriority args{};
    args.context = 1;
    for (; stream <= 10; ++stream) {
      args.stream = stream;
      client.ring->Send(Op::cuStreamCreateWithPriority, args);
      if (client.Synchronize(stream) != 0) break;
    }
    return stream - 1;
  };
  CHECK(max(before) == 10);
  CHECK(max(after) <= 3);
}

}  // namespace
}  // namespace detshare
