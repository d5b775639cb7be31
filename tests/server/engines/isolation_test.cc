// Which programs share an engine, and what the end of an engine does to others.
#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "proto/mutex.h"
#include "proto/warning.h"
#include "server/engines/isolation_group.h"
#include "tests/server/grpc_stubs.h"
#include "tests/server/supervised_daemon.h"

namespace detshare {
namespace {

Peer PeerOf(uid_t uid) {
  Peer peer;
  peer.uid = uid;
  return peer;
}

TEST_CASE("The isolation decides whether user, tenant or configuration name the group") {
  IsolationGroups groups;
  groups.named = {{"chat", "inference"}, {"search", "inference"}};
  groups.isolation = Isolation::kUser;
  CHECK(groups.Of(PeerOf(7), "chat") == "user:7");
  groups.isolation = Isolation::kTenant;
  CHECK(groups.Of(PeerOf(7), "chat") == "chat");
  groups.isolation = Isolation::kGroup;
  CHECK(groups.Of(PeerOf(7), "chat") == "group:inference");
  CHECK(groups.Of(PeerOf(8), "search") == "group:inference");
  // A tenant that has the group's name is not in the group.
  CHECK(groups.Of(PeerOf(7), "inference") == "inference");
  // Users say nothing about containers.
  Peer container = PeerOf(0);
  container.endpoint = std::make_shared<TenantEndpoint>();
  groups.isolation = Isolation::kUser;
  CHECK(groups.Of(container, "chat") == "chat");
}

TEST_CASE("Directories of groups have short names that lead nowhere else") {
  CHECK(DirectoryName("chat") == "chat");
  CHECK(DirectoryName("group:inference") == "group:inference");
  std::set<std::string> names;
  for (const std::string& group : {std::string("."), std::string(".."), std::string(".hidden"),
                                   std::string(64, 'x'), std::string(63, 'x') + "y"}) {
    const std::string name = DirectoryName(group);
    CHECK(name.front() == '%');
    CHECK(name.size() <= 40);
    CHECK(name.find('/') == std::string::npos);
    CHECK(names.insert(name).second);
  }
}

TEST_CASE("With isolation by tenant, a user's tenants have engines of their own") {
  SupervisedDaemon daemon({}, "tenant");
  const auto a = Program(daemon, "chat"), b = Program(daemon, "chat"), c = Program(daemon, "train");
  REQUIRE(a->Open());
  REQUIRE(b->Open());
  REQUIRE(c->Open());
  CHECK(EngineOf(*a) == EngineOf(*b));
  CHECK(EngineOf(*a) != EngineOf(*c));
  CHECK(a->directory.find("/engines/chat/sessions/") != std::string::npos);
  // The supervisor opens no device and serves no program.
  TestClient admin(daemon.socket());
  const proto::Status status = StatusOf(admin);
  REQUIRE(status.engines_size() == 2);
  CHECK(status.engines(0).group() == "chat");
  CHECK(status.engines(0).sessions() == 2);
  CHECK(status.sessions_size() == 3);
  CHECK(status.pid() == daemon.pid);
}

TEST_CASE("Devices are known before the first engine, and when none is left") {
  SupervisedDaemon daemon({"--engine-idle-ms", "1", "--log-level", "info"}, "tenant");
  TestClient admin(daemon.socket());
  REQUIRE(Eventually([&] { return StatusOf(admin).devices_size() == 1; }));
  const proto::Status before = StatusOf(admin);
  CHECK(before.engines_size() == 0);
  CHECK(before.backend() == "soft");
  {
    const auto program = Program(daemon, "chat");
    REQUIRE(program->Open());
    CHECK(StatusOf(admin).devices(0).uuid() == before.devices(0).uuid());
  }
  REQUIRE(Eventually([&] { return StatusOf(admin).engines_size() == 0; }));
  const proto::Status after = StatusOf(admin);
  REQUIRE(after.devices_size() == 1);
  CHECK(after.devices(0).uuid() == before.devices(0).uuid());
  CHECK(after.devices(0).state() == "ok");
}

TEST_CASE("Names of tenants that are no names of files have engines, too") {
  SupervisedDaemon daemon({}, "tenant");
  for (const std::string& name : {std::string(".."), std::string(64, 'x')}) {
    const auto program = Program(daemon, name);
    REQUIRE(program->Open());
    CHECK(program->directory.find(daemon.directory.path + "/engines/%") == 0);
  }
}

TEST_CASE("Tenants of a group share an engine if the isolation says so") {
  TestDirectory configuration;
  const std::string file = configuration.path + "/detshare.toml";
  std::ofstream(file) << "[[tenant]]\nname = \"chat\"\ngroup = \"g\"\n"
                         "[[tenant]]\nname = \"search\"\ngroup = \"g\"\n";
  chmod(file.c_str(), 0600);
  SupervisedDaemon daemon({"--config", file}, "group");
  const auto a = Program(daemon, "chat"), b = Program(daemon, "search"), c = Program(daemon, "g");
  REQUIRE(a->Open());
  REQUIRE(b->Open());
  REQUIRE(c->Open());
  CHECK(EngineOf(*a) == EngineOf(*b));
  CHECK(EngineOf(*a) != EngineOf(*c));
}

TEST_CASE("A program that may not be a tenant learns why, and starts no engine") {
  if (!IsRoot()) return;
  TestDirectory configuration;
  const std::string file = configuration.path + "/detshare.toml";
  std::ofstream(file) << "[[tenant]]\nname = \"chat\"\nusers = [1]\n";
  chmod(file.c_str(), 0600);
  SupervisedDaemon daemon({"--config", file}, "tenant");
  const auto refused = As(kSomebody, daemon);
  refused->tenant = "chat";
  CHECK_FALSE(refused->Open());
  CHECK(refused->status().error_code() == grpc::StatusCode::PERMISSION_DENIED);
  CHECK(refused->status().error_message().find("may not be tenant chat") != std::string::npos);
  const auto nonsense = As(kSomebody, daemon);
  nonsense->tenant = "../../etc";
  CHECK_FALSE(nonsense->Open());
  CHECK(nonsense->status().error_code() == grpc::StatusCode::INVALID_ARGUMENT);
  TestClient admin(daemon.socket());
  CHECK(StatusOf(admin).engines_size() == 0);
  // A refused connection serves no operator.
  grpc::ClientContext context;
  proto::Status status;
  CHECK(AdminOf(*refused)->GetStatus(&context, {}, &status).error_code() ==
        grpc::StatusCode::UNIMPLEMENTED);
}

TEST_CASE("A client of another version learns that from the supervisor, too") {
  SupervisedDaemon daemon({}, "tenant");
  const auto old = Program(daemon, "no name");
  old->request.set_abi_version(999);
  CHECK_FALSE(old->Open());
  CHECK(old->status().error_code() == grpc::StatusCode::FAILED_PRECONDITION);
}

TEST_CASE("An engine that is killed ends the sessions of its group and no others") {
  SupervisedDaemon daemon({}, "tenant");
  const auto guilty = Program(daemon, "chat"), innocent = Program(daemon, "train");
  REQUIRE(guilty->Open());
  REQUIRE(innocent->Open());
  const pid_t engine = EngineOf(*guilty);
  kill(engine, SIGKILL);
  CHECK_FALSE(guilty->AwaitEnd().has_value());
  TestClient admin(daemon.socket());
  CHECK(Eventually([&] {
    grpc::ClientContext context;
    proto::Events events;
    REQUIRE(AdminOf(admin)->GetEvents(&context, {}, &events).ok());
    return std::any_of(events.events().begin(), events.events().end(), [&](const auto& event) {
      return event.kind() == "engine-ended" && event.pid() == engine &&
             event.text() == "isolation group chat: was ended by signal 9";
    });
  }));
  innocent->CreateStream(1);
  CHECK(innocent->Synchronize(1) == 0);
  CHECK(innocent->ring->header().closed.load() == 0);
  // The next session of the group gets a new engine.
  CHECK(Eventually([&] {
    const auto next = Program(daemon, "chat");
    return next->Open() && EngineOf(*next) != engine;
  }));
}

TEST_CASE("Settings hold for the engines that run and for those that begin later") {
  SupervisedDaemon daemon({}, "tenant");
  const auto before = Program(daemon, "chat");
  REQUIRE(before->Open());
  TestClient admin(daemon.socket());
  const auto stub = AdminOf(admin);
  grpc::ClientContext first, second;
  proto::PolicySetting policy, in_force;
  policy.set_name("whole");
  REQUIRE(stub->SetPolicy(&first, policy, &in_force).ok());
  proto::TenantSetting tenant, set;
  tenant.set_name("train");
  tenant.set_memory(1 << 20);
  REQUIRE(stub->SetTenant(&second, tenant, &set).ok());
  CHECK(StatusOf(*before).policy() == "whole");
  const auto after = Program(daemon, "train");
  REQUIRE(after->Open());
  CHECK(StatusOf(*after).policy() == "whole");
  CHECK(after->Allocate(2 << 20) == 0);
  // What was set is taken back in all engines.
  proto::UnsetTenantRequest request;
  proto::Tenants left;
  request.set_name("train");
  grpc::ClientContext unset, again;
  REQUIRE(stub->UnsetTenant(&unset, request, &left).ok());
  CHECK(left.tenants_size() == 0);
  CHECK(stub->UnsetTenant(&again, request, &left).error_code() == grpc::StatusCode::NOT_FOUND);
  CHECK(Eventually([&] {
    const auto unlimited = Program(daemon, "train");
    return unlimited->Open() && unlimited->Allocate(2 << 20) != 0;
  }));
  // A mistake changes nothing.
  grpc::ClientContext third;
  policy.set_name("no-such-policy");
  CHECK_FALSE(stub->SetPolicy(&third, policy, &in_force).ok());
  CHECK(StatusOf(*before).policy() == "whole");
  CHECK(StatusOf(admin).policy() == "whole");
}

TEST_CASE("With several engines, too, a tenant's first setting keeps the default limits") {
  TestDirectory configuration;
  const std::string file = configuration.path + "/detshare.toml";
  std::ofstream(file) << "[tenant_defaults]\nmemory = \"1MiB\"\n";
  chmod(file.c_str(), 0600);
  SupervisedDaemon daemon({"--config", file}, "tenant");
  const auto program = Program(daemon, "dora");
  REQUIRE(program->Open());
  TestClient admin(daemon.socket());
  proto::TenantSetting tenant, in_force;
  tenant.set_name("dora");
  tenant.set_weight(2);
  grpc::ClientContext context;
  REQUIRE(AdminOf(admin)->SetTenant(&context, tenant, &in_force).ok());
  CHECK(in_force.memory() == 1 << 20);
  CHECK(program->Allocate(2 << 20) == 0);
}

TEST_CASE("Settings that no device allows cost no tenant its limits") {
  TestDirectory configuration;
  const std::string file = configuration.path + "/detshare.toml";
  std::ofstream(file) << "[[tenant]]\nname = \"bad\"\nsms = \"0..65536\"\ndevices = 9\n"
                         "[[tenant]]\nname = \"victim\"\nmemory = \"1MiB\"\n";
  chmod(file.c_str(), 0600);
  SupervisedDaemon daemon({"--config", file}, "tenant");
  const auto early = Program(daemon, "early"), bad = Program(daemon, "bad"),
             victim = Program(daemon, "victim");
  REQUIRE(early->Open());
  REQUIRE(bad->Open());
  REQUIRE(victim->Open());
  CHECK(victim->Allocate(2 << 20) == 0);
  CHECK_THAT(daemon.Log(), Catch::Contains("tenant bad: max_sms 65536 is lowered to"));
  CHECK_THAT(daemon.Log(), Catch::Contains("tenant bad: devices 9 is lowered to 1"));
  // Engines that run take over what comes later, too.
  std::ofstream(file, std::ios::app) << "[[tenant]]\nname = \"early\"\nmemory = \"1MiB\"\n";
  TestClient admin(daemon.socket());
  grpc::ClientContext context;
  proto::Reloaded reloaded;
  REQUIRE(AdminOf(admin)->Reload(&context, {}, &reloaded).ok());
  CHECK(Eventually([&] {
    const auto next = Program(daemon, "early");
    return next->Open() && next->Allocate(2 << 20) == 0;
  }));
}

TEST_CASE("Settings that an engine refuses are in force in no engine") {
  SupervisedDaemon daemon({}, "tenant");
  const auto program = Program(daemon, "chat");
  REQUIRE(program->Open());
  TestClient admin(daemon.socket());
  proto::TenantSetting tenant, in_force;
  tenant.set_name("train");
  tenant.set_max_sms(65536);
  tenant.set_memory(1 << 20);
  grpc::ClientContext context, ask;
  const grpc::Status refused = AdminOf(admin)->SetTenant(&context, tenant, &in_force);
  CHECK(refused.error_code() == grpc::StatusCode::INVALID_ARGUMENT);
  CHECK_THAT(refused.error_message(), Catch::Contains("the number of SMs"));
  proto::Tenants tenants;
  REQUIRE(AdminOf(admin)->GetTenants(&ask, {}, &tenants).ok());
  CHECK(tenants.tenants_size() == 0);
  const auto later = Program(daemon, "train");
  REQUIRE(later->Open());
  CHECK(later->Allocate(2 << 20) != 0);
}

TEST_CASE("Engines have the configuration in force, whatever the file says by then") {
  TestDirectory configuration;
  const std::string file = configuration.path + "/detshare.toml";
  std::ofstream(file) << "[policy]\nname = \"fair\"\n";
  chmod(file.c_str(), 0600);
  SupervisedDaemon daemon({"--config", file}, "tenant");
  TestClient admin(daemon.socket());
  const auto reload = [&] {
    grpc::ClientContext context;
    proto::Reloaded reloaded;
    return AdminOf(admin)->Reload(&context, {}, &reloaded);
  };
  const auto allocates = [&](const std::string& tenant) {
    const auto program = Program(daemon, tenant);
    REQUIRE(program->Open());
    return program->Allocate(2 << 20) != 0;
  };
  const std::string limit = "[tenant_defaults]\nmemory = \"1MiB\"\n";
  // A mistake, and an edit that was not reloaded.
  std::ofstream(file) << limit << "[daemon";
  CHECK(allocates("a"));
  CHECK_FALSE(reload().ok());
  CHECK(allocates("b"));
  std::ofstream(file) << limit;
  CHECK(allocates("c"));
  // A reload that fails late: engines would not get the settings.
  const std::string in_the_way = daemon.directory.path + "/settings.new";
  REQUIRE(std::filesystem::create_directory(in_the_way));
  CHECK(reload().error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED);
  CHECK(allocates("d"));
  std::filesystem::remove(in_the_way);
  REQUIRE(reload().ok());
  CHECK_FALSE(allocates("e"));
  // The next supervisor begins with the file as it is.
  std::ofstream(file) << "";
  daemon.Kill();
  daemon.Start();
  CHECK(allocates("f"));
}

TEST_CASE("An engine that cannot be asked takes over settings as soon as it can") {
  SupervisedDaemon daemon({}, "tenant");
  const auto program = Program(daemon, "chat");
  REQUIRE(program->Open());
  TestClient admin(daemon.socket());
  const auto stub = AdminOf(admin);
  const proto::Status status = StatusOf(admin);
  grpc::ClientContext context;
  proto::PolicySetting policy, in_force;
  policy.set_name("whole");
  SECTION("it does not listen, like one that begins: no error") {
    std::filesystem::remove(status.engines(0).socket());
    CHECK(StatusOf(admin).engines(0).problem() == "it begins or ends");
    CHECK(stub->SetPolicy(&context, policy, &in_force).ok());
  }
  SECTION("it does not reply: a warning names it, and others learn of the change") {
    Freeze(status.engines(0).pid());
    const grpc::Status set = stub->SetPolicy(&context, policy, &in_force);
    grpc::ClientContext ask;
    proto::Events events;
    REQUIRE(stub->GetEvents(&ask, {}, &events).ok());
    kill(status.engines(0).pid(), SIGCONT);
    REQUIRE(set.ok());
    CHECK(in_force.name() == "whole");
    const auto& metadata = context.GetServerTrailingMetadata();
    const auto warning = metadata.find(kWarningMetadata);
    REQUIRE(warning != metadata.end());
    const std::string text =
        "the change is in force; the engine of isolation group chat does not reply and gets it "
        "when "
        "it does";
    CHECK(std::string(warning->second.data(), warning->second.size()) == text);
    CHECK_THAT(daemon.Log(), Catch::Contains(text));
    CHECK(std::any_of(events.events().begin(), events.events().end(), [](const auto& event) {
      return event.kind() == "policy" && event.text() == "whole" && event.pid() == getpid();
    }));
  }
  CHECK(Eventually([&] { return StatusOf(*program).policy() == "whole"; }));
}

// Calls of one operator that wait at the supervisor at the same time.
template <typename Request, typename Reply>
class WaitingCalls {
 public:
  explicit WaitingCalls(size_t count) : calls_(count) {}
  ~WaitingCalls() {
    for (Call& call : calls_) call.context.TryCancel();
    Await();
  }
  // `start(context, request, reply, done)` starts a call by an asynchronous stub.
  template <typename Start>
  void Begin(const Request& request, const Start& start) {
    request_ = request;
    {
      const MutexLock lock(&mutex_);
      left_ = calls_.size();
    }
    for (Call& call : calls_) {
      start(&call.context, &request_, &call.reply, [this, &call](const grpc::Status& status) {
        const MutexLock lock(&mutex_);
        call.status = status;
        if (--left_ == 0) over_.SignalAll();
      });
    }
  }
  // Waits for the ends of all calls, and returns how many ended with this text; "": without an
  // error.
  size_t Await(const std::string& text = "") {
    const MutexLock lock(&mutex_);
    over_.Wait(&mutex_, [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return left_ == 0; });
    return std::count_if(calls_.begin(), calls_.end(),
                         [&](const Call& call) { return call.status.error_message() == text; });
  }

