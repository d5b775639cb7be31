// detshared: flags, signals, and what happens when a device is lost.
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "policy/config/config.h"
#include "policy/config/config_file.h"
#include "policy/status_macros.h"
#include "proto/quiet_grpc.h"
#include "proto/version.h"
#include "server/backends.h"
#include "server/base/logging.h"
#include "server/daemon.h"
#include "server/daemon_options.h"
#include "server/reloader.h"
#include "server/service_manager.h"
#include "server/services/admin_service.h"
#include "server/sessions/session_manager.h"
#include "server/shared_memory/shared_region.h"
#include "server/strict/admission_channel.h"
#include "server/strict/domain_process.h"
#include "server/strict/trust_domains.h"
#include "server/watchdog.h"
#include "server/web/domains_observer.h"
#include "server/web/http_server.h"

extern char** environ;

namespace detshare {
namespace {

constexpr std::chrono::milliseconds kEndTimeout(4000);
// For the reply of the process that accepts, which does nothing that takes long.
constexpr std::chrono::milliseconds kAdmissionTimeout(5000);

struct Flags {
  Daemon::Options daemon;
  std::string config_file;
  // In the order of the command line; they override the file.
  std::vector<std::pair<const ConfigSetting*, std::string>> settings;
  std::vector<std::string> tenants;
  int ready_fd = -1;
  int64_t domain = -1;  // the user whose programs this process serves
  int domain_fd = -1, admission_fd = -1;
  int64_t domain_idle_ms = 30'000;
  bool remove_runtime_directory = false;
  bool version = false;
};

// A flag for each setting that has one.
void AddSettings(CLI::App& app, Flags& flags) {
  for (const ConfigSetting& setting : AllConfigSettings()) {
    if (setting.flag.empty()) continue;
    std::string help(setting.help);
    if (!setting.computed.empty()) absl::StrAppend(&help, " [", setting.computed, "]");
    CLI::Option* const option = app.add_option_function<std::string>(
        absl::StrCat("--", setting.flag),
        [&flags, &setting](const std::string& text) {
          flags.settings.emplace_back(&setting, text);
        },
        help);
    option->type_name(
        setting.choices.empty()
            ? std::string(setting.type)
            : absl::StrCat("{", absl::StrReplaceAll(setting.choices, {{"|", ","}}), "}"));
    option->check([&setting](const std::string& text) {
      Config scratch;
      return std::string(SetFromText(setting, text, &scratch).message());
    });
    if (setting.flag == "socket") option->envname("DETSHARE_SOCKET");
  }
}

void AddFlags(CLI::App& app, Flags& flags) {
  ServerOptions& server = flags.daemon.server;
#if defined(__SANITIZE_THREAD__)
  // The sanitizer keeps the usual place for itself. The most that it leaves, for 20 sessions.
  server.windows.device_base = 0x7E9000000000;
  server.windows.device_bytes = uint64_t{16} << 30;
  server.windows.pinned_base = 0x7EE000000000;
  server.windows.pinned_bytes = uint64_t{1} << 30;
#endif
  app.add_option("--config", flags.config_file,
                 "A file with any of these and more, detshare.toml(5); flags override it")
      ->type_name("FILE");
  AddSettings(app, flags);
  app.add_option("--tenant", flags.tenants,
                 "A tenant's share of the SMs, for policies that know shares; may be repeated")
      ->type_name("NAME=PERCENT")
      ->allow_extra_args(false);
  app.add_option("--migrate-every", server.migrate_every,
                 "Moves every session to other SMs at each such number of operations, whatever the "
                 "policy says, to verify that results do not depend on it [0: never]")
      ->type_name("N");
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
  app.add_option("--device-losses", flags.daemon.device_losses)->group("");
  app.add_option("--ready-fd", flags.ready_fd)->group("");
  app.add_option("--domain", flags.domain)
      ->check(CLI::Range(int64_t{0}, int64_t{UINT32_MAX}))
      ->group("");
  app.add_option("--domain-fd", flags.domain_fd)->group("");
  app.add_option("--admission-fd", flags.admission_fd)->group("");
  app.add_option("--domain-idle-ms", flags.domain_idle_ms)->group("");
  app.add_flag("--remove-runtime-dir", flags.remove_runtime_directory)->group("");
  app.add_flag("--soft-lose-device-on-fault", server.lose_device_on_fault)->group("");
}

// A tenant of a flag: one of the file with another share, or one more.
absl::Status AddTenant(const std::string& text, Config* config) {
  const size_t equals = text.rfind('=');
  int percent = 0;
  if (equals == std::string::npos || !IsTenantName(text.substr(0, equals)) ||
      !absl::SimpleAtoi(text.substr(equals + 1), &percent)) {
    return absl::InvalidArgumentError(absl::StrCat("--tenant is NAME=PERCENT, not ", text));
  }
  const std::string name = text.substr(0, equals);
  auto tenant = std::find_if(config->tenants.begin(), config->tenants.end(),
                             [&](const TenantConfig& one) { return one.tenant.name == name; });
  if (tenant == config->tenants.end()) {
    tenant = config->tenants.emplace(config->tenants.end());
    tenant->tenant.name = name;
  }
  tenant->tenant.sm_percent = percent;
  return absl::OkStatus();
}

// The file with the flags over it. InvalidArgument with a line for each mistake.
absl::StatusOr<Config> Configure(const Flags& flags) {
  Config config;
  if (!flags.config_file.empty()) {
    DETSHARE_ASSIGN_OR_RETURN(config, LoadConfig(flags.config_file));
  }
  for (const auto& [setting, text] : flags.settings) {
    if (const absl::Status status = SetFromText(*setting, text, &config); !status.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("--", setting->flag, ": ", std::string(status.message())));
    }
  }
  for (const std::string& text : flags.tenants) {
    DETSHARE_RETURN_IF_ERROR(AddTenant(text, &config));
  }
  DETSHARE_RETURN_IF_ERROR(CheckPolicy(config));
  return config;
}

// The command without these flags and their values.
std::vector<std::string> CommandWithout(const std::vector<std::string>& arguments,
                                        const std::vector<std::string>& flags) {
  std::vector<std::string> command;
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (std::find(flags.begin(), flags.end(), arguments[i]) != flags.end()) {
      ++i;
    } else {
      command.push_back(arguments[i]);
    }
  }
  return command;
}

