// Engines that have opened the devices and wait for an isolation group.
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/stat.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "server/engines/engine_channel.h"
#include "server/engines/engine_pages.h"
#include "server/engines/engine_process.h"
#include "tests/server/grpc_stubs.h"
#include "tests/server/supervised_daemon.h"
#include "tests/test_file.h"

namespace detshare {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;

std::vector<pid_t> Spares(const SupervisedDaemon& daemon) {
  TestClient admin(daemon.socket());
  const proto::Status status = StatusOf(admin);
  return {status.spare_engines().begin(), status.spare_engines().end()};
}

// Waits until there is one that can get a group.
pid_t AwaitSpare(const SupervisedDaemon& daemon) {
  REQUIRE(Eventually([&] { return Spares(daemon).size() == 1; }));
  return Spares(daemon).front();
}

TEST_CASE("A group's first program gets the spare engine, and another one begins") {
  SupervisedDaemon daemon({"--spare-engines", "1"}, "tenant");
  const pid_t spare = AwaitSpare(daemon);
  const auto chat = Program(daemon, "chat");
  REQUIRE(chat->Open());
  CHECK(EngineOf(*chat) == spare);
  // It is an engine as any other from then on.
  CHECK(chat->directory.find("/engines/chat/sessions/") != std::string::npos);
  CHECK(chat->Allocate(1 << 20) != 0);
  TestClient admin(daemon.socket());
  const proto::Status status = StatusOf(admin);
  REQUIRE(status.engines_size() == 1);
  CHECK(status.engines(0).group() == "chat");
  CHECK(status.engines(0).pid() == spare);
  CHECK(status.engines(0).sessions() == 1);
  CHECK(status.engines(0).socket() == daemon.DirectoryOf("chat") + "/detshared.sock");
  // Users who may not administer the daemon see the engines of their own sessions only.
  if (IsRoot()) CHECK(StatusOf(*As(kSomebody, daemon)).spare_engines_size() == 0);
  const pid_t next = AwaitSpare(daemon);
  CHECK(next != spare);
  // Further programs of the group are in its engine, and those of another group in the next one.
  const auto more = Program(daemon, "chat"), train = Program(daemon, "train");
  REQUIRE(more->Open());
  REQUIRE(train->Open());
  CHECK(EngineOf(*more) == spare);
  CHECK(EngineOf(*train) == next);
}

TEST_CASE("A program whose tenant's engine was killed gets the spare engine") {
  SupervisedDaemon daemon({"--spare-engines", "1"}, "tenant");
  AwaitSpare(daemon);
  const auto chat = Program(daemon, "chat");
  REQUIRE(chat->Open());
  const pid_t spare = AwaitSpare(daemon);
  const pid_t killed = EngineOf(*chat);
  kill(killed, SIGKILL);
  REQUIRE(Eventually([&] { return !Runs(killed); }));
  REQUIRE(Eventually([&] {
    const auto next = Program(daemon, "chat");
    return next->Open() && EngineOf(*next) == spare;
  }));
}

TEST_CASE("A spare engine that is killed costs programs nothing") {
  SupervisedDaemon daemon({"--spare-engines", "1"}, "tenant");
  kill(AwaitSpare(daemon), SIGKILL);
  REQUIRE(Eventually([&] { return daemon.ListedEngines().empty(); }));
  const auto chat = Program(daemon, "chat");
  REQUIRE(chat->Open());
  CHECK(chat->Allocate(1 << 20) != 0);
}

TEST_CASE("A spare engine leaves its room on the device to a program that needs it") {
  SupervisedDaemon daemon({"--spare-engines", "1"}, "tenant");
  AwaitSpare(daemon);
  const auto chat = Program(daemon, "chat");
  REQUIRE(chat->Open());
  const pid_t spare = AwaitSpare(daemon);
  // The card of 256 MB has no room for both: the request is refused, once the spare engine has ended.
  REQUIRE(chat->Allocate(200 << 20) != 0);
  CHECK(Eventually([&] {
    CHECK(chat->Allocate(100 << 20) == 0);
    return !Runs(spare);
  }));
  CHECK(chat->Allocate(1 << 20) != 0);
}

TEST_CASE("A supervisor ends the spare engine of the one before, and begins its own") {
  SupervisedDaemon daemon({"--spare-engines", "1"}, "tenant");
  AwaitSpare(daemon);
  const auto chat = Program(daemon, "chat");
  REQUIRE(chat->Open());
  const pid_t before = AwaitSpare(daemon);
  daemon.Kill();
  daemon.Start();
  const pid_t spare = AwaitSpare(daemon);
  CHECK(spare != before);
  CHECK(Eventually([&] { return !Runs(before); }));
  CHECK(chat->Allocate(1 << 20) != 0);
  // No directory of a spare engine is left, but that of the new one.
  CHECK(Eventually([&] {
    int spares = 0;
    for (const auto& entry : fs::directory_iterator(daemon.runtime + "/engines"))
      spares += entry.path().filename().string().starts_with("spare~");
    return spares == 1;
  }));
}

TEST_CASE("A reload changes the number of spare engines") {
  TestDirectory configuration;
  const std::string file = configuration.path + "/detshare.toml";
  const auto write = [&](const std::string& text) {
    std::ofstream(file) << "[daemon]\n" << text;
    chmod(file.c_str(), 0600);
  };
  write("spare_engines = 2\n");
  SupervisedDaemon daemon({"--config", file}, "tenant");
  REQUIRE(Eventually([&] { return Spares(daemon).size() == 2; }));
  write("");  // software GPUs need none
  kill(daemon.pid, SIGHUP);
  CHECK(Eventually([&] { return Spares(daemon).empty(); }));
  write("spare_engines = 1\n");
  kill(daemon.pid, SIGHUP);
  AwaitSpare(daemon);
}

TEST_CASE("A spare engine with a user of its own finds its group's compiled code") {
  if (!IsRoot()) return;
  TestDirectory caches;
  REQUIRE(chmod(caches.path.c_str(), 0755) == 0);
  setenv("CUDA_CACHE_PATH", caches.path.c_str(), /*overwrite=*/1);
  SupervisedDaemon daemon({"--spare-engines", "1", "--engine-users", "2000000000-2000000009"},
                          "tenant");
  unsetenv("CUDA_CACHE_PATH");
  const pid_t spare = AwaitSpare(daemon);
  const auto cwd = [&] {
    return fs::read_symlink("/proc/" + std::to_string(spare) + "/cwd").string();
  };
  CHECK(cwd() == daemon.DirectoryOf("spare~"));
  const auto chat = Program(daemon, "chat");
  REQUIRE(chat->Open());
  REQUIRE(EngineOf(*chat) == spare);
  CHECK(cwd() == caches.path + "/engines/chat");
  struct stat folder, session;
  REQUIRE(stat(cwd().c_str(), &folder) == 0);
  REQUIRE(stat((chat->directory + "/session").c_str(), &session) == 0);
  CHECK(folder.st_uid == session.st_uid);
  CHECK(folder.st_uid >= 2000000000);
}

struct SpareEngine {
  TestDirectory directory;
  const EngineChannel channel = MakeEngineChannel().value();
  const std::unique_ptr<EnginePages> pages = *EnginePages::Create();
  const std::unique_ptr<EnginePages> other = *EnginePages::Create();
  const std::unique_ptr<EngineMember> member =
      EngineMember::Create(channel.engine, pages->fd(), directory.path, milliseconds(60'000))
          .value();
  const int stop = eventfd(0, EFD_CLOEXEC);
  ~SpareEngine() { close(stop); }

  std::optional<Assignment> Await() {
    return member->AwaitAssignment(
        [this](const Received& received) {
          if (received.peer.has_value())
            REQUIRE(pages->Add(received.peer->pid, received.peer->page).ok());
          if (received.peers.has_value()) pages->Keep(*received.peers);
        },
        stop);
  }
};

TEST_CASE_METHOD(SpareEngine,
                 "A spare engine learns its group, and forgets what it need not know") {
  REQUIRE(PassClosedEndpoint(channel.supervisor, 5).ok());
  REQUIRE(PassLookForRoom(channel.supervisor).ok());
  REQUIRE(PassOrder(channel.supervisor, EngineOrder::kReload).ok());
  REQUIRE(PassOrder(channel.supervisor, EngineOrder::kReload).ok());
  REQUIRE(PassPeer(channel.supervisor, 77, other->fd()).ok());
  REQUIRE(PassPeers(channel.supervisor, {{77}, {77}}).ok());
  REQUIRE(PassAssignment(channel.supervisor, {"chat", "chat~2", "/cache/chat"}).ok());
  REQUIRE(PassClosedEndpoint(channel.supervisor, 6).ok());
  const std::optional<Assignment> assignment = Await();
  REQUIRE(assignment.has_value());
  CHECK(assignment->group == "chat");
  CHECK(assignment->directory == "chat~2");
  CHECK(assignment->cache == "/cache/chat");
  // The other engine is a spare one, too, so this one shares the devices with nobody that works.
  CHECK(pages->peers().used == 1);
  CHECK_FALSE(pages->peers().AnyServes());
  int reloads = 0;
  std::vector<uint64_t> closed;
  CHECK(member->Proceed(
      [&](const Received& received) {
        reloads += received.order == EngineOrder::kReload;
        if (received.closed_endpoint.has_value()) closed.push_back(*received.closed_endpoint);
      },
      [] { return true; }));
  CHECK(reloads == 1);
  CHECK(closed == std::vector<uint64_t>{6});
  pages->Keep({{77}, {}});
  CHECK(pages->peers().AnyServes());
  close(channel.supervisor);
}

TEST_CASE_METHOD(SpareEngine, "A spare engine ends with its supervisor, and when it is told to") {
  SECTION("the supervisor is gone") { close(channel.supervisor); }
  SECTION("the supervisor ends") {
    REQUIRE(PassOrder(channel.supervisor, EngineOrder::kRelease).ok());
  }
  SECTION("it is told to") { REQUIRE(PassOrder(channel.supervisor, EngineOrder::kEnd).ok()); }
  SECTION("it gets a signal") { REQUIRE(eventfd_write(stop, 1) == 0); }
  CHECK_FALSE(Await().has_value());
}

}  // namespace
}  // namespace detshare
