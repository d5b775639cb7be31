// Strict isolation: each user's programs have their own process.
#include "server/strict/trust_domains.h"

#include <sys/stat.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <set>
#include <thread>

#include "coroutine_runtime/status_cuda.h"
#include "server/strict/domain_channel.h"
#include "tests/server/grpc_stubs.h"
#include "tests/server/strict_daemon.h"

namespace detshare {
namespace {

void Fault(TestClient& client) {
  client.CreateStream(1);
  const KernelId kernel = client.GetKernel(client.Load(kFaultPtx), "fault");
  REQUIRE(kernel != 0);
  client.ring->Send(Op::cuLaunchKernelEx, client.LaunchOf(kernel, 1));
}

TEST_CASE("Programs of different users have separate processes and do not see each other") {
  if (!IsRoot()) return;
  StrictDaemon daemon;
  TestClient root(daemon.socket());
  const auto a = As(kSomebody, daemon), b = As(kSomebody, daemon), c = As(kSomebodyElse, daemon);
  REQUIRE(root.Open());
  REQUIRE(a->Open());
  REQUIRE(b->Open());
  REQUIRE(c->Open());
  CHECK(a->directory.find("/domains/54321/sessions/") != std::string::npos);
  const proto::Status of_a = StatusOf(*a), of_b = StatusOf(*b), of_c = StatusOf(*c);
  CHECK(of_a.pid() == of_b.pid());
  CHECK(of_a.pid() != of_c.pid());
  CHECK(of_a.sessions_size() == 2);
  CHECK(of_c.sessions_size() == 1);
  CHECK(of_c.domain() == "54322");
  CHECK(of_c.domains_size() == 0);
  // Root sees all domains, and administers a domain at its own socket.
  const proto::Status of_root = StatusOf(root);
  REQUIRE(of_root.domains_size() == 3);
  CHECK(of_root.domains(1).uid() == kSomebody);
  CHECK(of_root.domains(1).sessions() == 2);
  TestClient inside(of_root.domains(1).socket());
  CHECK(StatusOf(inside).pid() == of_a.pid());
  CHECK(StatusOf(inside).sessions_size() == 2);
  // Memory that one domain has taken does not concern the other.
  CHECK(a->Allocate(200 << 20) != 0);
  CHECK(c->Allocate(200 << 20) != 0);
  // No other user reaches a domain's socket.
  struct stat status;
  REQUIRE(stat(of_root.domains(1).socket().c_str(), &status) == 0);
  CHECK((status.st_mode & 0777) == 0600);
  CHECK(status.st_uid == 0);
}

std::set<uint64_t> SessionsOf(const proto::Status& status) {
  std::set<uint64_t> sessions;
  for (const proto::SessionStatus& session : status.sessions()) sessions.insert(session.session());
  return sessions;
}

grpc::Status End(TestClient& client, const proto::EndSessionsRequest& request,
                 proto::EndedSessions* ended) {
  grpc::ClientContext context;
  return AdminOf(client)->EndSessions(&context, request, ended);
}

TEST_CASE("Administrators see the sessions and tenants of all users, and others see their own") {
  if (!IsRoot()) return;
  StrictDaemon daemon;
  TestClient root(daemon.socket());
  const auto a = As(kSomebody, daemon), b = As(kSomebodyElse, daemon);
  a->request.set_tenant("chat");
  b->request.set_tenant("chat");
  REQUIRE(a->Open());
  REQUIRE(b->Open());
  REQUIRE(root.Open());
  CHECK(a->Allocate(3 << 20) != 0);
  CHECK(b->Allocate(5 << 20) != 0);
  // No two sessions have the same number, whichever user they belong to.
  const std::set<uint64_t> all = {a->grant.session(), b->grant.session(), root.grant.session()};
  CHECK(all.size() == 3);
  const proto::Status of_root = StatusOf(root);
  CHECK(SessionsOf(of_root) == all);
  for (const proto::TenantUse& tenant : of_root.tenants()) {
    if (tenant.name() != "chat") continue;
    CHECK(tenant.sessions_used() == 2);
    CHECK(tenant.memory_used(0) >= 8 << 20);
  }
  CHECK(SessionsOf(StatusOf(*a)) == std::set<uint64_t>{a->grant.session()});
  // The status names a domain that does not reply, and shows the others.
  const pid_t silent = StatusOf(*a).pid();
  kill(silent, SIGSTOP);
  const proto::Status without = StatusOf(root);
  kill(silent, SIGCONT);
  CHECK(SessionsOf(without) == std::set<uint64_t>{b->grant.session(), root.grant.session()});
  REQUIRE(without.domains_size() == 3);
  CHECK(without.domains(1).problem() != "");
  CHECK(without.domains(1).sessions() == 1);
  CHECK(without.domains(2).problem() == "");
}

TEST_CASE("Administrators may end sessions of any user, all that are named or none") {
  if (!IsRoot()) return;
  StrictDaemon daemon;
  TestClient root(daemon.socket());
  const auto a = As(kSomebody, daemon), b = As(kSomebodyElse, daemon);
  a->request.set_tenant("chat");
  REQUIRE(a->Open());
  REQUIRE(b->Open());
  REQUIRE(root.Open());
  proto::EndSessionsRequest request;
  proto::EndedSessions ended;
  request.add_sessions(a->grant.session());
  request.add_sessions(9999);
  CHECK(End(root, request, &ended).error_code() == grpc::StatusCode::NOT_FOUND);
  // Other users do not learn that such a session exists. The daemon does not believe the name that
  // they give.
  request.mutable_sessions()->RemoveLast();
  request.set_by("somebody");
  CHECK(End(*b, request, &ended).error_code() == grpc::StatusCode::NOT_FOUND);
  CHECK(a->ring->header().closed.load() == 0);
  request.add_sessions(root.grant.session());
  REQUIRE(End(root, request, &ended).ok());
  CHECK(ended.sessions_size() == 2);
  const auto end = a->AwaitEnd();
  REQUIRE(end.has_value());
  CHECK(end->reason().find("ended by uid 0") != std::string::npos);
  CHECK(root.AwaitEnd().has_value());
  // All sessions of a tenant, in whichever domain they are.
  const auto c = As(kSomebody, daemon), d = As(kSomebodyElse, daemon);
  c->request.set_tenant("chat");
  d->request.set_tenant("chat");
  REQUIRE(c->Open());
  REQUIRE(d->Open());
  request.Clear();
  request.set_tenant("chat");
  ended.Clear();
  REQUIRE(End(root, request, &ended).ok());
  CHECK(ended.sessions_size() == 2);
  CHECK(c->AwaitEnd().has_value());
  CHECK(d->AwaitEnd().has_value());
  CHECK(b->ring->header().closed.load() == 0);
  CHECK(Eventually([&] { return SessionsOf(StatusOf(root)).size() == 1; }));
  CHECK(End(root, request, &ended).error_code() == grpc::StatusCode::NOT_FOUND);
}

TEST_CASE("Limits of sessions hold for all users together, and an ended session makes room") {
  if (!IsRoot()) return;
  TestDirectory configuration;
  const std::string file = configuration.path + "/detshare.toml";
  std::ofstream(file) << "[daemon]\nmax_sessions = 3\n[[tenant]]\nname = \"chat\"\nsessions = 2\n"
                         "memory = \"1GiB\"\n";
  chmod(file.c_str(), 0600);
  StrictDaemon daemon({"--config", file, "--soft-lose-device-on-fault"});
  CHECK(
      daemon.Log().find("limits of memory hold for each user by itself: tenants that several users "
                        "may be can have more in all (chat)") != std::string::npos);
  const auto open = [&](uid_t user, const std::string& tenant) {
    auto client = As(user, daemon);
    client->request.set_tenant(tenant);
    const bool opened = client->Open();
    if (!opened) CHECK(client->status().error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED);
    return opened ? std::move(client) : nullptr;
  };
  auto a = open(kSomebody, "chat"), b = open(kSomebodyElse, "chat");
  REQUIRE(a != nullptr);
  REQUIRE(b != nullptr);
  CHECK(open(kSomebodyElse, "chat") == nullptr);
  CHECK(open(0, "chat") == nullptr);
  auto other = open(kSomebodyElse, "other");
  REQUIRE(other != nullptr);
  CHECK(open(kSomebody, "another") == nullptr);
  SECTION("when a session ends") {
    b.reset();
    CHECK(Eventually([&] { return open(kSomebody, "chat") != nullptr; }));
  }
  SECTION("when a process is lost") {
    Fault(*a);
    a->AwaitEnd();
    CHECK(Eventually([&] { return open(kSomebodyElse, "chat") != nullptr; }));
  }
  SECTION("when the configuration allows more") {
    std::ofstream(file)
        << "[daemon]\nmax_sessions = 9\n[[tenant]]\nname = \"chat\"\nsessions = 4\n";
    kill(daemon.pid, SIGHUP);
    std::unique_ptr<TestClient> third;
    CHECK(Eventually([&] { return (third = open(kSomebodyElse, "chat")) != nullptr; }));
  }
}

TEST_CASE("A device that one user's program loses leaves the others' programs alone") {
  if (!IsRoot()) return;
  StrictDaemon daemon({"--soft-lose-device-on-fault"});
  const auto guilty = As(kSomebody, daemon), innocent = As(kSomebodyElse, daemon);
  REQUIRE(guilty->Open());
  REQUIRE(innocent->Open());
  const pid_t lost = StatusOf(*guilty).pid();
  Fault(*guilty);
  guilty->AwaitEnd();
  CHECK(guilty->ring->header().sticky_error.load() == kCudaErrorIllegalAddress);
  CHECK(Eventually([&] { return kill(lost, 0) != 0; }));
  CHECK(innocent->ring->header().closed.load() == 0);
  innocent->CreateStream(1);
  CHECK(innocent->Synchronize(1) == 0);
  CHECK(innocent->Allocate(4096) != 0);
  // The user gets another process at its next connection.
  REQUIRE(Eventually([&] { return As(kSomebody, daemon)->Open(); }));
}

TEST_CASE("An idle process ends, and no connection is lost by that") {
  StrictDaemon daemon({"--domain-idle-ms", "20"});
  const std::string domain = daemon.DomainOf(geteuid());
  REQUIRE(Eventually([&] { return !std::filesystem::exists(domain); }));
  for (int i = 0; i < 20; ++i) {
    // Some clients come while the domain begins, some while it ends.
    std::this_thread::sleep_for(std::chrono::milliseconds(5 * i));
    TestClient client(daemon.socket());
    const bool opened = client.Open();
    INFO(daemon.Log());
    REQUIRE(opened);
    client.CreateStream(1);
    CHECK(client.Synchronize(1) == 0);
  }
  CHECK(Eventually([&] { return !std::filesystem::exists(domain); }));
}

TEST_CASE("A process with a connection does not end, with or without a session") {
  StrictDaemon daemon({"--domain-idle-ms", "1"});
  TestClient client(daemon.socket());
  const pid_t domain = StatusOf(client).pid();
  for (int i = 0; i < 20; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    // gRPC reconnects by itself and then reaches another process.
    REQUIRE(StatusOf(client).pid() == domain);
  }
}

TEST_CASE("All processes end with the daemon") {
  StrictDaemon daemon;
  TestClient client(daemon.socket());
  REQUIRE(client.Open());
  const pid_t domain = StatusOf(client).pid();
  SECTION("when it is asked to end") {
    kill(daemon.pid, SIGTERM);
    const auto ended = client.AwaitEnd();
    REQUIRE(ended.has_value());
    CHECK(ended->result() == kCudaErrorSystemNotReady);
    const int status = daemon.Wait();
    CHECK(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 0);
    CHECK_FALSE(std::filesystem::exists(daemon.socket()));
    CHECK_FALSE(std::filesystem::exists(daemon.directory.path + "/domains"));
  }
  SECTION("when it is killed") {
    kill(daemon.pid, SIGKILL);
    daemon.Wait();
    client.AwaitEnd();
  }
  CHECK(Eventually([&] { return kill(domain, 0) != 0; }));
}

TEST_CASE("Missing directories are made, and no user can look into another's") {
  TestDirectory other;
  StrictDaemon daemon({"--runtime-dir", other.path + "/run"});
  TestClient client(daemon.socket());
  const std::string directory = other.path + "/run/domains/" + std::to_string(geteuid());
  CHECK(StatusOf(client).domain() != "");
  for (const std::string& closed : {other.path + "/run/domains", directory}) {
    struct stat status;
    REQUIRE(stat(closed.c_str(), &status) == 0);
    CHECK((status.st_mode & 0777) == 0711);
  }
}

TEST_CASE("Silent and invalid connections do not delay others") {
  StrictDaemon daemon;
  std::vector<int> silent;
  for (int i = 0; i < 600; ++i) {
    const int fd = ConnectTo(daemon.socket());
    if (fd < 0) continue;
    if (i % 3 == 0) {
      close(fd);
      continue;
    }
    if (i % 3 == 1) (void)!write(fd, "GET / HTTP/1.1\r\n\r\n", 18);
    silent.push_back(fd);
  }
  TestClient client(daemon.socket());
  CHECK(client.Open());
  for (const int fd : silent) close(fd);
}

TEST_CASE("A user's process that cannot start is not started again and again") {
  TestDirectory directory;
  const std::string socket = directory.path + "/s";
  const absl::StatusOr<int> listener = ListenOn(socket, 0600);
  REQUIRE(listener.ok());
  TrustDomains::Options options;
  options.command = {"false"};
  options.program = "/bin/false";
  options.listen_fd = *listener;
  TrustDomains domains(options);
  const auto connected = [&] {
    const int fd = ConnectTo(socket);
    domains.Proceed();
    return fd;
  };
  const int first = connected();
  CHECK(domains.size() == 1);
  REQUIRE(Eventually([&] {
    domains.Proceed();
    return domains.size() == 0;
  }));
  const int second = connected();
  CHECK(domains.size() == 0);
  char byte;
  CHECK(read(second, &byte, 1) == 0);
  close(first);
  close(second);
  CHECK(domains.End(std::chrono::milliseconds(0)));
  close(*listener);
}

TEST_CASE("An offer to end counts the connections that were received") {
  const absl::StatusOr<DomainChannel> channel = MakeDomainChannel();
  REQUIRE(channel.ok());
  CHECK_FALSE(TakeConnection(channel->domain).any);
  CHECK_FALSE(TakeOffer(channel->acceptor).has_value());
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  REQUIRE(PassConnection(channel->acceptor, ends[1]).ok());
  close(ends[1]);
  const Received received = TakeConnection(channel->domain);
  REQUIRE(received.connection >= 0);
  CHECK(write(received.connection, "x", 1) == 1);
  char byte = 0;
  CHECK(read(ends[0], &byte, 1) == 1);
  CHECK(byte == 'x');
  OfferToEnd(channel->domain, 1);
  CHECK(TakeOffer(channel->acceptor) == std::optional<uint64_t>(1));
  close(channel->acceptor);
  CHECK(TakeConnection(channel->domain).end);
  close(received.connection);
  close(ends[0]);
  close(channel->domain);
}

}  // namespace
}  // namespace detshare