// A message has a line for each mistake.
void LogLines(const absl::Status& status) {
  for (const absl::string_view line : absl::StrSplit(status.message(), '\n')) LogError(line);
}

// The same command, for the process that replaces this one: it takes over the socket and goes on
// counting.
std::vector<std::string> CommandAfterLoss(const std::vector<std::string>& arguments, int listen_fd,
                                          uint64_t next_session, uint64_t device_losses) {
  std::vector<std::string> command = CommandWithout(
      arguments, {"--listen-fd", "--first-session", "--ready-fd", "--device-losses"});
  for (const std::string& more :
       {std::string("--listen-fd"), absl::StrCat(listen_fd), std::string("--first-session"),
        absl::StrCat(next_session), std::string("--device-losses"), absl::StrCat(device_losses)}) {
    command.push_back(more);
  }
  return command;
}

std::string RuntimeDirectory(const Daemon::Options& options) {
  return !options.server.runtime_directory.empty()
             ? options.server.runtime_directory
             : std::filesystem::path(options.socket).parent_path().string();
}

// This process serves one user.
void EnterDomain(Flags& flags) {
  Daemon::Options& daemon = flags.daemon;
  const uid_t user = static_cast<uid_t>(flags.domain);
  daemon.server.runtime_directory =
      absl::StrCat(DomainsDirectory(RuntimeDirectory(daemon)), "/", user);
  // Nobody else may see what is in it; if it cannot be made, the daemon says so.
  MakeSharedDirectory(daemon.server.runtime_directory).IgnoreError();
  daemon.directory_for_clients = DomainDirectoryForClients(user);
  daemon.domain = user;
  daemon.observe = daemon.http.has_value();
  daemon.http.reset();  // that of all users is where connections are accepted
  // Others come by the acceptor.
  daemon.socket = daemon.server.runtime_directory + "/detshared.sock";
  daemon.socket_mode = 0600;
  daemon.listen_fd = -1;
  daemon.keep_socket = false;
  flags.remove_runtime_directory = false;
  flags.ready_fd = -1;
}

