// Operators' calls: events, ending sessions, and which users may make which call.
#include <grp.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include <catch2/catch.hpp>
#include <thread>

#include "coroutine_runtime/status_cuda.h"
#include "server/sessions/session_manager.h"
#include "tests/server/daemon_fixture.h"
#include "tests/server/grpc_stubs.h"

namespace detshare {
namespace {

constexpr uid_t kAlice = 70001, kBob = 70002, kCarol = 70003;
constexpr gid_t kAdmins = 80001;

// A connection of another user. The system calls change the credentials of one thread only.
int ConnectAs(const std::string& path, uid_t uid, std::vector<gid_t> groups) {
  int fd = -1;
  std::thread([&] {
    const bool changed = syscall(SYS_setgroups, groups.size(), groups.data()) == 0 &&
                         syscall(SYS_setresgid, -1, uid, -1) == 0 &&
                         syscall(SYS_setresuid, -1, uid, -1) == 0;
    if (changed) fd = ConnectTo(path);
  }).join();
  return fd;
}

struct Fixture {
  Fixture() : daemon([](Daemon::Options& options) { options.tenant_rules.admins = {kAdmins}; }) {
    chmod(daemon.directory.path.c_str(), 0755);
  }
  std::unique_ptr<TestClient> As(uid_t uid, std::vector<gid_t> groups = {}) {
    return std::make_unique<TestClient>(daemon.socket(), ConnectAs(daemon.socket(), uid, groups));
  }
  std::unique_ptr<TestClient> Root() { return std::make_unique<TestClient>(daemon.socket()); }