 private:
  struct Call {
    grpc::ClientContext context;
    Reply reply;
    grpc::Status status;  // guarded by mutex_
  };
  Request request_;
  std::vector<Call> calls_;
  Mutex mutex_;
  CondVar over_;
  size_t left_ ABSL_GUARDED_BY(mutex_) = 0;
};

// detsharectl waits as long for the supervisor.
constexpr std::chrono::seconds kControlTimeout(10);

TEST_CASE("An engine that does not reply holds up no change in others, however many look at it") {
  SupervisedDaemon daemon({}, "tenant");
  const auto silent = Program(daemon, "chat"), other = Program(daemon, "train");
  REQUIRE(silent->Open());
  REQUIRE(other->Open());
  Freeze(EngineOf(*silent));
  TestClient admin(daemon.socket());
  const auto stub = AdminOf(admin);
  WaitingCalls<proto::GetStatusRequest, proto::Status> statuses(30);
  statuses.Begin({}, [&](auto* call, auto* empty, auto* status, auto done) {
    stub->async()->GetStatus(call, empty, status, std::move(done));
  });
  const auto begin = std::chrono::steady_clock::now();
  grpc::ClientContext context;
  proto::EndSessionsRequest request;
  proto::EndedSessions ended;
  request.add_sessions(other->grant.session());
  CHECK(stub->EndSessions(&context, request, &ended).ok());
  CHECK(std::chrono::steady_clock::now() - begin < kControlTimeout);
  CHECK(other->AwaitEnd().has_value());
  CHECK(statuses.Await() == 30);
  CHECK(std::chrono::steady_clock::now() - begin < kControlTimeout);
}

TEST_CASE(
    "A supervisor ends in time, however many changes wait for an engine that does not reply") {
  SupervisedDaemon daemon({}, "tenant");
  const auto silent = Program(daemon, "chat");
  REQUIRE(silent->Open());
  Freeze(EngineOf(*silent));
  TestClient admin(daemon.socket());
  const auto stub = AdminOf(admin);
  proto::EndSessionsRequest request;
  request.set_tenant("nobody");
  WaitingCalls<proto::EndSessionsRequest, proto::EndedSessions> kills(30);
  kills.Begin(request, [&](auto* call, auto* which, auto* ended, auto done) {
    stub->async()->EndSessions(call, which, ended, std::move(done));
  });
  // The supervisor has read the calls that came before this one.
  StatusOf(admin);
  const auto begin = std::chrono::steady_clock::now();
  kill(daemon.pid, SIGTERM);
  CHECK(daemon.Wait() == 0);
  // TimeoutStopSec= of the unit.
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(20));
  // One had begun. On a slow machine, another one may have begun meanwhile.
  CHECK(kills.Await("detshared is ending and has not done this; ask its successor") >= 25);
}

TEST_CASE("A supervisor ends although it is asked to reload all the time") {
  TestDirectory configuration;
  const std::string file = configuration.path + "/detshared.toml";
  std::ofstream(file) << "[[tenant]]\nname = \"chat\"\n";
  chmod(file.c_str(), 0600);
  SupervisedDaemon daemon({"--config", file}, "tenant");
  TestClient admin(daemon.socket());
  const auto stub = AdminOf(admin);
  std::atomic<int> reloads{0};
  std::vector<std::thread> operators;
  for (int i = 0; i < 4; ++i) {
    operators.emplace_back([&] {
      for (bool replied = true; replied;) {
        grpc::ClientContext context;
        proto::Reloaded reloaded;
        replied = stub->Reload(&context, {}, &reloaded).ok();
        reloads += replied;
      }
    });
  }
  while (reloads < 20) std::this_thread::yield();
  kill(daemon.pid, SIGTERM);
  CHECK(daemon.Wait() == 0);
  for (std::thread& one : operators) one.join();
}

TEST_CASE("While an engine does not reply, only the first status takes long") {
  SupervisedDaemon daemon({}, "tenant");
  const auto program = Program(daemon, "chat");
  REQUIRE(program->Open());
  TestClient admin(daemon.socket());
  const pid_t engine = StatusOf(admin).engines(0).pid();
  Freeze(engine);
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < 15; ++i) CHECK(StatusOf(admin).engines(0).problem() == "it does not reply");
  // Each took two seconds.
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(20));
  kill(engine, SIGCONT);
  CHECK(Eventually([&] { return StatusOf(admin).engines(0).problem().empty(); }));
}