// What a tenant of several users may have in each of their processes, and not in all together.
void WarnOfLimits(const Config& config) {
  std::vector<std::string> names;
  for (const TenantConfig& tenant : config.tenants) {
    const bool limited = tenant.quota.memory != 0 || tenant.quota.pinned_memory != 0;
    if (limited && (tenant.users.size() != 1 || !tenant.groups.empty()))
      names.push_back(tenant.tenant.name);
  }
  if (config.unlisted_tenants == "allow" &&
      (config.default_memory != 0 || config.default_pinned_memory != 0))
    names.emplace_back("all that are not listed");
  if (names.empty()) return;
  LogWarning(
      "with strict isolation limits of memory hold for each user by itself: tenants that "
      "several users may be can have more in all (",
      absl::StrJoin(names, ", "), ")");
}

// Metrics and the dashboard of all domains.
absl::StatusOr<std::unique_ptr<HttpServer>> ServeHttp(const Daemon::Options& daemon,
                                                      DomainsObserver& observer) {
  DETSHARE_ASSIGN_OR_RETURN(const int fd, ListenForHttp(*daemon.http, daemon.http_mode));
  HttpServer::Options serving;
  serving.check_host = daemon.http->path.empty();
  LogInfo("metrics at ", HttpName(fd), "/metrics",
          daemon.dashboard ? ", dashboard at its root" : "");
  return std::make_unique<HttpServer>(
      fd, serving, [&observer](const HttpRequest& request) { return observer.Respond(request); });
}

