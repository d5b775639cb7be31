// The daemon's messages to a service manager, and the sockets that it takes from it.
#include "server/service_manager.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <fstream>
#include <thread>

#include "server/base/logging.h"
#include "server/watchdog.h"
#include "tests/server/daemon_fixture.h"
#include "tests/server/daemon_process.h"
#include "tests/server/grpc_stubs.h"

namespace detshare {
namespace {

using std::chrono::milliseconds;

// The service manager's end of NOTIFY_SOCKET.
class FakeManager {
 public:
  FakeManager() {
    fd_ = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    const sockaddr_un address = UnixAddress(path());
    REQUIRE(bind(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0);
  }
  ~FakeManager() { close(fd_); }
  std::string path() const { return directory.path + "/notify"; }
  // The next message, or "" if none comes.
  std::string Next(int timeout_ms = 20'000) {
    pollfd wait{fd_, POLLIN, 0};
    if (poll(&wait, 1, timeout_ms) != 1) return "";
    char buffer[4096];
    const ssize_t bytes = recv(fd_, buffer, sizeof(buffer), 0);
    return bytes > 0 ? std::string(buffer, bytes) : "";
  }
  // Whether a message that begins like this comes. Skips other messages.
  bool Receives(const std::string& begin) {
    for (;;) {
      const std::string message = Next();
      if (message.empty()) return false;
      if (message.rfind(begin, 0) == 0) return true;
    }
  }

  TestDirectory directory;

 private:
  int fd_ = -1;
};

// A socket as the service manager makes it for the daemon.
int ManagersSocket(const std::string& path) {
  const sockaddr_un address = UnixAddress(path);
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  REQUIRE(bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0);
  REQUIRE(listen(fd, 16) == 0);
  return fd;
}

// detshared with the variables of a service manager. Descriptor 3 is the socket, if there is one.
class Service {
 public:
  Service(const std::vector<std::pair<std::string, std::string>>& variables, int socket,
          const std::vector<std::string>& more) {
    const AddressWindows windows = TestWindows();
    std::vector<std::string> command = {
        getenv("DETSHARED"),     "--backend=soft",
        "--soft-memory=64MB",    "--soft-threads=1",
        "--device-window-base",  std::to_string(windows.device_base),
        "--device-window-bytes", std::to_string(windows.device_bytes),
        "--pinned-window-base",  std::to_string(windows.pinned_base),
        "--pinned-window-bytes", std::to_string(windows.pinned_bytes)};
    command.insert(command.end(), more.begin(), more.end());
    std::vector<char*> argv;
    for (std::string& argument : command) argv.push_back(argument.data());
    argv.push_back(nullptr);
    const std::string log = directory.path + "/log";
    pid = fork();
    if (pid == 0) {
      const int fd = open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
      dup2(fd, STDERR_FILENO);
      for (const auto& [name, value] : variables) setenv(name.c_str(), value.c_str(), 1);
      if (socket >= 0) {
        const int copy = fcntl(socket, F_DUPFD, 100);
        dup2(copy, 3);
        close(copy);
        setenv("LISTEN_PID", std::to_string(getpid()).c_str(), 1);
        if (getenv("LISTEN_FDS") == nullptr) setenv("LISTEN_FDS", "1", 1);
      }
      execv(argv[0], argv.data());
      _exit(127);
    }
  }
  ~Service() {
    if (pid > 0) {
      kill(pid, SIGKILL);
      waitpid(pid, nullptr, 0);
    }
  }
  int ExitCode() {
    int status = 0;
    if (!Eventually([&] { return waitpid(pid, &status, WNOHANG) == pid; })) return -1;
    pid = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
  }
  std::string Log() const {
    std::string text;
    const int fd = open((directory.path + "/log").c_str(), O_RDONLY);
    char buffer[4096];
    for (ssize_t bytes; (bytes = read(fd, buffer, sizeof(buffer))) > 0;) text.append(buffer, bytes);
    close(fd);
    return text;
  }

