// detshared: flags, signals, and what happens when a device is lost.
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "proto/version.h"
#include "server/backends.h"
#include "server/daemon.h"
#include "server/logging.h"

extern char** environ;

namespace detshare {
namespace {

constexpr char kDefaultSocket[] = "/run/detshare/detshared.sock";
constexpr std::chrono::milliseconds kEndPatience(4000);

struct Flags {
  Daemon::Options daemon;
  BackendOptions backend;
  std::string log_level = "info";
  std::string socket_mode = "666";
  std::vector<std::string> tenants;
  int spin_us = -1, client_spin_us = -1;
  uint64_t image_store_mib = 1024;
  uint64_t staging_mib = 0;
  int ready_fd = -1;
  bool remove_runtime_directory = false;
  bool version = false;
};

void AddFlags(CLI::App& app, Flags& flags) {
  ServerOptions& server = flags.daemon.server;
  app.add_option("--socket", flags.daemon.socket, "Where clients connect")
      ->type_name("PATH")
      ->envname("DETSHARE_SOCKET");
  app.add_option("--socket-mode", flags.socket_mode, "Who may connect, as chmod takes it")
      ->type_name("OCTAL");
  app.add_option("--runtime-dir", server.runtime_directory,
                 "Where sessions have their shared files, on a tmpfs [the socket's directory]")
      ->type_name("DIR");
  app.add_option("--backend", flags.backend.backend,
                 "The GPUs: real ones, software, or whichever is there")
      ->check(CLI::IsMember({"auto", "cuda", "soft"}));
  app.add_option("--policy", server.policy, "Who runs on which SMs")->type_name("NAME");
  app.add_option("--tenant", flags.tenants,
                 "A tenant's share of the SMs, for policies that know shares; may be repeated")
      ->type_name("NAME=PERCENT")
      ->allow_extra_args(false);
  app.add_option(
         "--spin-us", flags.spin_us,
         "How long a session's thread looks for work before it sleeps [50 on more than 4 cores]")
      ->type_name("US");
  app.add_option("--client-spin-us", flags.client_spin_us,
                 "... and a client for the GPU: as long as natively it would for short work [on "
                 "more than 4 cores 5000, "
                 "50 on software GPUs]")
      ->type_name("US");
  app.add_option("--log-level", flags.log_level)
      ->check(CLI::IsMember({"error", "warning", "info", "debug"}));
  app.add_option("--staging-mib", flags.staging_mib,
                 "Staging memory of a session for pageable copies [16; 64 with cuda]")
      ->check(CLI::Range(1, 1024));
  app.add_option("--image-store-mib", flags.image_store_mib,
                 "Code that is kept so that later processes of the same user need not send it")
      ->check(CLI::Range(0, 65536));
  app.add_option("--cuda-driver", flags.backend.cuda_driver, "The real libcuda.so.1 [looked for]")
      ->type_name("PATH");
  app.add_option("--cuda-sm-group", flags.backend.cuda_sm_group,
                 "SMs of a partition come in groups of this size")
      ->check(CLI::IsMember({8, 2}));
  app.add_option("--soft-sms", flags.backend.soft_sms, "SMs of the software GPU");
  app.add_option("--soft-memory", flags.backend.soft_memory, "Memory of the software GPU")
      ->transform(CLI::AsSizeValue(false))
      ->type_name("SIZE");
  app.add_option("--soft-cc", flags.backend.soft_cc, "Compute capability of the software GPU")
      ->type_name("X.Y");
  app.add_option("--soft-devices", flags.backend.soft_devices, "Software GPUs")
      ->check(CLI::Range(1, 8));
  app.add_option("--soft-threads", flags.backend.soft_threads,
                 "Threads of a software GPU [one for each core]");
  app.add_option("--device-window-base", server.windows.device_base,
                 "First device address of all sessions")
      ->group("Address windows");
  app.add_option("--device-window-bytes", server.windows.device_bytes,
                 "Device addresses of one session")
      ->group("Address windows");
  app.add_option("--pinned-window-base", server.windows.pinned_base,
                 "First address of pinned host memory")
      ->group("Address windows");
  app.add_option("--pinned-window-bytes", server.windows.pinned_bytes,
                 "Pinned addresses of one session")
      ->group("Address windows");
  app.add_flag("--version", flags.version, "Print the version");
  // What the daemon, the launcher and the tests hand to it.
  app.add_option("--listen-fd", flags.daemon.listen_fd)->group("");
  app.add_option("--first-session", server.first_session)->group("");
  app.add_option("--ready-fd", flags.ready_fd)->group("");
  app.add_flag("--remove-runtime-dir", flags.remove_runtime_directory)->group("");
  app.add_flag("--soft-lose-device-on-fault", server.lose_device_on_fault)->group("");
}

bool ParseTenants(const std::vector<std::string>& texts, std::vector<policy::Tenant>* tenants) {
  for (const std::string& text : texts) {
    const size_t equals = text.rfind('=');
    policy::Tenant& tenant = tenants->emplace_back();
    if (equals == std::string::npos || equals == 0 ||
        !absl::SimpleAtoi(text.substr(equals + 1), &tenant.sm_percent)) {
      LogError("--tenant is NAME=PERCENT, not ", text);
      return false;
    }
    tenant.name = text.substr(0, equals);
  }
  return true;
}

// The same command, for the process that replaces this one: it takes over the socket and goes on
// counting.
std::vector<std::string> CommandAfterLoss(const std::vector<std::string>& arguments, int listen_fd,
                                          uint64_t next_session) {
  std::vector<std::string> command;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    const bool replaced =
        argument == "--listen-fd" || argument == "--first-session" || argument == "--ready-fd";
    if (replaced) {
      ++i;
      continue;
    }
    command.push_back(argument);
  }
  for (const std::string& more : {std::string("--listen-fd"), absl::StrCat(listen_fd),
                                  std::string("--first-session"), absl::StrCat(next_session)}) {
    command.push_back(more);
  }
  return command;
}

// Does not return.
void ReplaceProcess(const std::vector<std::string>& arguments, Daemon& daemon) {
  std::vector<std::string> command =
      CommandAfterLoss(arguments, daemon.listen_fd(), daemon.manager().next_session());
  std::vector<char*> argv;
  for (std::string& argument : command) argv.push_back(argument.data());
  argv.push_back(nullptr);
  LogWarning("starting anew: nothing else brings a lost device back");
  // Clients learn from their sessions' files; this lets gRPC's message with the reason out first.
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  fcntl(daemon.listen_fd(), F_SETFD, 0);
  execve("/proc/self/exe", argv.data(), environ);
  LogError("cannot execute this program again");
  _exit(1);
}

int Serve(const std::vector<std::string>& arguments, Flags& flags) {
  LogLevel level = LogLevel::kInfo;
  ParseLogLevel(flags.log_level, &level);
  SetLogLevel(level);
  if (!ParseTenants(flags.tenants, &flags.daemon.server.tenants)) return 1;
  if (flags.daemon.socket.empty()) flags.daemon.socket = kDefaultSocket;
  flags.daemon.socket_mode =
      static_cast<mode_t>(std::strtoul(flags.socket_mode.c_str(), nullptr, 8));
  if (flags.daemon.listen_fd >= 0) fcntl(flags.daemon.listen_fd, F_SETFD, FD_CLOEXEC);

  // Before any thread begins: all of them leave these to the loop below.
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  sigprocmask(SIG_BLOCK, &signals, nullptr);
  signal(SIGPIPE, SIG_IGN);
  const int signal_fd = signalfd(-1, &signals, SFD_CLOEXEC);
  const int lost_fd = eventfd(0, EFD_CLOEXEC);

  absl::StatusOr<OpenedBackend> backend = OpenBackend(flags.backend);
  if (!backend.ok()) {
    LogError("no device: ", std::string(backend.status().message()));
    return 1;
  }
  const bool real = backend->name == "cuda";
  ServerOptions& server = flags.daemon.server;
  const int default_spin = std::thread::hardware_concurrency() > 4 ? 50 : 0;
  server.spin_us = flags.spin_us >= 0 ? flags.spin_us : default_spin;
  server.client_spin_us = flags.client_spin_us >= 0 ? flags.client_spin_us
                          : real                    ? 100 * default_spin
                                                    : default_spin;
  server.image_store_bytes = flags.image_store_mib << 20;
  server.region.staging_bytes = (flags.staging_mib != 0 ? flags.staging_mib : real ? 64 : 16) << 20;
  flags.daemon.backend = backend->name;
  flags.daemon.host_telemetry = std::move(backend->telemetry);
  flags.daemon.device_lost = [lost_fd] {
    const uint64_t one = 1;
    [[maybe_unused]] ssize_t written = write(lost_fd, &one, sizeof(one));
  };
  const std::string runtime_directory =
      server.runtime_directory.empty()
          ? std::filesystem::path(flags.daemon.socket).parent_path().string()
          : server.runtime_directory;
  absl::StatusOr<std::unique_ptr<Daemon>> daemon =
      Daemon::Start(std::move(backend->devices), flags.daemon);
  if (!daemon.ok()) {
    LogError(std::string(daemon.status().message()));
    return 1;
  }
  LogInfo("detshared ", kVersion, " serves at ", flags.daemon.socket, ", backend ", backend->name,
          ", policy ", server.policy);
  if (flags.ready_fd >= 0) {
    [[maybe_unused]] ssize_t written = write(flags.ready_fd, "\n", 1);
    close(flags.ready_fd);
  }
  for (;;) {
    pollfd fds[2] = {{signal_fd, POLLIN, 0}, {lost_fd, POLLIN, 0}};
    if (poll(fds, 2, -1) < 0) continue;
    if (fds[1].revents != 0) ReplaceProcess(arguments, **daemon);
    if (fds[0].revents != 0) break;
  }
  LogInfo("detshared ends");
  const bool empty = (*daemon)->Stop(kEndPatience);
  std::error_code ignored;
  if (!empty) {
    LogWarning("kernels are still running; ending anyway");
    std::filesystem::remove_all(runtime_directory + "/sessions", ignored);
  } else {
    daemon->reset();
  }
  if (flags.remove_runtime_directory) std::filesystem::remove_all(runtime_directory, ignored);
  if (!empty) _exit(0);
  return 0;
}

}  // namespace
}  // namespace detshare

int main(int argc, char** argv) {
  detshare::Flags flags;
  CLI::App app("The daemon that owns the GPUs and shares them among CUDA programs.", "detshared");
  detshare::AddFlags(app, flags);
  CLI11_PARSE(app, argc, argv);
  if (flags.version) {
    std::cout << "detshared " << detshare::kVersion << " (ABI " << detshare::kAbiVersion << ")\n";
    return 0;
  }
  return detshare::Serve(std::vector<std::string>(argv, argv + argc), flags);
}