// Strict isolation: accepts connections and leaves the rest to a process for each user.
int ServeDomains(const std::vector<std::string>& arguments, Flags& flags, const Config& started,
                 const ServiceManager& service_manager, int signal_fd) {
  const Daemon::Options& daemon = flags.daemon;
  const std::string directory = DomainsDirectory(RuntimeDirectory(daemon));
  // 0755: clients of all users reach the socket and the directories of their sessions.
  for (const std::string& needed :
       {std::filesystem::path(daemon.socket).parent_path().string(), RuntimeDirectory(daemon)}) {
    if (mkdir(needed.c_str(), 0755) == 0) chmod(needed.c_str(), 0755);
  }
  absl::Status ready = LockSocket(daemon.socket);
  if (ready.ok()) {
    RemoveTree(directory);
    ready = MakeSharedDirectory(directory);
  }
  TrustDomains::Options options;
  options.command = CommandWithout(arguments, {"--listen-fd", "--ready-fd"});
  options.directory = directory;
  options.listen_fd = daemon.listen_fd;
  options.limits = LimitsOfSessions(started);
  WarnOfLimits(started);
  std::unique_ptr<DomainsObserver> observer;
  std::unique_ptr<HttpServer> http;
  if (ready.ok() && daemon.http.has_value()) {
    StartQuietGrpc();
    DomainsObserver::Options watched;
    watched.directory = directory;
    watched.dashboard = daemon.dashboard;
    for (const policy::Tenant& tenant : daemon.server.tenants)
      watched.tenants.push_back(tenant.name);
    watched.max_sessions = daemon.server.max_sessions;
    observer = std::make_unique<DomainsObserver>(watched);
    options.begun = [&](uid_t user, pid_t process) { observer->Begun(user, process); };
    options.ended = [&](uid_t user, pid_t process, DomainEnd how) {
      observer->Ended(user, process, how);
    };
    absl::StatusOr<std::unique_ptr<HttpServer>> served = ServeHttp(daemon, *observer);
    ready = served.status();
    if (served.ok()) http = *std::move(served);
  }
  if (ready.ok() && options.listen_fd < 0) {
    const absl::StatusOr<int> fd = ListenOn(daemon.socket, daemon.socket_mode);
    ready = fd.status();
    options.listen_fd = fd.value_or(-1);
  }
  if (!ready.ok()) {
    LogError(std::string(ready.message()));
    return 1;
  }
  TrustDomains domains(options);
  LogInfo("detshared ", kVersion, " serves at ", daemon.socket,
          ", each user's programs by a process of its own");
  service_manager.Ready();
  if (flags.ready_fd >= 0) {
    [[maybe_unused]] ssize_t written = write(flags.ready_fd, "\n", 1);
    close(flags.ready_fd);
  }
  const auto watchdog =
      std::chrono::duration_cast<std::chrono::milliseconds>(service_manager.watchdog() / 4);
  const int timeout = watchdog.count() == 0 ? -1 : static_cast<int>(watchdog.count()) + 1;
  for (;;) {
    pollfd fds[2] = {{signal_fd, POLLIN, 0}, {domains.fd(), POLLIN, 0}};
    if (poll(fds, 2, timeout) < 0) continue;
    domains.Proceed();
    service_manager.Alive();
    service_manager.Say(absl::StrCat("strict isolation, users with programs: ", domains.size()));
    if (fds[0].revents == 0) continue;
    signalfd_siginfo got{};
    if (read(signal_fd, &got, sizeof(got)) != sizeof(got)) continue;
    if (got.ssi_signo != SIGHUP || flags.config_file.empty()) break;
    service_manager.Reloading();
    if (const absl::StatusOr<Config> wanted = Configure(flags); wanted.ok()) {
      LogLevel level = LogLevel::kInfo;
      ParseLogLevel(wanted->log_level, &level);
      SetLogLevel(level);
      if (observer != nullptr) observer->SetMaxSessions(static_cast<size_t>(wanted->max_sessions));
      domains.SetLimits(LimitsOfSessions(*wanted));
      WarnOfLimits(*wanted);
      domains.Signal(SIGHUP);
    } else {
      LogLines(wanted.status());
      LogError("the configuration is not used: everything stays as it was");
    }
    service_manager.Ready();
  }
  LogInfo("detshared ends");
  service_manager.Stopping();
  if (http != nullptr && !daemon.http->path.empty()) unlink(daemon.http->path.c_str());
  http.reset();
  if (!domains.End(kEndTimeout + std::chrono::milliseconds(1000)))
    LogWarning("processes of ", domains.size(), " users are ended by force");
  if (!daemon.keep_socket) unlink(daemon.socket.c_str());
  RemoveTree(directory);
  std::error_code ignored;
  if (flags.remove_runtime_directory)
    std::filesystem::remove_all(RuntimeDirectory(daemon), ignored);
  return 0;
}

// As many descriptors as this process may have: sessions take some, and a shell's usual 1,024 are
// for programs that use select().
void RaiseDescriptorLimit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == limit.rlim_max) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

// The socket that the service manager made, when it did. False after a message.
bool AdoptPassedSocket(Daemon::Options& daemon) {
  const absl::StatusOr<std::optional<PassedSocket>> passed = TakePassedSocket();
  if (!passed.ok()) {
    LogError(std::string(passed.status().message()));
    return false;
  }
  if (!passed->has_value()) return true;
  if (daemon.socket.empty()) daemon.socket = (*passed)->path;
  if (daemon.socket != (*passed)->path) {
    LogError("the service manager listens on ", (*passed)->path, ", not on ", daemon.socket,
             ": change detshared.socket, too");
    return false;
  }
  daemon.listen_fd = (*passed)->fd;
  daemon.keep_socket = true;
  return true;
}