  TestDirectory directory;
  pid_t pid = -1;
};

TEST_CASE("Messages are sd_notify's, and a status cannot smuggle in a second variable") {
  FakeManager fake;
  const ServiceManager manager(fake.path());
  manager.Ready();
  CHECK(fake.Next() == "READY=1");
  manager.Alive();
  CHECK(fake.Next() == "WATCHDOG=1");
  manager.Stopping();
  CHECK(fake.Next() == "STOPPING=1");
  manager.Say("one\nREADY=1");
  CHECK(fake.Next() == "STATUS=one READY=1");
  manager.Reloading();
  CHECK_THAT(fake.Next(), Catch::Matches("RELOADING=1\nMONOTONIC_USEC=[0-9]+"));
}

TEST_CASE("Without a usable service manager nothing is sent") {
  for (const std::string& address :
       {std::string(), std::string("/"), std::string("relative"), std::string("vsock:2:1"),
        std::string("/nowhere/at/all"), std::string(500, '/'), std::string("@detshare-nobody")}) {
    ServiceManager(address).Ready();
  }
}

TEST_CASE("An abstract socket of the service manager works, too") {
  const std::string name = "detshare-test-" + std::to_string(getpid());
  const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  REQUIRE(bind(fd, reinterpret_cast<sockaddr*>(&address),
               offsetof(sockaddr_un, sun_path) + 1 + name.size()) == 0);
  ServiceManager("@" + name).Ready();
  char buffer[64];
  CHECK(recv(fd, buffer, sizeof(buffer), MSG_DONTWAIT) == 7);
  close(fd);
}

TEST_CASE("A watchdog counts only for the process that it names") {
  const std::string own = std::to_string(getpid());
  struct Case {
    const char *microseconds, *pid;
    int64_t expected;
  };
  for (const Case& one :
       {Case{"5000000", own.c_str(), 5'000'000}, Case{"5000000", "", 5'000'000},
        Case{"5000000", "1", 0}, Case{"5000000", "x", 0}, Case{"-1", "", 0}, Case{"", "", 0},
        Case{"99999999999999999999", "", 0}, Case{"18446744073709551615", "", 0}}) {
    setenv("WATCHDOG_USEC", one.microseconds, 1);
    setenv("WATCHDOG_PID", one.pid, 1);
    CHECK(ServiceManager::FromEnvironment().watchdog().count() == one.expected);
  }
  unsetenv("WATCHDOG_USEC");
  unsetenv("WATCHDOG_PID");
}

TEST_CASE("A watchdog is fed only while the check succeeds") {
  std::atomic<int> checks{0}, fed{0};
  std::atomic<bool> content{true};
  SetLogLevel(LogLevel::kError);
  Watchdog watchdog(
      milliseconds(1),
      [&] {
        ++checks;
        return content ? absl::OkStatus() : absl::InternalError("a test");
      },
      [&] { ++fed; });
  REQUIRE(Eventually([&] { return fed > 3; }));
  content = false;
  const int checks_before = checks;
  REQUIRE(Eventually([&] { return checks > checks_before + 1; }));
  const int fed_before = fed;
  REQUIRE(Eventually([&] { return checks > checks_before + 6; }));
  CHECK(fed == fed_before);
  content = true;
  CHECK(Eventually([&] { return fed > fed_before; }));
}

TEST_CASE("A serving daemon replies to itself; a daemon that accepts nothing does not") {
  TestDaemon daemon;
  CHECK(AskDaemon(daemon.socket(), milliseconds(20'000)).ok());

  TestDirectory directory;
  CHECK(AskDaemon(directory.path + "/none", milliseconds(100)).code() ==
        absl::StatusCode::kUnavailable);
  const absl::StatusOr<int> deaf = ListenOn(directory.path + "/deaf", 0600);
  REQUIRE(deaf.ok());
  CHECK(AskDaemon(directory.path + "/deaf", milliseconds(50)).code() ==
        absl::StatusCode::kDeadlineExceeded);
  close(*deaf);
}

TEST_CASE(
    "A service takes its socket from the manager, says when it is ready, and leaves the socket") {
  FakeManager fake;
  const std::string path = fake.directory.path + "/d.sock";
  const int listening = ManagersSocket(path);
  // The connection comes before the daemon and waits in the socket's queue.
  const int early = ConnectTo(path);
  REQUIRE(early >= 0);
  Service service({{"NOTIFY_SOCKET", fake.path()}, {"WATCHDOG_USEC", "2000000"}}, listening, {});
  CHECK(fake.Receives("READY=1"));
  CHECK(fake.Receives("STATUS=serving 1 device (soft), sessions: "));
  CHECK(fake.Receives("WATCHDOG=1"));
  CHECK(fake.Receives("WATCHDOG=1"));
  TestClient client(path);
  CHECK(client.Open());
  kill(service.pid, SIGTERM);
  CHECK(fake.Receives("STOPPING=1"));
  CHECK(service.ExitCode() == 0);
  CHECK(std::filesystem::exists(path));
  CHECK_FALSE(std::filesystem::exists(fake.directory.path + "/sessions"));
  close(early);
  close(listening);
}

TEST_CASE("With several engines, too, a service takes its socket from the manager") {
  FakeManager fake;
  const std::string path = fake.directory.path + "/d.sock";
  const int listening = ManagersSocket(path);
  Service service({{"NOTIFY_SOCKET", fake.path()}}, listening, {"--isolation", "tenant"});
  REQUIRE(fake.Receives("READY=1"));
  {
    TestClient client(path), admin(path);
    CHECK(client.Open());
    client.Close();
    const auto none = [&] {
      grpc::ClientContext context;
      proto::Status status;
      return AdminOf(admin)->GetStatus(&context, {}, &status).ok() && status.sessions_size() == 0;
    };
    CHECK(Eventually(none));
  }
  // Programs would keep their engines.
  kill(service.pid, SIGTERM);
  CHECK(service.ExitCode() == 0);
  CHECK(std::filesystem::exists(path));
  CHECK_FALSE(std::filesystem::exists(fake.directory.path + "/engines"));
  close(listening);
}

TEST_CASE("A service that lost its device is the same service, with the same socket") {
  FakeManager fake;
  const std::string path = fake.directory.path + "/d.sock";
  const int listening = ManagersSocket(path);
  Service service({{"NOTIFY_SOCKET", fake.path()}, {"WATCHDOG_USEC", "2000000"}}, listening,
                  {"--soft-lose-device-on-fault"});
  REQUIRE(fake.Receives("READY=1"));
  {
    TestClient guilty(path);
    REQUIRE(guilty.Open());
    guilty.CreateStream(1);
    const KernelId kernel = guilty.GetKernel(guilty.Load(kFaultPtx), "fault");
    REQUIRE(kernel != 0);
    guilty.ring->Send(Op::cuLaunchKernelEx, guilty.LaunchOf(kernel, 1));
    guilty.AwaitEnd();
  }
  CHECK(fake.Receives("STATUS=a device was lost"));
  CHECK(fake.Receives("READY=1"));
  CHECK(fake.Receives("WATCHDOG=1"));
  TestClient next(path);
  CHECK(next.Open());
  kill(service.pid, SIGTERM);
  CHECK(service.ExitCode() == 0);
  CHECK(std::filesystem::exists(path));
  close(listening);
}

TEST_CASE("A reload applies what can change, names what cannot, and ignores a file with mistakes") {
  FakeManager fake;
  TestDirectory directory;
  const std::string file = directory.path + "/detshare.toml", socket = directory.path + "/d.sock";
  const auto write_file = [&](const std::string& text) {
    std::ofstream(file) << "[daemon]\nsocket = \"" << socket << "\"\n" << text;
  };
  write_file("log_level = \"error\"\n");
  Service service({{"NOTIFY_SOCKET", fake.path()}}, -1, {"--config", file});
  REQUIRE(fake.Receives("READY=1"));
  const auto reload = [&] {
    kill(service.pid, SIGHUP);
    CHECK(fake.Receives("RELOADING=1"));
    CHECK(fake.Receives("READY=1"));
    return service.Log();
  };
  CHECK(service.Log().empty());
  write_file("log_level = \"info\"\nstaging_mib = 7\n");
  std::string log = reload();
  CHECK_THAT(log, Catch::Contains("changed by the configuration: [daemon] log_level: \"error\" -> "
                                  "\"info\"\n"));
  CHECK_THAT(log, Catch::Contains("only when detshared is started again: [daemon] staging_mib: "));
  CHECK_THAT(reload().substr(log.size()), Catch::Contains("[daemon] staging_mib"));
  log = service.Log();
  write_file("log_level = \"loud\"\n");
  CHECK_THAT(reload().substr(log.size()),
             Catch::Contains("detshare.toml:3:13: log_level is error, warning, info or debug"));
  // No part of the new configuration holds: the level is still info.
  log = service.Log();
  write_file("log_level = \"info\"\n");
  CHECK_THAT(reload().substr(log.size()), Catch::Contains("the configuration has not changed"));
  TestClient client(socket);
  CHECK(client.Open());
  // The reply through the socket has the text of the log.
  const auto ask = [&](proto::Reloaded* reloaded) {
    grpc::ClientContext context;
    return AdminOf(client)->Reload(&context, {}, reloaded);
  };
  write_file("[policy]\nname = \"fair\"\n");
  proto::Reloaded reloaded;
  REQUIRE(ask(&reloaded).ok());
  CHECK(fake.Receives("RELOADING=1"));
  CHECK(fake.Receives("READY=1"));
  REQUIRE(reloaded.changed_size() == 1);
  CHECK(reloaded.changed(0) == "[policy]: auto -> fair");
  write_file("[policy]\nname = \"magic\"\n");
  const grpc::Status refused = ask(&reloaded);
  CHECK(refused.error_code() == grpc::StatusCode::INVALID_ARGUMENT);
  CHECK_THAT(refused.error_message(), Catch::Contains("detshare.toml:4:"));
  kill(service.pid, SIGTERM);
  CHECK(service.ExitCode() == 0);
}

TEST_CASE("A daemon does not start with a configuration that has mistakes, and flags override it") {
  TestDirectory directory;
  const std::string file = directory.path + "/detshare.toml";
  std::ofstream(file) << "[daemon]\nsocket = \"/nowhere/d.sock\"\n[limits]\nstream = 3\n";
  {
    Service service({}, -1, {"--config", file});
    CHECK(service.ExitCode() == 1);
    CHECK_THAT(service.Log(), Catch::Contains("detshare.toml:4:1: [limits] has no \"stream\""));
  }
  std::ofstream(file) << "[daemon]\nsocket = \"/nowhere/d.sock\"\nlog_level = \"error\"\n";
  {
    Service service({}, -1,
                    {"--config", file, "--log-level=info", "--socket", directory.path + "/d.sock"});
    CHECK(Eventually([&] { return std::filesystem::exists(directory.path + "/d.sock"); }));
    kill(service.pid, SIGTERM);
    CHECK(service.ExitCode() == 0);
    CHECK_THAT(service.Log(), Catch::Contains("detshared ends"));
  }
  {
    Service service({}, -1, {"--config", "/nowhere/at/all.toml"});
    CHECK(service.ExitCode() == 1);
  }
}

TEST_CASE("A descriptor that is no socket for the daemon is refused") {
  TestDirectory directory;
  const std::string path = directory.path + "/d.sock";
  const int listening = ManagersSocket(path);
  {
    Service service({}, listening, {"--socket", "/elsewhere/d.sock"});
    CHECK(service.ExitCode() == 1);
    CHECK_THAT(service.Log(), Catch::Contains(path) && Catch::Contains("/elsewhere/d.sock"));
  }
  {
    Service service({{"LISTEN_FDS", "2"}}, listening, {});
    CHECK(service.ExitCode() == 1);
    CHECK_THAT(service.Log(), Catch::Contains("2 sockets"));
  }
  for (const int type : {SOCK_STREAM, SOCK_DGRAM}) {  // not bound, or not a stream socket
    const int fd = socket(AF_UNIX, type, 0);
    Service service({}, fd, {});
    CHECK(service.ExitCode() == 1);
    close(fd);
  }
  {
    const int file = open("/dev/null", O_RDWR);
    Service service({}, file, {});
    CHECK(service.ExitCode() == 1);
    close(file);
  }
  close(listening);
}

}  // namespace
}  // namespace detshare
