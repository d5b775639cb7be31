// Programs of different isolation groups have engines of their own.
#include "server/engines/engines.h"

#include <signal.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "coroutine_runtime/status_cuda.h"
#include "proto/version.h"
#include "server/access/acceptor.h"
#include "server/engines/admission_channel.h"
#include "server/engines/engine_channel.h"
#include "server/engines/engine_list.h"
#include "server/engines/engine_pages.h"
#include "server/engines/engine_process.h"
#include "tests/server/grpc_stubs.h"
#include "tests/server/supervised_daemon.h"
#include "tests/test_file.h"

namespace detshare {
namespace {

void Fault(TestClient& client) {
  client.CreateStream(1);
  const KernelId kernel = client.GetKernel(client.Load(kFaultPtx), "fault");
  REQUIRE(kernel != 0);
  client.ring->Send(Op::cuLaunchKernelEx, client.LaunchOf(kernel, 1));
}

TEST_CASE("Programs of different users have separate engines and do not see each other") {
  if (!IsRoot()) return;
  SupervisedDaemon daemon({"--swap-memory", "0"});
  TestClient root(daemon.socket()), admin(daemon.socket());
  const auto a = As(kSomebody, daemon), b = As(kSomebody, daemon), c = As(kSomebodyElse, daemon);
  REQUIRE(root.Open());
  REQUIRE(a->Open());
  REQUIRE(b->Open());
  REQUIRE(c->Open());
  CHECK(a->directory.find("/engines/user:54321/sessions/") != std::string::npos);
  const proto::Status of_a = StatusOf(*a), of_b = StatusOf(*b), of_c = StatusOf(*c);
  CHECK(of_a.pid() == of_b.pid());
  CHECK(ReadTestFile(absl::StrCat("/proc/", of_a.pid(), "/comm")) == "detshare-engine\n");
  CHECK(of_a.pid() != of_c.pid());
  CHECK(of_a.sessions_size() == 2);
  CHECK(of_c.sessions_size() == 1);
  REQUIRE(of_c.engines_size() == 1);
  CHECK(of_c.engines(0).group() == "user:54322");
  // Root sees all engines, and administers an engine at its own socket.
  const proto::Status of_root = StatusOf(admin);
  REQUIRE(of_root.engines_size() == 3);
  CHECK(of_root.pid() == daemon.pid);
  CHECK(of_root.devices_size() == 1);
  CHECK(of_root.engines(1).group() == "user:54321");
  CHECK(of_root.engines(1).pid() == of_a.pid());
  CHECK(of_root.engines(1).version() == of_root.version());
  CHECK(of_root.engines(1).devices_size() == 1);
  CHECK(of_root.engines(1).sessions() == 2);
  TestClient inside(of_root.engines(1).socket());
  CHECK(StatusOf(inside).pid() == of_a.pid());
  CHECK(StatusOf(inside).sessions_size() == 2);
  // The card of 256 MB is that of all engines.
  CHECK(a->Allocate(100 << 20) != 0);
  CHECK(c->Allocate(100 << 20) != 0);
  CHECK(c->Allocate(100 << 20) == 0);
  // No other user reaches an engine's socket.
  struct stat status;
  REQUIRE(stat(of_root.engines(1).socket().c_str(), &status) == 0);
  CHECK((status.st_mode & 0777) == 0600);
  CHECK(status.st_uid == 0);
}

TEST_CASE("Programs in several engines get the devices that have the least to do") {
  const std::string placement = GENERATE("workload-aware", "round-robin");
  INFO(placement);
  SupervisedDaemon daemon({"--soft-devices", "3", "--placement", placement}, "tenant");
  std::set<std::string> uuids;
  std::vector<std::unique_ptr<TestClient>> programs;
  for (const char* const tenant : {"a", "b", "c"}) {
    programs.push_back(Program(daemon, tenant));
    programs.back()->request.set_device_count(1);
    REQUIRE(programs.back()->Open());
    REQUIRE(programs.back()->grant.devices_size() == 1);
    uuids.insert(programs.back()->grant.devices(0).uuid());
  }
  CHECK(uuids.size() == 3);
  // The device of a program that has ended is free again.
  const std::string free = programs[1]->grant.devices(0).uuid();
  programs.erase(programs.begin() + 1);
  if (placement == "round-robin") return;
  TestClient admin(daemon.socket());
  REQUIRE(Eventually([&] { return StatusOf(admin).sessions_size() == 2; }));
  const auto next = Program(daemon, "d");
  next->request.set_device_count(1);
  REQUIRE(next->Open());
  CHECK(next->grant.devices(0).uuid() == free);
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
  SupervisedDaemon daemon;
  TestClient root(daemon.socket()), admin(daemon.socket());
  const auto a = As(kSomebody, daemon), b = As(kSomebodyElse, daemon);
  a->tenant = "chat";
  b->tenant = "chat";
  REQUIRE(a->Open());
  REQUIRE(b->Open());
  REQUIRE(root.Open());
  CHECK(a->Allocate(3 << 20) != 0);
  CHECK(b->Allocate(5 << 20) != 0);
  // No two sessions have the same number, whichever user they belong to.
  const std::set<uint64_t> all = {a->grant.session(), b->grant.session(), root.grant.session()};
  CHECK(all.size() == 3);
  const proto::Status of_root = StatusOf(admin);
  CHECK(SessionsOf(of_root) == all);
  for (const proto::TenantUse& tenant : of_root.tenants()) {
    if (tenant.name() != "chat") continue;
    CHECK(tenant.sessions_used() == 2);
    CHECK(tenant.memory_used(0) >= 8 << 20);
  }
  const proto::Status own = StatusOf(*As(kSomebody, daemon));
  CHECK(SessionsOf(own) == std::set<uint64_t>{a->grant.session()});
  CHECK(own.engines_size() == 1);
  CHECK(own.tenants_size() == 1);
  // The status names an engine that does not reply, and shows the others.
  const pid_t silent = StatusOf(*a).pid();
  Freeze(silent);
  const proto::Status without = StatusOf(admin);
  kill(silent, SIGCONT);
  CHECK(SessionsOf(without) == std::set<uint64_t>{b->grant.session(), root.grant.session()});
  REQUIRE(without.engines_size() == 3);
  CHECK(without.engines(1).problem() != "");
  CHECK(without.engines(1).sessions() == 1);
  CHECK(without.engines(2).problem() == "");
}

TEST_CASE("Every user sees how much memory of the card is in use, and not whose it is") {
  if (!IsRoot()) return;
  SupervisedDaemon daemon;
  const auto a = As(kSomebody, daemon), onlooker = As(kSomebodyElse, daemon);
  REQUIRE(a->Open());
  REQUIRE(a->Allocate(100 << 20) != 0);
  // On an overloaded machine the engine may reply too late for one status.
  proto::Status status;
  CHECK(Eventually([&] {
    status = StatusOf(*onlooker);
    return status.devices_size() == 1 && status.devices(0).used_memory() >= 100 << 20;
  }));
  CHECK(status.sessions_size() == 0);
  CHECK(status.engines_size() == 0);
  REQUIRE(status.devices_size() == 1);
  CHECK(status.devices(0).partitions_size() == 0);
}

TEST_CASE("Administrators may end sessions of any user, all that are named or none") {
  if (!IsRoot()) return;
  SupervisedDaemon daemon;
  TestClient root(daemon.socket()), admin(daemon.socket());
  const auto a = As(kSomebody, daemon), b = As(kSomebodyElse, daemon);
  a->tenant = "chat";
  REQUIRE(a->Open());
  REQUIRE(b->Open());
  REQUIRE(root.Open());
  proto::EndSessionsRequest request;
  proto::EndedSessions ended;
  request.add_sessions(a->grant.session());
  request.add_sessions(9999);
  CHECK(End(admin, request, &ended).error_code() == grpc::StatusCode::NOT_FOUND);
  // Other users do not learn that such a session exists. The daemon does not believe the name that
  // they give.
  request.mutable_sessions()->RemoveLast();
  request.set_by("somebody");
  CHECK(End(*As(kSomebodyElse, daemon), request, &ended).error_code() ==
        grpc::StatusCode::NOT_FOUND);
  CHECK(a->ring->header().closed.load() == 0);
  request.add_sessions(root.grant.session());
  REQUIRE(End(admin, request, &ended).ok());
  CHECK(ended.sessions_size() == 2);
  const auto end = a->AwaitEnd();
  REQUIRE(end.has_value());
  CHECK(end->reason().find("ended by uid 0") != std::string::npos);
  CHECK(root.AwaitEnd().has_value());
  REQUIRE(Eventually([&] { return SessionsOf(StatusOf(admin)).size() == 1; }));
  // All sessions of a tenant, in whichever engine they are.
  const auto c = As(kSomebody, daemon), d = As(kSomebodyElse, daemon);
  c->tenant = "chat";
  d->tenant = "chat";
  REQUIRE(c->Open());
  REQUIRE(d->Open());
  request.Clear();
  request.set_tenant("chat");
  ended.Clear();
  REQUIRE(End(admin, request, &ended).ok());
  CHECK(ended.sessions_size() == 2);
  CHECK(c->AwaitEnd().has_value());
  CHECK(d->AwaitEnd().has_value());
  CHECK(b->ring->header().closed.load() == 0);
  CHECK(Eventually([&] { return SessionsOf(StatusOf(admin)).size() == 1; }));
  CHECK(End(admin, request, &ended).error_code() == grpc::StatusCode::NOT_FOUND);
}

TEST_CASE("Limits of sessions hold for all users together, and an ended session makes room") {
  if (!IsRoot()) return;
  TestDirectory configuration;
  const std::string file = configuration.path + "/detshare.toml";
  std::ofstream(file) << "[daemon]\nmax_sessions = 3\n[[tenant]]\nname = \"chat\"\nsessions = 2\n"
                         "memory = \"1GiB\"\n";
  chmod(file.c_str(), 0600);
  SupervisedDaemon daemon({"--config", file, "--soft-lose-device-on-fault"});
  const auto open = [&](uid_t user, const std::string& tenant) {
    auto client = As(user, daemon);
    client->tenant = tenant;
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
  SECTION("when a process is killed") {
    kill(StatusOf(*a).pid(), SIGKILL);
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

TEST_CASE("Limits of memory hold for all users together, and across supervisors") {
  if (!IsRoot()) return;
  TestDirectory configuration;
  const std::string file = configuration.path + "/detshare.toml";
  std::ofstream(file) << "[[tenant]]\nname = \"chat\"\nmemory = \"100MiB\"\n";
  chmod(file.c_str(), 0600);
  SupervisedDaemon daemon({"--config", file});
  const auto open = [&](uid_t user) {
    auto client = As(user, daemon);
    client->tenant = "chat";
    REQUIRE(client->Open());
    return client;
  };
  auto one = open(kSomebody);
  const auto other = open(kSomebodyElse);
  REQUIRE(StatusOf(*one).pid() != StatusOf(*other).pid());
  CHECK(one->Allocate(60 << 20) != 0);
  int result = 0;
  CHECK(other->Allocate(60 << 20, &result) == 0);
  CHECK(result == kCudaErrorOutOfMemory);
  CHECK(other->Allocate(30 << 20) != 0);
  SECTION("when the supervisor is another one") {
    daemon.Kill();
    daemon.Start();
    // It knows the tenants of engines that it has adopted.
    const auto third = open(0);
    CHECK(Eventually([&] {
      const uint64_t memory = third->Allocate(20 << 20);
      if (memory != 0) third->ring->Call(Op::cuMemFree_v2, wire::cuMemFree_v2{memory});
      return memory == 0;
    }));
    CHECK(third->Allocate(8 << 20) != 0);
  }
  SECTION("when an engine is killed") {
    kill(StatusOf(*one).pid(), SIGKILL);
    one->AwaitEnd();
    CHECK(Eventually([&] { return other->Allocate(60 << 20) != 0; }));
  }
}

TEST_CASE("A device that one user's program loses leaves the others' programs alone") {
  if (!IsRoot()) return;
  SupervisedDaemon daemon({"--soft-lose-device-on-fault"});
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
  // The user gets another engine at its next connection.
  REQUIRE(Eventually([&] { return As(kSomebody, daemon)->Open(); }));
}

TEST_CASE("An idle engine ends, and no connection is lost by that") {
  SupervisedDaemon daemon({"--engine-idle-ms", "20"});
  const std::string engine = daemon.DirectoryOf("user:" + std::to_string(geteuid()));
  REQUIRE(Eventually([&] { return !std::filesystem::exists(engine); }));
  for (int i = 0; i < 20; ++i) {
    // Some clients come while the engine begins, some while it ends.
    std::this_thread::sleep_for(std::chrono::milliseconds(5 * i));
    TestClient client(daemon.socket());
    const bool opened = client.Open();
    INFO(daemon.Log());
    REQUIRE(opened);
    client.CreateStream(1);
    CHECK(client.Synchronize(1) == 0);
  }
  CHECK(Eventually([&] { return !std::filesystem::exists(engine); }));
}

TEST_CASE("An engine with a connection does not end, with or without a session") {
  SupervisedDaemon daemon({"--engine-idle-ms", "1"});
  TestClient client(daemon.socket());
  client.ClientChannel();
  const pid_t engine = StatusOf(client).pid();
  for (int i = 0; i < 20; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    // gRPC reconnects by itself and then reaches another process.
    REQUIRE(StatusOf(client).pid() == engine);
  }
}

TEST_CASE("Missing directories are made, and no user can look into another's") {
  TestDirectory other;
  SupervisedDaemon daemon({}, "user", other.path + "/run");
  TestClient client(daemon.socket());
  const std::string directory = other.path + "/run/engines/user:" + std::to_string(geteuid());
  client.ClientChannel();
  CHECK(StatusOf(client).engines_size() == 1);
  for (const std::string& closed : {other.path + "/run/engines", directory}) {
    struct stat status;
    REQUIRE(stat(closed.c_str(), &status) == 0);
    CHECK((status.st_mode & 0777) == 0711);
  }
}

TEST_CASE("Silent and invalid connections do not delay others") {
  SupervisedDaemon daemon;
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

TEST_CASE("An engine that cannot start is not started again and again, and its clients learn why") {
  TestDirectory directory;
  std::vector<std::pair<int, std::string>> refused;
  Engines::Options options;
  options.command = {"false"};
  options.program = "/bin/false";
  options.runtime_directory = directory.path;
  options.refuse = [&](const ClientConnection& connection, const absl::Status& why) {
    refused.emplace_back(connection.fd, why.message());
  };
  Engines engines(options);
  engines.Pass("chat", {dup(0), "chat", nullptr});
  CHECK(engines.size() == 1);
  REQUIRE(Eventually([&] {
    engines.Proceed();
    return engines.size() == 0;
  }));
  engines.Pass("chat", {dup(0), "chat", nullptr});
  CHECK(engines.size() == 0);
  // The first connection may have been refused as well, if the engine ended before it got it.
  REQUIRE_FALSE(refused.empty());
  CHECK(refused.back().second.find("the engine of isolation group chat ended soon") == 0);
  // Other groups are not affected.
  engines.Pass("train", {dup(0), "train", nullptr});
  CHECK(engines.size() == 1);
  for (const auto& [connection, why] : refused) close(connection);
}

TEST_CASE("Connections that wait for engines have a bound over all groups") {
  TestDirectory directory;
  std::vector<std::string> refused;
  Engines::Options options;
  // These processes take no connections.
  options.command = {"sh", "-c", "exec sleep 1000"};
  options.program = "/bin/sh";
  options.runtime_directory = directory.path;
  options.max_waiting = 2;
  options.refuse = [&](const ClientConnection& connection, const absl::Status& why) {
    close(connection.fd);
    refused.push_back(connection.tenant + ": " + std::string(why.message()));
  };
  Engines engines(options);
  std::vector<int> programs;
  for (const std::string group : {"a", "b", "c"}) {
    int ends[2];
    REQUIRE(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    programs.push_back(ends[0]);
    engines.Pass(group, {ends[1], group, nullptr});
  }
  REQUIRE(refused.size() == 1);
  CHECK(refused[0] == "c: too many programs wait for engines: try again in a moment");
  for (const int program : programs) close(program);
}

// This process is the engine of group chat, whose supervisor has ended.
struct OwnEngine {
  explicit OwnEngine(const std::string& runtime_directory) {
    const std::string directory = EngineDirectory(runtime_directory, "chat");
    std::filesystem::create_directories(directory);
    proto::EngineList list;
    proto::ListedEngine& listed = *list.add_engines();
    listed.set_group("chat");
    listed.set_directory("chat");
    listed.set_pid(getpid());
    listed.set_start_time(StartTimeOf(getpid()).value());
    listed.set_version(kVersion);
    listed.set_protocol(kEngineProtocol);
    list.set_next_session(100);
    REQUIRE(WriteEngineList(EngineListFile(EnginesDirectory(runtime_directory)), list).ok());
    const EngineChannel channel = MakeEngineChannel().value();
    member = EngineMember::Create(channel.engine, pages->fd(), directory, std::chrono::minutes(1))
                 .value();
    close(channel.supervisor);
  }
  ~OwnEngine() {
    if (admission >= 0) close(admission);
  }
  void Proceed() {
    member->Proceed(
        [&](const Received& received) {
          if (received.connection.has_value()) {
            ++connections;
            close(received.connection->fd);
          }
          if (received.admission >= 0) admission = received.admission;
          if (received.files >= 0) close(received.files);
          if (received.peer.has_value()) close(received.peer->page);
        },
        [] { return true; });
  }

  int admission = -1;
  const std::unique_ptr<EnginePages> pages = *EnginePages::Create();
  std::unique_ptr<EngineMember> member;
  int connections = 0;  // that it has got
};

// An engine of group chat that does not serve yet.
struct StartingEngine {
  TestDirectory directory;
  const std::string own = EngineDirectory(directory.path, "chat");
  const bool made = std::filesystem::create_directories(own);
  const EngineChannel channel = MakeEngineChannel().value();
  const std::unique_ptr<EnginePages> pages = *EnginePages::Create();
  const std::unique_ptr<EnginePages> other = *EnginePages::Create();
  const std::unique_ptr<EngineMember> member =
      EngineMember::Create(channel.engine, pages->fd(), own, std::chrono::minutes(1)).value();
};

TEST_CASE_METHOD(
    StartingEngine,
    "An engine knows the others before it begins, and loses no message that comes meanwhile") {
  REQUIRE(PassClosedEndpoint(channel.supervisor, 5).ok());
  REQUIRE(PassPeer(channel.supervisor, 77, other->fd()).ok());
  REQUIRE(PassPeers(channel.supervisor, {{77}, {}}).ok());
  REQUIRE(PassClosedEndpoint(channel.supervisor, 6).ok());
  int peers = 0;
  member->AwaitPeers(
      [&](const Received& received) {
        ++peers;
        if (received.peer.has_value()) REQUIRE(pages->Add(77, received.peer->page).ok());
      },
      std::chrono::minutes(1));
  CHECK(peers == 2);
  CHECK(pages->peers().used == 1);
  CHECK(member->timeout() == 0);
  std::vector<uint64_t> closed;
  REQUIRE(member->Proceed(
      [&](const Received& received) { closed.push_back(received.closed_endpoint.value_or(0)); },
      [] { return true; }));
  CHECK(closed == std::vector<uint64_t>{5, 6});
  CHECK(member->timeout() > 0);
  close(channel.supervisor);
}

TEST_CASE_METHOD(StartingEngine,
                 "An engine that begins learns of others that come and go meanwhile") {
  const int stop = eventfd(0, EFD_CLOEXEC);
  std::atomic<int> added{0}, kept{0};
  std::thread learns([&] {
    member->TakePeers(
        [&](const Received& received) {
          added += received.peer.has_value() && pages->Add(77, received.peer->page).ok();
          kept += received.peers.has_value();
        },
        stop);
  });
  REQUIRE(PassPeers(channel.supervisor, {}).ok());
  while (kept == 0) std::this_thread::yield();
  REQUIRE(PassClosedEndpoint(channel.supervisor, 5).ok());
  REQUIRE(PassPeer(channel.supervisor, 77, other->fd()).ok());
  while (added == 0) std::this_thread::yield();
  CHECK(pages->peers().used == 1);
  SECTION("and Proceed() gets the other messages") {}
  SECTION("and Proceed() sees that the supervisor has ended") { close(channel.supervisor); }
  REQUIRE(eventfd_write(stop, 1) == 0);
  learns.join();
  std::vector<uint64_t> closed;
  REQUIRE(member->Proceed(
      [&](const Received& received) { closed.push_back(received.closed_endpoint.value_or(0)); },
      [] { return true; }));
  CHECK(closed == std::vector<uint64_t>{5});
  close(stop);
}

TEST_CASE_METHOD(StartingEngine, "An engine whose supervisor ends does not wait for others") {
  close(channel.supervisor);
  member->AwaitPeers([](const Received&) { FAIL("no peer was sent"); }, std::chrono::minutes(9));
  CHECK(member->Proceed([](const Received&) { FAIL("nothing was sent"); }, [] { return true; }));
  CHECK(member->supervisor() == -1);
}

TEST_CASE("Connections wait until an adopted engine says whether work of ended sessions runs") {
  TestDirectory directory;
  OwnEngine engine(directory.path);
  engine.member->Report(EndedWork::kRuns);

  Engines::Options options;
  options.runtime_directory = directory.path;
  options.refuse = [](const ClientConnection& connection, const absl::Status&) {
    close(connection.fd);
  };
  Engines engines(options);
  engines.Adopt();
  const auto proceed = [&] {
    engine.Proceed();
    engines.Proceed();
  };
  engines.Pass("chat", {dup(0), "chat", nullptr});
  for (int i = 0; i < 3; ++i) proceed();
  CHECK(engine.connections == 0);
  engine.member->Report(EndedWork::kNone);
  for (int i = 0; i < 3; ++i) proceed();
  CHECK(engine.connections == 1);
  // The destructor would end this process.
  engines.Release(std::chrono::milliseconds(0));
}

TEST_CASE(
    "Files of sessions are removed only once an adopted engine has told which sessions go on") {
  namespace fs = std::filesystem;
  TestDirectory directory;
  OwnEngine engine(directory.path);
  Engines::Options options;
  options.runtime_directory = directory.path;
  // The list of the supervisor before says that the first session of this one has the number 100.
  std::map<std::string, uint64_t> directories;
  for (const uint64_t session : {1, 2, 100}) {
    const std::string path = directory.path + "/" + std::to_string(session);
    fs::create_directory(path);
    directories[path] = session;
  }
  const auto exists = [&](const std::string& name) { return fs::exists(directory.path + name); };
  int asked = 0;
  options.session_directories = [&] {
    ++asked;
    return directories;
  };
  Engines engines(options);
  engines.Adopt();
  for (int i = 0; i < 10; ++i) {
    engine.Proceed();
    engines.Proceed();
  }
  CHECK(asked == 0);
  REQUIRE(engine.admission >= 0);
  // The engine has session 1 from the supervisor before.
  const EngineChannel before = MakeEngineChannel().value();
  AdmissionChannel admission(before.engine, std::chrono::seconds(60));
  std::thread supervisor([&] {
    std::optional<AdmissionRequest> question;
    while (!question.has_value()) question = TakeAdmissionRequest(before.supervisor);
    SendAdmissionReply(before.supervisor, question->question, {SessionBook::Outcome::kEnter, 1});
  });
  CHECK(admission.Enter("chat").session == 1);
  supervisor.join();
  close(before.supervisor);
  admission.Replace(std::exchange(engine.admission, -1));
  for (int i = 0; i < 10; ++i) engines.Proceed();
  CHECK(asked == 1);
  CHECK(exists("/1"));
  CHECK_FALSE(exists("/2"));
  CHECK(exists("/100"));
  // The destructor would end this process.
  engines.Release(std::chrono::milliseconds(0));
}

TEST_CASE("Engines that take no connections do not keep others from getting theirs") {
  TestDirectory directory;
  OwnEngine engine(directory.path);
  std::vector<std::string> refused;
  RunningEngines running;
  Engines::Options options;
  // Other engines are processes that take no connections.
  options.command = {"sh", "-c", "exec sleep 1000"};
  options.program = "/bin/sh";
  options.runtime_directory = directory.path;
  options.max_waiting = 4;
  options.running = &running;
  options.refuse = [&](const ClientConnection& connection, const absl::Status& why) {
    close(connection.fd);
    refused.push_back(connection.tenant + ": " + std::string(why.message()));
  };
  Engines engines(options);
  engines.Adopt();
  std::vector<int> programs;
  const auto pass = [&](const std::string& group) {
    int ends[2];
    REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
    programs.push_back(ends[0]);
    engines.Pass(group, {ends[1], group, nullptr});
  };
  // The adopted engine has said all when it gets the first one.
  pass("chat");
  REQUIRE(Eventually([&] {
    engine.Proceed();
    engines.Proceed();
    return engine.connections == 1;
  }));
  for (const char* const group : {"silent", "silent", "silent", "begins", "begins", "late"})
    pass(group);
  REQUIRE(refused.size() == 2);
  CHECK(refused[0] == "silent: too many programs wait for the engine of isolation group silent");
  CHECK(refused[1] == "late: too many programs wait for engines: try again in a moment");
  pass("chat");
  engine.Proceed();
  CHECK(engine.connections == 2);
  // A program that waits no more makes room.
  close(std::exchange(programs[1], -1));
  pass("late");
  CHECK(refused.size() == 2);
  for (const int program : programs) {
    if (program >= 0) close(program);
  }
  // The destructor would end this process.
  engines.Release(std::chrono::milliseconds(0));
  for (const EngineInfo& one : running.All()) {
    if (one.pid == getpid()) continue;
    kill(one.pid, SIGKILL);
    waitpid(one.pid, nullptr, 0);
  }
}

TEST_CASE("Pages travel in both directions, and nobody keeps a descriptor that is not one") {
  const absl::StatusOr<EngineChannel> channel = MakeEngineChannel();
  REQUIRE(channel.ok());
  const auto pages = *EnginePages::Create();
  REQUIRE(ReportPage(channel->engine, pages->fd()).ok());
  const std::optional<Reported> reported = TakeReport(channel->supervisor);
  REQUIRE(reported.has_value());
  CHECK(IsSealedPage(reported->page));
  REQUIRE(PassPeer(channel->supervisor, 77, reported->page).ok());
  close(reported->page);
  const Received peer = TakeMessage(channel->engine);
  REQUIRE(peer.peer.has_value());
  CHECK(peer.peer->pid == 77);
  CHECK(IsSealedPage(peer.peer->page));
  close(peer.peer->page);
  ReportWantsRoom(channel->engine);
  CHECK(TakeReport(channel->supervisor).value().wants_room);
  REQUIRE(PassLookForRoom(channel->supervisor).ok());
  CHECK(TakeMessage(channel->engine).look_for_room);
  REQUIRE(PassPeers(channel->supervisor, {{77, 78}, {78}}).ok());
  const Received all = TakeMessage(channel->engine);
  REQUIRE(all.peers.has_value());
  CHECK(all.peers->pids == std::vector<pid_t>{77, 78});
  CHECK(all.peers->spares == std::vector<pid_t>{78});
  REQUIRE(PassPeers(channel->supervisor, {}).ok());
  const Received none = TakeMessage(channel->engine);
  REQUIRE(none.peers.has_value());
  CHECK(none.peers->pids.empty());
  close(channel->supervisor);
  close(channel->engine);
}

TEST_CASE("A message carries a connection with its tenant and its endpoint, and an offer counts") {
  const absl::StatusOr<EngineChannel> channel = MakeEngineChannel();
  REQUIRE(channel.ok());
  CHECK_FALSE(TakeMessage(channel->engine).any);
  CHECK_FALSE(TakeReport(channel->supervisor).has_value());
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  TestDirectory directory;
  auto endpoint = std::make_shared<TenantEndpoint>();
  endpoint->number = 7;
  endpoint->name = "box";
  endpoint->device_ids = {"1", "GPU-x"};
  endpoint->sessions_fd = open(directory.path.c_str(), O_PATH | O_DIRECTORY);
  REQUIRE(PassConnection(channel->supervisor, {ends[1], "chat", endpoint}).ok());
  REQUIRE(PassConnection(channel->supervisor, {ends[0], "chat", nullptr}).ok());
  REQUIRE(PassClosedEndpoint(channel->supervisor, 7).ok());
  close(ends[1]);
  const Received received = TakeMessage(channel->engine);
  REQUIRE(received.connection.has_value());
  CHECK(received.connection->tenant == "chat");
  REQUIRE(received.connection->endpoint != nullptr);
  CHECK(received.connection->endpoint->number == 7);
  CHECK(received.connection->endpoint->name == "box");
  CHECK(received.connection->endpoint->device_ids.size() == 2);
  CHECK(fcntl(received.connection->endpoint->sessions_fd, F_GETFD) == FD_CLOEXEC);
  CHECK(write(received.connection->fd, "x", 1) == 1);
  char byte = 0;
  CHECK(read(ends[0], &byte, 1) == 1);
  CHECK(byte == 'x');
  const Received second = TakeMessage(channel->engine);
  REQUIRE(second.connection.has_value());
  CHECK(second.connection->endpoint == nullptr);
  CHECK(TakeMessage(channel->engine).closed_endpoint == std::optional<uint64_t>(7));
  // An engine may send anything.
  REQUIRE(send(channel->engine, "nonsense", 8, 0) == 8);
  const std::optional<Reported> nonsense = TakeReport(channel->supervisor);
  REQUIRE(nonsense.has_value());
  CHECK_FALSE((nonsense->end || nonsense->offer.has_value() || nonsense->event.has_value()));
  OfferToEnd(channel->engine, 2);
  CHECK(TakeReport(channel->supervisor)->offer == std::optional<uint64_t>(2));
  DaemonEvent event;
  event.kind = DaemonEvent::Kind::kFault;
  event.text = "what happened";
  ReportEvent(channel->engine, event);
  const std::optional<Reported> reported = TakeReport(channel->supervisor);
  REQUIRE(reported->event.has_value());
  CHECK(reported->event->kind == DaemonEvent::Kind::kFault);
  CHECK(reported->event->text == "what happened");
  close(channel->supervisor);
  CHECK(TakeMessage(channel->engine).end);
  close(received.connection->fd);
  close(second.connection->fd);
  close(ends[0]);
  close(channel->engine);
}

}  // namespace
}  // namespace detshare