  TestDaemon daemon;
};

// Only root can take other users' identities.
bool NotTested() {
  if (geteuid() == 0) return false;
  WARN("not tested: only root takes other users");
  return true;
}

grpc::StatusCode End(TestClient& client, std::vector<uint64_t> sessions,
                     const std::string& tenant = "", proto::EndedSessions* ended = nullptr) {
  proto::EndSessionsRequest request;
  request.mutable_sessions()->Add(sessions.begin(), sessions.end());
  request.set_tenant(tenant);
  grpc::ClientContext context;
  proto::EndedSessions scratch;
  return AdminOf(client)
      ->EndSessions(&context, request, ended != nullptr ? ended : &scratch)
      .error_code();
}

proto::Events EventsOf(TestClient& client, uint64_t log = 0, uint64_t first = 0) {
  proto::GetEventsRequest request;
  request.set_log(log);
  request.set_first(first);
  grpc::ClientContext context;
  proto::Events events;
  REQUIRE(AdminOf(client)->GetEvents(&context, request, &events).ok());
  return events;
}

// The latest event of a kind. Its number is 0 if there is none.
proto::Event Last(TestClient& client, const std::string& kind) {
  const proto::Events events = EventsOf(client);
  proto::Event last;
  for (const proto::Event& event : events.events()) {
    if (event.kind() == kind) last = event;
  }
  return last;
}

TEST_CASE("A killed session's client learns who ended it, its calls end, and the others go on") {
  Fixture f;
  TestClient victim(f.daemon.socket()), survivor(f.daemon.socket());
  REQUIRE(victim.Open());
  REQUIRE(survivor.Open());
  proto::EndedSessions ended;
  CHECK(End(survivor, {victim.grant.session()}, "", &ended) == grpc::StatusCode::OK);
  REQUIRE(ended.sessions_size() == 1);
  CHECK(ended.sessions(0) == victim.grant.session());
  const std::optional<proto::Ended> told = victim.AwaitEnd();
  REQUIRE(told.has_value());
  CHECK(told->result() == kCudaErrorNotPermitted);
  CHECK(told->reason().find("ended by uid ") == 0);
  survivor.CreateStream(1);
  CHECK(survivor.Synchronize(1) == 0);
  CHECK(Last(survivor, "killed").session() == victim.grant.session());
  CHECK(Last(survivor, "killed").text().find("operations") != std::string::npos);
  CHECK(Eventually(
      [&] { return End(survivor, {victim.grant.session()}) == grpc::StatusCode::NOT_FOUND; }));
}

TEST_CASE("All named sessions are ended or none, and an invalid request ends none") {
  Fixture f;
  TestClient client(f.daemon.socket());
  client.tenant = "t";
  REQUIRE(client.Open());
  const uint64_t id = client.grant.session();
  CHECK(End(client, {}) == grpc::StatusCode::INVALID_ARGUMENT);
  CHECK(End(client, {id}, "t") == grpc::StatusCode::INVALID_ARGUMENT);
  CHECK(End(client, {id, id + 1000}) == grpc::StatusCode::NOT_FOUND);
  CHECK(End(client, {0}) == grpc::StatusCode::NOT_FOUND);
  CHECK(End(client, {}, "t\n\xff") != grpc::StatusCode::OK);
  CHECK(End(client, {}, "nobody") == grpc::StatusCode::NOT_FOUND);
  client.CreateStream(1);
  CHECK(client.Synchronize(1) == 0);
  // A session that is named twice is ended once.
  CHECK(End(client, {id, id}) == grpc::StatusCode::OK);
}

TEST_CASE("Users may end their own sessions, admins and root any session") {
  if (NotTested()) return;
  Fixture f;
  const auto alice = f.As(kAlice), bob = f.As(kBob), other_alice = f.As(kAlice),
             admin = f.As(kCarol, {5, kAdmins});
  for (TestClient* client : {alice.get(), bob.get(), other_alice.get()}) {
    client->tenant = "shared";
    REQUIRE(client->Open());
  }
  const uint64_t a = alice->grant.session(), b = bob->grant.session(),
                 a2 = other_alice->grant.session();
  CHECK(End(*alice, {b}) == grpc::StatusCode::PERMISSION_DENIED);
  // Not all of the tenant's sessions belong to alice.
  CHECK(End(*alice, {}, "shared") == grpc::StatusCode::PERMISSION_DENIED);
  CHECK(End(*alice, {a2, b}) == grpc::StatusCode::PERMISSION_DENIED);
  other_alice->CreateStream(1);
  CHECK(other_alice->Synchronize(1) == 0);
  CHECK(End(*alice, {a2}) == grpc::StatusCode::OK);
  CHECK(Eventually([&] { return f.daemon.daemon->manager().Find(a2) == nullptr; }));
  CHECK(End(*admin, {b}) == grpc::StatusCode::OK);
  CHECK(End(*f.Root(), {a}) == grpc::StatusCode::OK);
}

TEST_CASE("Only admins and root may make calls that change something for all") {
  if (NotTested()) return;
  Fixture f;
  const auto all = [](TestClient& client) {
    std::vector<grpc::StatusCode> codes;
    const auto add = [&](auto call) {
      grpc::ClientContext context;
      codes.push_back(call(&context).error_code());
    };
    proto::PolicySetting policy, policy_in_force;
    policy.set_name("fair");
    proto::TenantSetting tenant, tenant_in_force;
    tenant.set_name("t");
    proto::TraceStarted started;
    add([&](auto* context) {
      return AdminOf(client)->SetPolicy(context, policy, &policy_in_force);
    });
    add([&](auto* context) {
      return AdminOf(client)->SetTenant(context, tenant, &tenant_in_force);
    });
    add([&](auto* context) { return AdminOf(client)->StartTrace(context, {}, &started); });
    proto::FetchTraceRequest fetch;
    fetch.set_trace(started.trace());
    fetch.set_last(true);
    proto::TraceChunk chunk;
    add([&](auto* context) { return AdminOf(client)->FetchTrace(context, fetch, &chunk); });
    return codes;
  };
  const auto reload = [](TestClient& client) {
    grpc::ClientContext context;
    proto::Reloaded reloaded;
    return AdminOf(client)->Reload(&context, {}, &reloaded).error_code();
  };
  const auto alice = f.As(kAlice, {5, 6}), admin = f.As(kCarol, {kAdmins});
  for (const grpc::StatusCode code : all(*alice))
    CHECK(code == grpc::StatusCode::PERMISSION_DENIED);
  CHECK(reload(*alice) == grpc::StatusCode::PERMISSION_DENIED);
  CHECK(EventsOf(*alice).events_size() == 1);  // the start of the daemon
  for (const grpc::StatusCode code : all(*admin)) CHECK(code == grpc::StatusCode::OK);
  // Without a file there is nothing to read.
  CHECK(reload(*admin) == grpc::StatusCode::FAILED_PRECONDITION);
  const proto::Event noted = Last(*alice, "policy");
  CHECK(noted.uid() == kCarol);
  CHECK(noted.text() == "fair");
}

TEST_CASE("Only root loads code into the daemon") {
  if (NotTested()) return;
  Fixture f;
  proto::PolicySetting policy, in_force;
  policy.set_name("/nowhere/policy.so");
  const auto set = [&](TestClient& client) {
    grpc::ClientContext context;
    return AdminOf(client)->SetPolicy(&context, policy, &in_force).error_code();
  };
  CHECK(set(*f.As(kCarol, {kAdmins})) == grpc::StatusCode::PERMISSION_DENIED);
  const grpc::StatusCode root = set(*f.Root());
  CHECK(root != grpc::StatusCode::OK);
  CHECK(root != grpc::StatusCode::PERMISSION_DENIED);
}

TEST_CASE("Events report how sessions begin and end, and can be followed by number") {
  Fixture f;
  TestClient watcher(f.daemon.socket());
  const proto::Events before = EventsOf(watcher);
  REQUIRE(before.events_size() == 1);
  CHECK(before.events(0).kind() == "started");

  TestClient quiet(f.daemon.socket());
  quiet.tenant = "serve";
  REQUIRE(quiet.Open());
  CHECK(Last(watcher, "opened").tenant() == "serve");
  CHECK(Last(watcher, "opened").program() == "test program");
  quiet.Close();
  CHECK(Eventually([&] { return Last(watcher, "ended").session() == quiet.grant.session(); }));

  TestClient refused(f.daemon.socket());
  refused.tenant = "not a name\n";
  CHECK_FALSE(refused.Open());
  CHECK(Last(watcher, "refused").text().find("a tenant's name") == 0);

  TestClient guilty(f.daemon.socket());
  REQUIRE(guilty.Open());
  guilty.CreateStream(1);
  const KernelId kernel = guilty.GetKernel(guilty.Load(), "fault");
  guilty.ring->Send(Op::cuLaunchKernelEx, guilty.LaunchOf(kernel, 1));
  CHECK(Eventually([&] { return Last(watcher, "fault").session() == guilty.grant.session(); }));

  TestClient hostile(f.daemon.socket());
  REQUIRE(hostile.Open());
  hostile.ring->Send(static_cast<Op>(0xFFF0), wire::cuStreamSynchronize{});
  CHECK(
      Eventually([&] { return Last(watcher, "violation").session() == hostile.grant.session(); }));

  const proto::Events after = EventsOf(watcher, before.log(), before.next());
  CHECK(after.log() == before.log());
  REQUIRE(after.events_size() >= 7);
  CHECK(after.events(0).number() == before.next());
  CHECK(after.next() == before.next() + static_cast<uint64_t>(after.events_size()));
  // With another daemon's number, the reply has all events.
  CHECK(EventsOf(watcher, before.log() + 1, after.next()).events_size() ==
        after.events_size() + before.events_size());
}

}  // namespace
}  // namespace detshare