proto::TraceChunk Fetch(TestClient& admin, uint64_t trace, bool last) {
  grpc::ClientContext context;
  proto::FetchTraceRequest request;
  request.set_trace(trace);
  request.set_last(last);
  proto::TraceChunk chunk;
  REQUIRE(AdminOf(admin)->FetchTrace(&context, request, &chunk).ok());
  return chunk;
}

TEST_CASE("A trace has the work of all engines, also of those that begin meanwhile") {
  SupervisedDaemon daemon({}, "tenant");
  const auto chat = Program(daemon, "chat"), train = Program(daemon, "train"),
             late = Program(daemon, "late");
  REQUIRE(chat->Open());
  REQUIRE(train->Open());
  TestClient admin(daemon.socket());
  grpc::ClientContext context, second;
  proto::TraceStarted trace, refused;
  REQUIRE(AdminOf(admin)->StartTrace(&context, {}, &trace).ok());
  CHECK(AdminOf(admin)->StartTrace(&second, {}, &refused).error_code() ==
        grpc::StatusCode::FAILED_PRECONDITION);
  REQUIRE(late->Open());
  const auto fill = [](TestClient& client, uint64_t memory) {
    client.ring->Send(Op::cuMemsetD2D32Async,
                      wire::cuMemsetD2D32Async{memory, 0, 16, 1, 7, 1, 1, 0});
    return client.Synchronize(1) == 0;
  };
  std::map<TestClient*, uint64_t> memory;
  for (TestClient* const client : {chat.get(), train.get(), late.get()}) {
    client->CreateStream(1);
    memory[client] = client->Allocate(1 << 20);
  }
  std::set<std::string> seen;
  CHECK(Eventually([&] {
    for (const auto& [client, address] : memory) REQUIRE(fill(*client, address));
    const proto::TraceChunk chunk = Fetch(admin, trace.trace(), false);
    REQUIRE(chunk.silent_groups_size() == 0);
    for (const proto::SessionTrace& session : chunk.sessions()) {
      if (session.events_size() != 0) seen.insert(session.tenant());
    }
    return seen == std::set<std::string>{"chat", "late", "train"};
  }));
  // An engine that does not reply is named, and the others are traced.
  const pid_t silent = StatusOf(*chat).pid();
  Freeze(silent);
  const proto::TraceChunk without = Fetch(admin, trace.trace(), false);
  REQUIRE(without.silent_groups_size() == 1);
  CHECK(without.silent_groups(0) == "chat");
  kill(silent, SIGCONT);
  CHECK(Fetch(admin, trace.trace(), true).silent_groups_size() == 1);
  // The engines are free for the next trace. While one has another client's, its refusal names it.
  grpc::ClientContext third, fourth, fifth;
  TestClient inside(StatusOf(admin).engines(0).socket());
  REQUIRE(AdminOf(admin)->StartTrace(&third, {}, &trace).ok());
  Fetch(admin, trace.trace(), true);
  REQUIRE(AdminOf(inside)->StartTrace(&fourth, {}, &trace).ok());
  const grpc::Status refusal = AdminOf(admin)->StartTrace(&fifth, {}, &refused);
  CHECK(refusal.error_code() == grpc::StatusCode::FAILED_PRECONDITION);
  CHECK(refusal.error_message() ==
        "the engine of isolation group chat: another client is taking a trace");
}

