// Engines that run as users of their own.
#include "server/engines/engine_users.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <set>

#include "tests/server/endpoint_operator.h"
#include "tests/server/grpc_stubs.h"
#include "tests/server/supervised_daemon.h"

namespace detshare {
namespace {

namespace fs = std::filesystem;

constexpr uid_t kFirst = 2'000'000'000;
constexpr EngineUser kUser{kFirst + 1, kFirst};
const char* const kRange = "2000000000-2000000009";

struct stat StatOf(const std::string& path) {
  struct stat status {};
  REQUIRE(lstat(path.c_str(), &status) == 0);
  return status;
}

TEST_CASE("A user that is free again is the last to be chosen") {
  EngineUsers users({10, 12});
  CHECK(users.group() == 10);
  CHECK(users.Choose({}) == 10);
  CHECK(users.Choose({}) == 11);
  CHECK(users.Choose({}) == 12);
  CHECK(users.Choose({10}) == 11);
  CHECK(users.Choose({10, 12}) == 11);
  CHECK_FALSE(users.Choose({10, 11, 12}).has_value());
}

TEST_CASE("A directory for an engine is new, and the engine's") {
  if (!IsRoot()) return;
  TestDirectory directory;
  const std::string path = directory.path + "/engine";
  REQUIRE(MakeDirectoryFor(kUser, path).ok());
  CHECK(StatOf(path).st_uid == kUser.uid);
  CHECK(StatOf(path).st_gid == kUser.gid);
  CHECK((StatOf(path).st_mode & 07777) == 0711);
  CHECK_FALSE(MakeDirectoryFor(kUser, path).ok());
}

TEST_CASE("A runtime directory that other users cannot reach is refused by name") {
  TestDirectory directory;
  const std::string inner = directory.path + "/run";
  REQUIRE(fs::create_directory(inner));
  chmod(directory.path.c_str(), 0711);
  chmod(inner.c_str(), 0755);
  CHECK(LetsUsersThrough(inner).ok());
  chmod(directory.path.c_str(), 0700);
  const absl::Status refused = LetsUsersThrough(inner);
  CHECK(absl::IsFailedPrecondition(refused));
  CHECK(refused.message().find("chmod o+x " + directory.path) != std::string::npos);
  CHECK_FALSE(LetsUsersThrough(directory.path + "/missing").ok());
}

TEST_CASE("A tree is given with its files, but not what lies elsewhere") {
  if (!IsRoot()) return;
  TestDirectory directory;
  const std::string path = directory.path + "/cache", other = directory.path + "/other";
  std::ofstream(other) << "x";
  REQUIRE(GiveTreeTo(kUser, path).ok());
  fs::create_directory(path + "/ab");
  std::ofstream(path + "/ab/code") << "x";
  fs::create_symlink(other, path + "/link");
  fs::create_hard_link(other, path + "/ab/same");
  const EngineUser next{kUser.uid + 1, kUser.gid};
  REQUIRE(GiveTreeTo(next, path).ok());
  CHECK(StatOf(path).st_uid == next.uid);
  CHECK(StatOf(path + "/ab/code").st_uid == next.uid);
  CHECK(StatOf(other).st_uid == 0);
}

// The line of /proc/PID/status.
std::string ProcessLine(pid_t process, const std::string& name) {
  std::ifstream file("/proc/" + std::to_string(process) + "/status");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind(name + ":\t", 0) == 0) return line.substr(name.size() + 2);
  }
  return "";
}

uid_t UserOf(pid_t process) { return static_cast<uid_t>(std::stoul(ProcessLine(process, "Uid"))); }

