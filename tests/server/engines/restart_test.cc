// Engines and their sessions go on when the supervisor ends, and the next supervisor adopts them.
#include <sys/inotify.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <set>
#include <sstream>

#include "coroutine_runtime/status_cuda.h"
#include "server/engines/engine_process.h"
#include "tests/server/endpoint_operator.h"
#include "tests/server/grpc_stubs.h"
#include "tests/server/supervised_daemon.h"

namespace detshare {
namespace {

namespace fs = std::filesystem;

bool Works(TestClient& program) {
  static StreamId next = 1;
  program.CreateStream(++next);
  return program.Synchronize(next) == 0 && program.ring->header().closed.load() == 0;
}

std::set<pid_t> EnginesIn(const proto::Status& status) {
  std::set<pid_t> engines;
  for (const proto::EngineStatus& engine : status.engines()) engines.insert(engine.pid());
  return engines;
}

std::set<uint64_t> SessionsIn(const proto::Status& status) {
  std::set<uint64_t> sessions;
  for (const proto::SessionStatus& session : status.sessions()) sessions.insert(session.session());
  return sessions;
}

// Replaces text in the list of engines, as if another program had written it.
void Rewrite(const SupervisedDaemon& daemon, const std::string& from, const std::string& to) {
  std::ifstream file(daemon.ListFile());
  std::stringstream text;
  text << file.rdbuf();
  std::string list = text.str();
  const size_t at = list.find(from);
  REQUIRE(at != std::string::npos);
  list.replace(at, from.size(), to);
  std::ofstream(daemon.ListFile()) << list;
}

TEST_CASE("Sessions go on when the supervisor is killed, and the next supervisor knows them") {
  SupervisedDaemon daemon({}, "tenant");
  const auto chat = Program(daemon, "chat"), train = Program(daemon, "train");
  REQUIRE(chat->Open());
  REQUIRE(train->Open());
  proto::Status before;
  {
    TestClient admin(daemon.socket());
    before = StatusOf(admin);
  }
  for (int i = 0; i < 3; ++i) {
    daemon.Kill();
    CHECK(Works(*chat));
    CHECK(Works(*train));
    daemon.Start();
    CHECK(Works(*chat));
    CHECK(Works(*train));
    TestClient admin(daemon.socket());
    const proto::Status after = StatusOf(admin);
    CHECK(after.pid() == daemon.pid);
    CHECK(EnginesIn(after) == EnginesIn(before));
    CHECK(SessionsIn(after) == SessionsIn(before));
  }
  // The next program of the tenant comes to the same engine, and its session has another number.
  const auto next = Program(daemon, "chat");
  REQUIRE(next->Open());
  CHECK(StatusOf(*next).pid() == StatusOf(*chat).pid());
  CHECK_FALSE(SessionsIn(before).contains(next->grant.session()));
  TestClient admin(daemon.socket());
  grpc::ClientContext context;
  proto::Events events;
  REQUIRE(AdminOf(admin)->GetEvents(&context, {}, &events).ok());
  CHECK(std::count_if(events.events().begin(), events.events().end(),
                      [](const auto& event) { return event.kind() == "engine-adopted"; }) == 2);
  // Operators reach its sessions.
  grpc::ClientContext second;
  proto::EndSessionsRequest request;
  proto::EndedSessions ended;
  request.add_sessions(train->grant.session());
  REQUIRE(AdminOf(admin)->EndSessions(&second, request, &ended).ok());
  CHECK(train->AwaitEnd().has_value());
}

TEST_CASE("Limits of sessions count those of adopted engines") {
  TestDirectory configuration;
  const std::string file = configuration.path + "/detshare.toml";
  std::ofstream(file) << "[[tenant]]\nname = \"chat\"\nsessions = 2\n";
  chmod(file.c_str(), 0600);
  SupervisedDaemon daemon({"--config", file}, "tenant");
  const auto first = Program(daemon, "chat"), second = Program(daemon, "chat"),
             third = Program(daemon, "chat");
  REQUIRE(first->Open());
  REQUIRE(second->Open());
  daemon.Kill();
  daemon.Start();
  CHECK(Eventually([&] {
    const auto more = Program(daemon, "chat");
    return !more->Open() && more->status().error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED;
  }));
  first->Close();
  CHECK(Eventually([&] { return Program(daemon, "chat")->Open(); }));
}

// A supervisor may be killed while it begins.
TEST_CASE("A supervisor that begins replaces the list of engines, and never removes it") {
  SupervisedDaemon daemon({}, "tenant");
  const auto program = Program(daemon, "chat");
  REQUIRE(program->Open());
  daemon.Kill();
  const int changes = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
  REQUIRE(changes >= 0);
  const std::string directory = fs::path(daemon.ListFile()).parent_path().string();
  REQUIRE(inotify_add_watch(changes, directory.c_str(), IN_DELETE | IN_MOVED_TO) >= 0);
  daemon.Start();
  alignas(inotify_event) char events[65536];
  const ssize_t bytes = read(changes, events, sizeof(events));
  close(changes);
  REQUIRE(bytes > 0);
  int replaced = 0;
  for (ssize_t at = 0; at < bytes;) {
    const auto* const event = reinterpret_cast<const inotify_event*>(events + at);
    const std::string name = event->len > 0 ? event->name : "";
    if (name == ".list") {
      CHECK((event->mask & IN_DELETE) == 0);
      ++replaced;
    }
    at += static_cast<ssize_t>(sizeof(inotify_event) + event->len);
  }
  CHECK(replaced > 0);
}

TEST_CASE("A session that is requested while there is no supervisor opens under the next one") {
  SupervisedDaemon daemon({}, "tenant");
  const auto first = Program(daemon, "chat"), late = Program(daemon, "chat");
  REQUIRE(first->Open());
  late->ClientChannel();
  REQUIRE(StatusOf(*late).engines_size() == 1);  // the connection is with the engine
  daemon.Kill();
  daemon.Spawn();  // it does not serve yet
  CHECK(late->Open());
  daemon.AwaitSocket();
  TestClient admin(daemon.socket());
  CHECK(Eventually([&] { return StatusOf(admin).sessions_size() == 2; }));
}

TEST_CASE("An engine of another version serves its sessions to the end, and gets no new ones") {
  SupervisedDaemon daemon({"--engine-idle-ms", "100"}, "tenant");
  auto old = Program(daemon, "chat");
  REQUIRE(old->Open());
  const pid_t engine = StatusOf(*old).pid();
  daemon.Kill();
  const bool compatible = GENERATE(true, false);
  Rewrite(daemon, "version: \"", "version: \"0.0.");
  if (!compatible) Rewrite(daemon, "protocol: ", "protocol: 99");
  daemon.Start();
  const auto next = Program(daemon, "chat");
  REQUIRE(next->Open());
  CHECK(StatusOf(*next).pid() != engine);
  CHECK(Works(*old));
  CHECK(Works(*next));
  {
    TestClient admin(daemon.socket());
    const proto::Status status = StatusOf(admin);
    CHECK(EnginesIn(status) == std::set<pid_t>{engine, StatusOf(*next).pid()});
    CHECK(status.sessions_size() == 2);
    CHECK(next->directory.find("/engines/chat~2/") != std::string::npos);
  }
  // Another restart keeps both.
  daemon.Kill();
  daemon.Start();
  CHECK(Works(*old));
  CHECK(Works(*next));
  old.reset();
  CHECK(Eventually([&] { return !Runs(engine); }));
  CHECK(Works(*next));
  CHECK(Eventually([&] { return !fs::exists(daemon.DirectoryOf("chat")); }));
}

TEST_CASE("An orderly end leaves engines with sessions alone, and ends the others") {
  SupervisedDaemon daemon({}, "tenant");
  const auto chat = Program(daemon, "chat");
  auto train = Program(daemon, "train");
  REQUIRE(chat->Open());
  REQUIRE(train->Open());
  const pid_t idle = StatusOf(*train).pid();
  train.reset();
  {
    TestClient admin(daemon.socket());
    REQUIRE(Eventually([&] { return StatusOf(admin).sessions_size() == 1; }));
  }
  kill(daemon.pid, SIGTERM);
  CHECK(daemon.Wait() == 0);
  CHECK(Eventually([&] { return !Runs(idle); }));
  CHECK(Works(*chat));
  daemon.Start();
  CHECK(Works(*chat));
  TestClient admin(daemon.socket());
  CHECK(StatusOf(admin).engines_size() == 1);
  CHECK_FALSE(fs::exists(daemon.DirectoryOf("train")));
}

TEST_CASE("An adopted engine that ends in order with the supervisor is no error") {
  SupervisedDaemon daemon({}, "tenant");
  auto chat = Program(daemon, "chat");
  REQUIRE(chat->Open());
  const pid_t engine = StatusOf(*chat).pid();
  daemon.Kill();
  daemon.Start();
  chat.reset();
  {
    TestClient admin(daemon.socket());
    REQUIRE(Eventually([&] { return StatusOf(admin).sessions_size() == 0; }));
  }
  kill(daemon.pid, SIGTERM);
  CHECK(daemon.Wait() == 0);
  CHECK(Eventually([&] { return !Runs(engine); }));
  CHECK_THAT(daemon.Log(), Catch::Contains("the engine of isolation group chat has ended"));
  CHECK_THAT(daemon.Log(), !Catch::Contains("(pid " + std::to_string(engine) + ") ended"));
}

TEST_CASE("An interrupt ends the engines with the supervisor") {
  SupervisedDaemon daemon({}, "tenant");
  const auto chat = Program(daemon, "chat");
  REQUIRE(chat->Open());
  const pid_t engine = StatusOf(*chat).pid();
  kill(daemon.pid, SIGINT);
  const auto ended = chat->AwaitEnd();
  REQUIRE(ended.has_value());
  CHECK(ended->result() == kCudaErrorSystemNotReady);
  CHECK(ended->reason() == "the daemon ends");
  CHECK(daemon.Wait() == 0);
  CHECK_FALSE(Runs(engine));
  CHECK_FALSE(fs::exists(daemon.socket()));
  CHECK_FALSE(fs::exists(daemon.directory.path + "/engines"));
}

TEST_CASE("An engine without a supervisor ends when no program uses it any more") {
  SupervisedDaemon daemon({"--engine-idle-ms", "100"}, "tenant");
  auto chat = Program(daemon, "chat");
  REQUIRE(chat->Open());
  const pid_t engine = StatusOf(*chat).pid();
  daemon.Kill();
  CHECK(Works(*chat));
  chat.reset();
  CHECK(Eventually([&] { return !Runs(engine); }));
  daemon.Start();
  CHECK_FALSE(fs::exists(daemon.DirectoryOf("chat")));
  CHECK(Program(daemon, "chat")->Open());
}

TEST_CASE(
    "A list of engines that is damaged or wrong costs no session and starts no engine twice") {
  SupervisedDaemon daemon({}, "tenant");
  const auto chat = Program(daemon, "chat");
  REQUIRE(chat->Open());
  const pid_t engine = StatusOf(*chat).pid();
  daemon.Kill();
  SECTION("damaged") { std::ofstream(daemon.ListFile()) << "engines { group: \"chat\" pid: -\n"; }
  SECTION("empty") { std::ofstream(daemon.ListFile()) << ""; }
  SECTION("a process that began at another time") {
    Rewrite(daemon, "start_time: ", "start_time: 1");
  }
  SECTION("a process that is none") { Rewrite(daemon, "pid: ", "pid: -"); }
  SECTION("no process of this daemon's") {
    Rewrite(daemon, "pid: " + std::to_string(engine), "pid: 1");
  }
  daemon.Start();
  CHECK(Works(*chat));
  const auto next = Program(daemon, "chat");
  REQUIRE(next->Open());
  CHECK(StatusOf(*next).pid() != engine);
  kill(engine, SIGKILL);
}

TEST_CASE("Engines have the settings and the configuration of the supervisor that adopts them") {
  TestDirectory configuration;
  const std::string file = configuration.path + "/detshare.toml";
  std::ofstream(file) << "";
  chmod(file.c_str(), 0600);
  SupervisedDaemon daemon({"--config", file}, "tenant");
  const auto chat = Program(daemon, "chat");
  REQUIRE(chat->Open());
  CHECK(chat->Allocate(2 << 20) != 0);
  daemon.Kill();
  std::ofstream(file) << "[policy]\nname = \"temporal\"\n[[tenant]]\nname = \"chat\"\n"
                         "memory = \"3MiB\"\n";
  daemon.Start();
  CHECK(Eventually([&] { return StatusOf(*chat).policy() == "temporal"; }));
  // Limits hold for sessions that begin later.
  const auto next = Program(daemon, "chat");
  REQUIRE(next->Open());
  CHECK(StatusOf(*next).pid() == StatusOf(*chat).pid());
  CHECK(next->Allocate(4 << 20) == 0);
}

// As on a full file system: the supervisor cannot write its file of that path while the object lives.
class Unwritable {
 public:
  explicit Unwritable(const std::string& file) : in_the_way_(file + ".new") {
    REQUIRE(fs::create_directory(in_the_way_));
  }
  ~Unwritable() { fs::remove(in_the_way_); }
  Unwritable(const Unwritable&) = delete;
  Unwritable& operator=(const Unwritable&) = delete;

