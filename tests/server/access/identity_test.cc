// Which users may be which tenant, and how the configuration sets the daemon's options.
#include "server/access/identity.h"

#include <grp.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <catch2/catch.hpp>
#include <future>

#include "policy/config/config_file.h"
#include "proto/preamble.h"
#include "server/base/logging.h"
#include "server/daemon_options.h"
#include "tests/server/daemon_fixture.h"

namespace detshare {
namespace {

Peer PeerOf(uid_t uid, gid_t gid, std::vector<gid_t> groups = {}) {
  Peer peer;
  peer.uid = uid;
  peer.gid = gid;
  peer.groups = std::move(groups);
  return peer;
}

TenantRules Rules(const std::string& text) {
  const ParsedConfig parsed = ParseConfig(text);
  REQUIRE(parsed.problems.empty());
  return ResolveTenantRules(parsed.config);
}

constexpr char kTenants[] = R"(
[[tenant]]
name = "chat"
users = [70001]
[[tenant]]
name = "train"
groups = [80001]
[[tenant]]
name = "anybody"
[[tenant]]
name = "nobody"
users = ["a-user-that-does-not-exist"]
)";

TEST_CASE(
    "Without rules a user may be any tenant, and is the tenant of the user's name by default") {
  const Identity identity;
  CHECK(*identity.TenantName("x", PeerOf(70001, 70001)) == "x");
  CHECK(*identity.TenantName("", PeerOf(70001, 70001)) == "uid-70001");
  CHECK(*identity.TenantName("", PeerOf(0, 0)) == "root");
  for (const std::string& name : {std::string("a b"), std::string(65, 'a'), std::string("a/b"),
                                  std::string("a\nb"), std::string("\xc3\xa4")}) {
    CHECK(identity.TenantName(name, PeerOf(70001, 70001)).status().code() ==
          absl::StatusCode::kInvalidArgument);
  }
}

TEST_CASE("Only the named users and groups, and root, may be a tenant that names them") {
  SetLogLevel(LogLevel::kError);
  Identity identity;
  identity.SetRules(Rules(kTenants));
  const auto may = [&](const std::string& tenant, const Peer& peer) {
    return identity.TenantName(tenant, peer).ok();
  };
  const Peer user = PeerOf(70001, 70001), member = PeerOf(70002, 80001),
             other_member = PeerOf(70003, 70003, {1, 80001}), other = PeerOf(70004, 70004, {80002});
  CHECK(may("chat", user));
  CHECK_FALSE(may("chat", member));
  CHECK(may("train", member));
  CHECK(may("train", other_member));
  CHECK_FALSE(may("train", user));
  CHECK_FALSE(may("train", other));
  CHECK(may("anybody", other));
  CHECK(may("unlisted", other));
  for (const Peer& peer : {user, member, other}) CHECK_FALSE(may("nobody", peer));
  for (const char* tenant : {"chat", "train", "nobody", "anybody"})
    CHECK(may(tenant, PeerOf(0, 0)));
  CHECK_THAT(std::string(identity.TenantName("chat", other).status().message()),
             Catch::Contains("may not be tenant chat"));
}

TEST_CASE(
    "The default tenant is the first that names the user, then the group, then the user's name") {
  SetLogLevel(LogLevel::kError);
  Identity identity;
  identity.SetRules(Rules(kTenants));
  CHECK(*identity.TenantName("", PeerOf(70001, 80001)) == "chat");
  CHECK(*identity.TenantName("", PeerOf(70002, 70002, {80001})) == "train");
  CHECK(*identity.TenantName("", PeerOf(70004, 70004)) == "uid-70004");
}

TEST_CASE("The set of tenants can be restricted to those of the configuration, at any time") {
  SetLogLevel(LogLevel::kError);
  Identity identity;
  CHECK(identity.TenantName("", PeerOf(70004, 70004)).ok());
  identity.SetRules(Rules(std::string("[daemon]\nunlisted_tenants = \"refuse\"\n") + kTenants));
  const absl::Status refused = identity.TenantName("", PeerOf(70004, 70004)).status();
  CHECK(absl::IsPermissionDenied(refused));
  CHECK_THAT(std::string(refused.message()),
             Catch::Contains("70004 has no tenant") && Catch::Contains("--tenant"));
  CHECK_FALSE(identity.TenantName("unlisted", PeerOf(70001, 70001)).ok());
  CHECK(identity.TenantName("anybody", PeerOf(70004, 70004)).ok());
  CHECK(identity.TenantName("", PeerOf(70001, 70001)).ok());
}

TEST_CASE("The kernel names the groups of the connecting user") {
  if (geteuid() != 0) {
    WARN("not tested: only root can take other groups");
    return;
  }
  TestDirectory directory;
  const std::string path = directory.path + "/d.sock";
  const absl::StatusOr<int> listening = ListenOn(path, 0666);
  REQUIRE(listening.ok());
  REQUIRE(chmod(directory.path.c_str(), 0755) == 0);
  for (const size_t count : {size_t{0}, size_t{3}, size_t{1000}}) {
    PeerTable peers;
    std::promise<int> accepted;
    const Identity identity;
    Acceptor acceptor(*listening, peers, identity, [&](int fd) { accepted.set_value(fd); });
    const pid_t pid = fork();
    if (pid == 0) {
      std::vector<gid_t> groups;
      for (size_t i = 0; i < count; ++i) groups.push_back(static_cast<gid_t>(5000 + i));
      const bool changed =
          setgroups(groups.size(), groups.data()) == 0 && setgid(4000) == 0 && setuid(3000) == 0;
      const int fd = ConnectTo(path);
      const Preamble preamble = MakePreamble("");
      (void)!write(fd, &preamble, sizeof(preamble));
      char byte;
      _exit(!changed ? 2 : fd >= 0 && read(fd, &byte, 1) == 0 ? 0 : 1);
    }
    const int fd = accepted.get_future().get();
    const absl::StatusOr<Peer> peer = peers.Find("fd:" + std::to_string(fd));
    close(fd);
    int status = 0;
    waitpid(pid, &status, 0);
    if (WEXITSTATUS(status) == 2) {
      WARN("not tested: no other groups can be taken here");
      break;
    }
    CHECK(status == 0);
    REQUIRE(peer.ok());
    CHECK(peer->uid == 3000);
    CHECK(peer->gid == 4000);
    REQUIRE(peer->groups.size() == count);
    if (count > 0) CHECK(peer->groups.back() == 5000 + count - 1);
  }
  close(*listening);
}

TEST_CASE("The configuration's defaults are the daemon's defaults") {
  Daemon::Options daemon;
  BackendOptions backend;
  ApplyConfig(Config(), &daemon, &backend);
  const Daemon::Options plain;
  const SessionLimits &is = daemon.server.limits, &was = plain.server.limits;
  CHECK(daemon.socket_mode == plain.socket_mode);
  CHECK(is.contexts == was.contexts);
  CHECK(is.streams == was.streams);
  CHECK(is.events == was.events);
  CHECK(is.libraries == was.libraries);
  CHECK(is.kernels == was.kernels);
  CHECK(is.arrays == was.arrays);
  CHECK(is.image_objects == was.image_objects);
  CHECK(is.graphs == was.graphs);
  CHECK(is.image_bytes == was.image_bytes);
  CHECK(is.graph_bytes == was.graph_bytes);
  CHECK(daemon.server.policy == plain.server.policy);
  CHECK(daemon.server.image_store_bytes == plain.server.image_store_bytes);
  const BackendOptions plain_backend;
  CHECK(backend.backend == plain_backend.backend);
  CHECK(backend.cuda_sm_group == plain_backend.cuda_sm_group);
  CHECK(backend.preemption == plain_backend.preemption);
  CHECK(backend.soft_devices == plain_backend.soft_devices);
  CHECK(backend.soft_sms == plain_backend.soft_sms);
  CHECK(backend.soft_memory == plain_backend.soft_memory);
  CHECK(backend.soft_cc == plain_backend.soft_cc);
}

TEST_CASE(
    "Every isolation has preemption, and the engine of a tenant has a program's connections") {
  for (const char* const preemption : {"auto", "off"}) {
    for (const char* const isolation : {"none", "user", "tenant", "group"}) {
      Config config;
      config.preemption = preemption;
      config.isolation = isolation;
      Daemon::Options daemon;
      BackendOptions backend;
      ApplyConfig(config, &daemon, &backend);
      CHECK(backend.preemption == (preemption == std::string("auto")));
      CHECK(backend.cuda_connections == (isolation == std::string("tenant")
                                             ? CudaOptions::kUsualConnections
                                             : CudaOptions::kMostConnections));
    }
  }
}

TEST_CASE("Staging and spinning depend on the backend unless the configuration decides") {
  Config config;
  ServerOptions server;
  ApplyConfigOfBackend(config, "cuda", &server);
  CHECK(server.region.staging_bytes == 64 << 20);
  ApplyConfigOfBackend(config, "soft", &server);
  CHECK(server.region.staging_bytes == 16 << 20);
  config.staging_mib = 3;
  config.spin_us = 0;
  config.client_spin_us = 7;
  ApplyConfigOfBackend(config, "cuda", &server);
  CHECK(server.region.staging_bytes == 3 << 20);
  CHECK(server.spin_us == 0);
  CHECK(server.client_spin_us == 7);
}

}  // namespace
}  // namespace detshare