TEST_CASE("The supervisor shows the events of all engines") {
  SupervisedDaemon daemon({}, "tenant");
  const auto chat = Program(daemon, "chat"), train = Program(daemon, "train");
  REQUIRE(chat->Open());
  REQUIRE(train->Open());
  TestClient admin(daemon.socket());
  CHECK(Eventually([&] {
    grpc::ClientContext context;
    proto::Events events;
    REQUIRE(AdminOf(admin)->GetEvents(&context, {}, &events).ok());
    std::set<std::string> tenants;
    for (const proto::Event& event : events.events()) {
      if (event.kind() == "opened") tenants.insert(event.tenant());
    }
    return tenants == std::set<std::string>{"chat", "train"};
  }));
}

TEST_CASE("What an operator does to all engines is one event") {
  TestDirectory configuration;
  const std::string file = configuration.path + "/detshare.toml";
  std::ofstream(file) << "";
  chmod(file.c_str(), 0600);
  SupervisedDaemon daemon({"--config", file}, "tenant");
  const auto chat = Program(daemon, "chat"), train = Program(daemon, "train");
  REQUIRE(chat->Open());
  REQUIRE(train->Open());
  TestClient admin(daemon.socket());
  const auto stub = AdminOf(admin);
  grpc::ClientContext first, second, third, fourth;
  proto::PolicySetting policy, policy_in_force;
  policy.set_name("whole");
  REQUIRE(stub->SetPolicy(&first, policy, &policy_in_force).ok());
  proto::TenantSetting tenant, in_force;
  tenant.set_name("chat");
  tenant.set_weight(2);
  REQUIRE(stub->SetTenant(&second, tenant, &in_force).ok());
  proto::TraceStarted trace;
  REQUIRE(stub->StartTrace(&third, {}, &trace).ok());
  Fetch(admin, trace.trace(), true);
  proto::Reloaded reloaded;
  REQUIRE(stub->Reload(&fourth, {}, &reloaded).ok());
  // An engine reports these programs after all that it has done before.
  const auto next = Program(daemon, "chat"), last = Program(daemon, "train");
  REQUIRE(next->Open());
  REQUIRE(last->Open());
  std::map<std::string, int> kinds;
  REQUIRE(Eventually([&] {
    grpc::ClientContext context;
    proto::Events events;
    REQUIRE(stub->GetEvents(&context, {}, &events).ok());
    kinds.clear();
    for (const proto::Event& event : events.events()) ++kinds[event.kind()];
    return kinds["opened"] == 4;
  }));
  CHECK(kinds["policy"] == 1);
  CHECK(kinds["tenant"] == 1);
  CHECK(kinds["trace"] == 1);
  CHECK(kinds["config"] == 1);
}

}  // namespace
}  // namespace detshare
