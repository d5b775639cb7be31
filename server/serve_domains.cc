#include "server/serve_domains.h"

#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "policy/status_macros.h"
#include "proto/quiet_grpc.h"
#include "proto/version.h"
#include "server/access/acceptor.h"
#include "server/base/logging.h"
#include "server/daemon_options.h"
#include "server/directories.h"
#include "server/serve_daemon.h"
#include "server/shared_memory/shared_region.h"
#include "server/strict/domain_process.h"
#include "server/strict/trust_domains.h"
#include "server/web/domains_observer.h"
#include "server/web/http_server.h"
#include "server/web/serve_pages.h"

namespace detshare {
namespace {

using std::chrono::milliseconds;

// Names the tenants whose limits of memory hold in each user's process and not in all together.
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

// What the accepting process serves from, besides the domains.
struct Front {
  int listen_fd = -1;
  std::unique_ptr<DomainsObserver> observer;  // null: HTTP is not served
  std::unique_ptr<HttpServer> http;           // asks `observer`; null: HTTP is not served
};

// Observes all domains and serves metrics and the dashboard about them.
absl::Status ServeHttp(const Daemon::Options& daemon, const std::string& directory, Front* front) {
  StartQuietGrpc();
  DomainsObserver::Options watched;
  watched.directory = directory;
  watched.dashboard = daemon.dashboard;
  for (const policy::Tenant& tenant : daemon.server.tenants) watched.tenants.push_back(tenant.name);
  watched.max_sessions = daemon.server.max_sessions;
  front->observer = std::make_unique<DomainsObserver>(watched);
  DETSHARE_ASSIGN_OR_RETURN(
      front->http, ServePages(*daemon.http, daemon.http_mode, daemon.dashboard,
                              [observer = front->observer.get()](const HttpRequest& request) {
                                return observer->Respond(request);
                              }));
  return absl::OkStatus();
}

// Makes the directory of the domains, which is `directory`, and listens.
absl::StatusOr<Front> Open(const Daemon::Options& daemon, const std::string& directory) {
  MakeDirectories(daemon.socket, daemon.server.runtime_directory);
  DETSHARE_RETURN_IF_ERROR(LockSocket(daemon.socket));
  RemoveTree(directory);
  DETSHARE_RETURN_IF_ERROR(MakeSharedDirectory(directory));
  Front front;
  if (daemon.http.has_value()) DETSHARE_RETURN_IF_ERROR(ServeHttp(daemon, directory, &front));
  front.listen_fd = daemon.listen_fd;
  if (front.listen_fd < 0) {
    DETSHARE_ASSIGN_OR_RETURN(front.listen_fd, ListenOn(daemon.socket, daemon.socket_mode));
  }
  return front;
}

TrustDomains::Options OptionsOf(const Startup& startup, const std::string& directory,
                                const Front& front) {
  TrustDomains::Options options;
  options.command = CommandWithout(startup.command, {"--listen-fd", "--ready-fd", "--runtime-dir"});
  // A domain's process would choose another directory if the service manager has made the socket at
  // a path that the configuration does not name, or if the file names another path by now.
  options.command.insert(options.command.end(),
                         {"--runtime-dir", startup.daemon.server.runtime_directory});
  options.directory = directory;
  options.listen_fd = front.listen_fd;
  options.limits = LimitsOfSessions(startup.config);
  if (DomainsObserver* const observer = front.observer.get(); observer != nullptr) {
    options.begun = [observer](uid_t user, pid_t process) { observer->Begun(user, process); };
    options.ended = [observer](uid_t user, pid_t process, DomainEnd how) {
      observer->Ended(user, process, how);
    };
  }
  return options;
}

// Reads the configuration again and tells the domains to do the same. `observer` may be null.
void Reload(const Startup& startup, DomainsObserver* observer, TrustDomains& domains) {
  startup.service_manager.Reloading();
  if (const absl::StatusOr<Config> wanted = ReadConfiguration(startup.flags); wanted.ok()) {
    ApplyLogLevel(*wanted);
    if (observer != nullptr) observer->SetMaxSessions(static_cast<size_t>(wanted->max_sessions));
    domains.SetLimits(LimitsOfSessions(*wanted));
    WarnOfLimits(*wanted);
    domains.Signal(SIGHUP);
  } else {
    LogErrorLines(wanted.status().message());
    LogError("the configuration is not used: everything stays as it was");
  }
  startup.service_manager.Ready();
}

// Handles connections, ended processes and signals until the daemon must end.
void HandleEvents(const Startup& startup, DomainsObserver* observer, TrustDomains& domains) {
  const ServiceManager& service_manager = startup.service_manager;
  const auto watchdog = std::chrono::duration_cast<milliseconds>(service_manager.watchdog() / 4);
  const int timeout = watchdog.count() == 0 ? -1 : static_cast<int>(watchdog.count()) + 1;
  for (;;) {
    pollfd fds[2] = {{startup.signal_fd, POLLIN, 0}, {domains.fd(), POLLIN, 0}};
    if (poll(fds, 2, timeout) < 0) continue;
    domains.Proceed();
    service_manager.Alive();
    service_manager.Say(absl::StrCat("strict isolation, users with programs: ", domains.size()));
    if (fds[0].revents == 0) continue;
    const SignalRequest request = TakeSignal(startup);
    if (request == SignalRequest::kEnd) return;
    if (request == SignalRequest::kReload) Reload(startup, observer, domains);
  }
}

}  // namespace

int ServeDomains(const Startup& startup) {
  const Daemon::Options& daemon = startup.daemon;
  const std::string& runtime_directory = daemon.server.runtime_directory;
  const std::string directory = DomainsDirectory(runtime_directory);
  WarnOfLimits(startup.config);
  absl::StatusOr<Front> front = Open(daemon, directory);
  if (!front.ok()) {
    LogError(std::string(front.status().message()));
    return 1;
  }
  TrustDomains domains(OptionsOf(startup, directory, *front));
  LogInfo("detshared ", kVersion, " serves at ", daemon.socket,
          ", each user's programs by a process of its own");
  AnnounceReady(startup);
  HandleEvents(startup, front->observer.get(), domains);
  LogInfo("detshared ends");
  startup.service_manager.Stopping();
  front->http.reset();
  // Each process gets the time to end by itself.
  if (!domains.End(kEndTimeout + milliseconds(1000)))
    LogWarning("processes of ", domains.size(), " users are ended by force");
  if (!daemon.keep_socket) unlink(daemon.socket.c_str());
  RemoveTree(directory);
  std::error_code ignored;
  if (startup.flags.remove_runtime_directory)
    std::filesystem::remove_all(runtime_directory, ignored);
  return 0;
}

}  // namespace detshare