// What the service manager shows about a daemon that serves.
std::string Summary(const Daemon::Options& options, Daemon& daemon) {
  const size_t devices = daemon.manager().devices().size();
  return absl::StrCat("serving ", devices, devices == 1 ? " device" : " devices", " (",
                      options.backend, "), sessions: ", daemon.manager().Sessions().size());
}

std::unique_ptr<Watchdog> StartWatchdog(const ServiceManager& service_manager,
                                        const Daemon::Options& options, Daemon& daemon) {
  if (service_manager.watchdog().count() == 0) return nullptr;
  // Two checks fit into the time allowed, each with its timeout.
  const auto period =
      std::chrono::duration_cast<std::chrono::milliseconds>(service_manager.watchdog() / 4) +
      std::chrono::milliseconds(1);
  return std::make_unique<Watchdog>(
      period,
      [&service_manager, &options, &daemon, period]() -> absl::Status {
        DETSHARE_RETURN_IF_ERROR(daemon.manager().DeviceHealth());
        service_manager.Say(Summary(options, daemon));
        return AskDaemon(options.socket, period);
      },
      [&service_manager] { service_manager.Alive(); });
}

// Does not return.
void ReplaceProcess(const std::vector<std::string>& arguments, uint64_t device_losses,
                    Daemon& daemon) {
  std::vector<std::string> command = CommandAfterLoss(
      arguments, daemon.listen_fd(), daemon.manager().next_session(), device_losses + 1);
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
  const absl::StatusOr<Config> configured = Configure(flags);
  if (!configured.ok()) {
    LogLines(configured.status());
    return 1;
  }
  const Config& started = *configured;
  LogLevel level = LogLevel::kInfo;
  ParseLogLevel(started.log_level, &level);
  SetLogLevel(level);
  RaiseDescriptorLimit();
  const ServiceManager service_manager = ServiceManager::FromEnvironment();
  BackendOptions backend_options;
  ApplyConfig(started, &flags.daemon, &backend_options);
  if (!AdoptPassedSocket(flags.daemon)) return 1;
  if (flags.daemon.socket.empty()) flags.daemon.socket = std::string(kDefaultSocket);
  if (flags.daemon.listen_fd >= 0) fcntl(flags.daemon.listen_fd, F_SETFD, FD_CLOEXEC);

  // Before any thread begins: all of them leave these to the loop below.
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGHUP);
  sigprocmask(SIG_BLOCK, &signals, nullptr);
  signal(SIGPIPE, SIG_IGN);
  const int signal_fd = signalfd(-1, &signals, SFD_CLOEXEC);
  const int lost_fd = eventfd(0, EFD_CLOEXEC);

  std::unique_ptr<DomainMember> member;
  std::unique_ptr<AdmissionChannel> admission;
  if (flags.domain_fd >= 0) {
    if (flags.domain < 0) {
      LogError("--domain-fd is for the daemon itself");
      return 1;
    }
    fcntl(flags.domain_fd, F_SETFD, FD_CLOEXEC);
    member = std::make_unique<DomainMember>(flags.domain_fd,
                                            std::chrono::milliseconds(flags.domain_idle_ms));
    EnterDomain(flags);
    if (flags.admission_fd >= 0) {
      fcntl(flags.admission_fd, F_SETFD, FD_CLOEXEC);
      admission = std::make_unique<AdmissionChannel>(flags.admission_fd, kAdmissionTimeout);
      flags.daemon.admission = admission.get();
    }
  } else if (started.isolation == "strict") {
    return ServeDomains(arguments, flags, started, service_manager, signal_fd);
  }

  absl::StatusOr<OpenedBackend> backend = OpenBackend(backend_options);
  if (!backend.ok()) {
    LogError("no device: ", std::string(backend.status().message()));
    return 1;
  }
  ServerOptions& server = flags.daemon.server;
  ApplyConfigOfBackend(started, backend->name, &server);
  flags.daemon.backend = backend->name;
  flags.daemon.host_telemetry = std::move(backend->telemetry);
  flags.daemon.device_lost = [lost_fd] {
    const uint64_t one = 1;
    [[maybe_unused]] ssize_t written = write(lost_fd, &one, sizeof(one));
  };
  const std::string runtime_directory = RuntimeDirectory(flags.daemon);
  absl::StatusOr<std::unique_ptr<Daemon>> daemon =
      Daemon::Start(std::move(backend->devices), flags.daemon);
  if (!daemon.ok()) {
    LogError(std::string(daemon.status().message()));
    return 1;
  }
  LogInfo("detshared ", kVersion, " serves at ", flags.daemon.socket, ", backend ", backend->name,
          ", policy ", server.policy);
  service_manager.Ready();
  std::unique_ptr<Watchdog> watchdog = StartWatchdog(service_manager, flags.daemon, **daemon);
  if (flags.ready_fd >= 0) {
    [[maybe_unused]] ssize_t written = write(flags.ready_fd, "\n", 1);
    close(flags.ready_fd);
  }
  Reloader reloader(
      started, [&flags] { return Configure(flags); }, **daemon);
  const auto reload = [&](const std::string& who) {
    service_manager.Reloading();
    absl::StatusOr<Reloader::Report> report = reloader.Reload(who);
    service_manager.Ready();
    return report;
  };
  // A process of one domain is told by the one that accepts, as all the others.
  if (!flags.config_file.empty() && member == nullptr) {
    (*daemon)->admin().OnReload([&](const std::string& who) -> absl::StatusOr<proto::Reloaded> {
      DETSHARE_ASSIGN_OR_RETURN(const Reloader::Report report, reload(who));
      proto::Reloaded reloaded;
      reloaded.mutable_changed()->Add(report.changed.begin(), report.changed.end());
      reloaded.mutable_restart()->Add(report.restart.begin(), report.restart.end());
      return reloaded;
    });
  }
  for (;;) {
    pollfd fds[3] = {{signal_fd, POLLIN, 0},
                     {lost_fd, POLLIN, 0},
                     {member != nullptr ? member->fd() : -1, POLLIN, 0}};
    if (poll(fds, 3, member != nullptr ? member->timeout() : -1) < 0) continue;
    if (fds[1].revents != 0 && member != nullptr) {
      // The acceptor begins another one when somebody comes.
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      _exit(kExitDeviceLost);
    }
    const bool goes_on =
        member == nullptr || member->Proceed([&](int connection) { (*daemon)->Take(connection); },
                                             [&] { return (*daemon)->InUse(); });
    if (!goes_on) break;
    if (fds[1].revents != 0) {
      service_manager.Say("a device was lost: starting anew");
      ReplaceProcess(arguments, flags.daemon.device_losses, **daemon);
    }
    if (fds[0].revents == 0) continue;
    signalfd_siginfo got{};
    if (read(signal_fd, &got, sizeof(got)) != sizeof(got)) continue;
    if (got.ssi_signo != SIGHUP || flags.config_file.empty()) break;
    reload("SIGHUP").IgnoreError();
  }
  // What it uses ends before the daemon does.
  (*daemon)->admin().OnReload(nullptr);
  LogInfo("detshared ends");
  service_manager.Stopping();
  watchdog.reset();
  const bool empty = (*daemon)->Stop(kEndTimeout);
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
  detshare::LogToJournal();
  CLI::App app("The daemon that owns the GPUs and shares them among CUDA programs.", "detshared");
  detshare::AddFlags(app, flags);
  CLI11_PARSE(app, argc, argv);
  if (flags.version) {
    std::cout << "detshared " << detshare::kVersion << " (ABI " << detshare::kAbiVersion << ")\n";
    return 0;
  }
  return detshare::Serve(std::vector<std::string>(argv, argv + argc), flags);
}