 private:
  const std::string in_the_way_;
};

TEST_CASE("A supervisor begins also on a full file system, and limits before it hold meanwhile") {
  TestDirectory configuration;
  const std::string file = configuration.path + "/detshare.toml";
  std::ofstream(file) << "[[tenant]]\nname = \"train\"\nmemory = \"3MiB\"\n";
  chmod(file.c_str(), 0600);
  SupervisedDaemon daemon({"--config", file}, "tenant");
  const std::string socket = daemon.runtime + "/endpoints/box/detshared.sock";
  proto::TenantSetting tenant;
  tenant.set_name("chat");
  tenant.set_memory(1 << 20);
  REQUIRE(Operator(daemon.socket()).Open("box", {}, tenant).ok());
  const auto train = Program(daemon, "train");
  REQUIRE(train->Open());
  const pid_t engine = StatusOf(*train).pid();
  const auto allocates = [](TestClient& program, uint64_t bytes) {
    REQUIRE(program.Open());
    return program.Allocate(bytes) != 0;
  };
  daemon.Kill();
  std::ofstream(file) << "[[tenant]]\nname = \"train\"\nmemory = \"6MiB\"\n";
  {
    const Unwritable settings(daemon.runtime + "/settings");
    const Unwritable copy(daemon.runtime + "/engines/.config.next");
    const Unwritable list(daemon.ListFile());
    daemon.Start();
    CHECK_THAT(daemon.Log(),
               Catch::Contains("engines have the settings and limits of the supervisor before"));
    CHECK_THAT(daemon.Log(), Catch::Contains("have the configuration of the supervisor before"));
    CHECK(Works(*train));
    CHECK_FALSE(allocates(*Program(daemon, "train"), 4 << 20));
    // Its engine is a new one.
    TestClient behind(socket);
    CHECK_FALSE(allocates(behind, 2 << 20));
  }
  CHECK(Eventually([&] { return allocates(*Program(daemon, "train"), 4 << 20); }));
  CHECK_FALSE(allocates(*Program(daemon, "train"), 8 << 20));
  TestClient behind(socket);
  CHECK_FALSE(allocates(behind, 2 << 20));
  CHECK(StatusOf(*train).pid() == engine);
}

TEST_CASE(
    "An engine and an endpoint that began on a full file system are kept once there is space") {
  SupervisedDaemon daemon({}, "tenant");
  const std::string endpoints = daemon.runtime + "/endpoints/.list";
  std::optional<Unwritable> list(std::in_place, daemon.ListFile());
  std::optional<Unwritable> list_of_endpoints(std::in_place, endpoints);
  const auto program = Program(daemon, "chat");
  REQUIRE(program->Open());
  REQUIRE(Operator(daemon.socket()).Open("box").ok());
  CHECK(daemon.ListedEngines().empty());
  CHECK_FALSE(fs::exists(endpoints));
  list.reset();
  list_of_endpoints.reset();
  CHECK(Eventually([&] { return daemon.ListedEngines().size() == 1 && fs::exists(endpoints); }));
  daemon.Kill();
  daemon.Start();
  CHECK(Works(*program));
  Operator me(daemon.socket());
  CHECK(me.Status().engines_size() == 1);
  CHECK(me.List().endpoints_size() == 1);
}

TEST_CASE("No engine begins without settings, and the first one begins once there is space") {
  TestDirectory runtime;
  std::optional<Unwritable> settings(std::in_place, runtime.path + "/settings");
  SupervisedDaemon daemon({}, "tenant", runtime.path);
  CHECK_FALSE(Program(daemon, "chat")->Open());
  CHECK_THAT(daemon.Log(), Catch::Contains("no engine begins, because it would have no limits"));
  settings.reset();
  CHECK(Eventually([&] { return Program(daemon, "chat")->Open(); }));
}

TEST_CASE("Sessions behind an endpoint go on, and end when the next supervisor closes it") {
  SupervisedDaemon daemon({}, "tenant");
  const std::string socket = daemon.directory.path + "/endpoints/box/detshared.sock";
  proto::TenantSetting tenant;
  tenant.set_name("chat");
  tenant.set_memory(4 << 20);
  {
    Operator me(daemon.socket());
    REQUIRE(me.Open("box", {}, tenant).ok());
    REQUIRE(me.Open("other", {}, tenant).ok());
  }
  TestClient program(socket);
  REQUIRE(program.Open());
  daemon.Kill();
  CHECK(Works(program));
  daemon.Start();
  CHECK(Works(program));
  CHECK(fs::exists(program.directory + "/session"));
  TestClient next(socket);
  REQUIRE(next.Open());
  Operator me(daemon.socket());
  CHECK(me.Status().engines_size() == 1);
  CHECK(program.Allocate(8 << 20) == 0);
  REQUIRE(me.Close("other").ok());
  CHECK(Works(program));
  REQUIRE(me.Close("box").ok());
  for (TestClient* const one : {&program, &next}) {
    const auto ended = one->AwaitEnd();
    REQUIRE(ended.has_value());
    CHECK(ended->reason() == "the endpoint was closed");
  }
}

TEST_CASE("The files of an engine that ended without a supervisor leave the endpoints") {
  SupervisedDaemon daemon({}, "tenant");
  const auto socket = [&](const std::string& endpoint) {
    return daemon.runtime + "/endpoints/" + endpoint + "/detshared.sock";
  };
  pid_t engine = 0;
  {
    Operator me(daemon.socket());
    REQUIRE(me.Open("ends").ok());
    REQUIRE(me.Open("stays").ok());
  }
  TestClient ended(socket("ends")), stays(socket("stays"));
  REQUIRE(ended.Open());
  {
    Operator me(daemon.socket());
    const proto::Status status = me.Status();
    REQUIRE(status.engines_size() == 1);
    engine = status.engines(0).pid();
  }
  REQUIRE(stays.Open());
  daemon.Kill();
  kill(engine, SIGKILL);
  REQUIRE(Eventually([&] { return !Runs(engine); }));
  REQUIRE(fs::exists(ended.directory));
  daemon.Start();
  CHECK(Eventually([&] { return !fs::exists(ended.directory); }));
  CHECK(fs::exists(stays.directory + "/session"));
  CHECK(Works(stays));
  TestClient next(socket("ends"));
  REQUIRE(next.Open());
  CHECK(fs::exists(next.directory + "/session"));
}

// Listens where supervisors find the engine of the directory, as its process does until the last of
// its threads has ended.
class EndingEngine {
 public:
  explicit EndingEngine(const std::string& directory)
      : fd_(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)) {
    const std::string path = AdoptionSocket(directory);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    REQUIRE(path.copy(address.sun_path, sizeof(address.sun_path) - 1) == path.size());
    unlink(path.c_str());
    REQUIRE(bind(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0);
    REQUIRE(listen(fd_, 8) == 0);
  }
  ~EndingEngine() { close(fd_); }
  EndingEngine(const EndingEngine&) = delete;
  EndingEngine& operator=(const EndingEngine&) = delete;

 private:
  const int fd_;
};

TEST_CASE("An engine that was about to end when the supervisor began leaves no files either") {
  SupervisedDaemon daemon({}, "tenant");
  const std::string socket = daemon.runtime + "/endpoints/ends/detshared.sock";
  {
    Operator me(daemon.socket());
    REQUIRE(me.Open("ends").ok());
  }
  TestClient ended(socket);
  REQUIRE(ended.Open());
  const pid_t engine = Operator(daemon.socket()).Status().engines(0).pid();
  daemon.Kill();
  kill(engine, SIGKILL);
  REQUIRE(Eventually([&] { return !Runs(engine); }));
  const std::string directory = daemon.DirectoryOf("ends");
  REQUIRE(fs::exists(directory));
  {
    const EndingEngine ending(directory);
    daemon.Start();
    CHECK(fs::exists(directory));
    CHECK(fs::exists(ended.directory));
  }
  CHECK(Eventually([&] { return !fs::exists(directory) && !fs::exists(ended.directory); }));
  TestClient next(socket);
  REQUIRE(next.Open());
  CHECK(fs::exists(next.directory + "/session"));
}

TEST_CASE("Operators reload the configuration of all engines, and a mistake changes nothing") {
  TestDirectory configuration;
  const std::string file = configuration.path + "/detshare.toml";
  std::ofstream(file) << "[policy]\nname = \"fair\"\n";
  chmod(file.c_str(), 0600);
  SupervisedDaemon daemon({"--config", file}, "tenant");
  const auto chat = Program(daemon, "chat");
  REQUIRE(chat->Open());
  TestClient admin(daemon.socket());
  const auto reload = [&](const std::string& text, proto::Reloaded* reloaded) {
    std::ofstream(file) << text;
    grpc::ClientContext context;
    return AdminOf(admin)->Reload(&context, {}, reloaded);
  };
  proto::Reloaded reloaded;
  REQUIRE(reload("[policy]\nname = \"temporal\"\n[daemon]\nspin_us = 7\n", &reloaded).ok());
  CHECK(reloaded.changed_size() == 1);
  CHECK(reloaded.restart_size() == 1);
  CHECK(Eventually([&] { return StatusOf(*chat).policy() == "temporal"; }));
  const grpc::Status wrong = reload("[policy]\nname = \"none\"\n", &reloaded);
  CHECK(wrong.error_code() == grpc::StatusCode::INVALID_ARGUMENT);
  CHECK(StatusOf(admin).policy() == "temporal");
  if (!IsRoot()) return;
  const auto other = As(kSomebody, daemon);
  grpc::ClientContext context;
  CHECK(AdminOf(*other)->Reload(&context, {}, &reloaded).error_code() ==
        grpc::StatusCode::PERMISSION_DENIED);
}

}  // namespace
}  // namespace detshare