TEST_CASE(
    "Each engine runs as a user of its own, without capabilities, for programs of all users") {
  if (!IsRoot()) return;
  SupervisedDaemon daemon({"--engine-users", kRange}, "tenant");
  const auto a = Program(daemon, "chat"), b = Program(daemon, "chat"), c = As(kSomebody, daemon);
  c->tenant = "train";
  std::set<uid_t> users;
  for (TestClient* const program : {a.get(), b.get(), c.get()}) {
    REQUIRE(program->Open());
    program->CreateStream(1);
    CHECK(program->Allocate(1 << 20) != 0);
    CHECK(program->Synchronize(1) == 0);
    const pid_t engine = StatusOf(*program).pid();
    CHECK(UserOf(engine) >= kFirst);
    CHECK(UserOf(engine) <= kFirst + 9);
    CHECK(ProcessLine(engine, "CapPrm") == "0000000000000000");
    CHECK(ProcessLine(engine, "CapEff") == "0000000000000000");
    CHECK(ProcessLine(engine, "Groups") == " ");
    users.insert(UserOf(engine));
  }
  CHECK(users.size() == 2);
  // The program's user may use the session's file, and nobody else.
  const std::string file = c->directory + "/session";
  CHECK(StatOf(file).st_uid == UserOf(StatusOf(*c).pid()));
  CHECK((StatOf(file).st_mode & 07) == 0);
  for (const auto& [user, may] : {std::pair(kSomebody, true), std::pair(kSomebodyElse, false)}) {
    REQUIRE(syscall(SYS_setresuid, -1, user, -1) == 0);
    const int fd = open(file.c_str(), O_RDWR | O_CLOEXEC);
    REQUIRE(syscall(SYS_setresuid, -1, 0, -1) == 0);
    CHECK((fd >= 0) == may);
    if (fd >= 0) close(fd);
  }
}

TEST_CASE("Settings, reloads and endpoints reach engines with users of their own") {
  if (!IsRoot()) return;
  TestDirectory configuration;
  const std::string file = configuration.path + "/detshare.toml";
  std::ofstream(file) << "[daemon]\nengine_users = \"" << kRange << "\"\n";
  chmod(file.c_str(), 0600);  // engines cannot read it
  SupervisedDaemon daemon({"--config", file}, "tenant");
  Operator me(daemon.socket());
  proto::TenantSetting tenant;
  tenant.set_name("chat");
  tenant.set_memory(1 << 20);
  REQUIRE(me.Open("box", {}, tenant).ok());
  TestClient program(daemon.directory.path + "/endpoints/box/detshared.sock");
  REQUIRE(program.Open());
  CHECK(program.Allocate(2 << 20) == 0);
  CHECK(program.Allocate(1 << 19) != 0);
  const auto other = Program(daemon, "train");
  REQUIRE(other->Open());
  std::ofstream(file, std::ios::app) << "[[tenant]]\nname = \"train\"\nmemory = \"1MiB\"\n";
  kill(daemon.pid, SIGHUP);
  CHECK(Eventually([&] { return other->Allocate(2 << 20) == 0; }));
}

TEST_CASE("The next supervisor adopts engines with users of their own, and chooses others") {
  if (!IsRoot()) return;
  SupervisedDaemon daemon({"--engine-users", kRange}, "tenant");
  const auto a = Program(daemon, "chat");
  REQUIRE(a->Open());
  const pid_t engine = StatusOf(*a).pid();
  daemon.Kill();
  daemon.Start();
  const auto b = Program(daemon, "chat"), c = Program(daemon, "train");
  REQUIRE(b->Open());
  REQUIRE(c->Open());
  CHECK(StatusOf(*b).pid() == engine);
  CHECK(UserOf(StatusOf(*c).pid()) != UserOf(engine));
  a->CreateStream(1);
  CHECK(a->Synchronize(1) == 0);
  // An engine that must end ends.
  kill(daemon.pid, SIGINT);
  CHECK(Eventually([&] { return kill(engine, 0) != 0; }));
}

TEST_CASE("More isolation groups than users are refused with the reason") {
  if (!IsRoot()) return;
  SupervisedDaemon daemon({"--engine-users", "2000000000-2000000000"}, "tenant");
  const auto a = Program(daemon, "chat"), b = Program(daemon, "train");
  REQUIRE(a->Open());
  CHECK_FALSE(b->Open());
  CHECK(b->status().error_message().find("all users of engine_users have engines") !=
        std::string::npos);
}

}  // namespace
}  // namespace detshare
