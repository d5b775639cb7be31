// Everything that serves, put together: devices, sessions, services, socket. Without flags and
// signals, so that a test can have one in its own process.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coroutine_runtime/device.h"
#include "coroutine_runtime/host_telemetry.h"
#include "server/access/acceptor.h"
#include "server/access/identity.h"
#include "server/session/server_options.h"
#include "server/sessions/session_manager.h"
#include "server/services/settings_store.h"
#include "server/web/http_server.h"

namespace grpc {
class Server;
}  // namespace grpc

namespace detshare {

class AdminService;
class ControlService;
class TenantEndpointService;
class TenantEndpoints;
class DurationProfiles;
class ObservationService;
class Observer;
class OtherDomains;
class ReflectionService;
class SessionAdmission;
class Telemetry;
class TelemetryService;

class Daemon {
 public:
  struct Options {
    std::string socket;
    mode_t socket_mode = 0666;  // who may connect; what a session may do depends on who it is
    int listen_fd = -1;         // a listening socket that is there already
    bool keep_socket = false;   // its name stays when the daemon ends: the service manager's
    std::string backend;        // for people
    std::shared_ptr<HostTelemetry> host_telemetry;  // of the devices; null: nothing is known
    ServerOptions server;                           // runtime_directory: "" for that of the socket
    TenantRules tenant_rules;
    std::optional<uid_t> domain;        // the one user who is served, with strict isolation
    std::string directory_for_clients;  // as in ControlService
    std::string profile_directory;  // of DurationProfiles; "": nothing is kept
    // Where metrics and the dashboard are; nothing: nowhere.
    std::optional<ListenAddress> http;
    unsigned http_mode = 0660;  // of a unix socket
    bool dashboard = true;
    // Who decides about sessions where there are several processes; null: this one alone. It
    // outlives the daemon.
    SessionAdmission* admission = nullptr;
    bool observe = false;        // by who may administer, over gRPC (proto/observation.proto)
    uint64_t device_losses = 0;  // of daemons that this one replaces
    // A device is lost: every session has been told. Once, on a thread of the daemon's.
    std::function<void()> device_lost;
  };

  // Serves when it returns.
  static absl::StatusOr<std::unique_ptr<Daemon>> Start(std::vector<std::unique_ptr<Device>> devices,
                                                       Options options);
  // Stop(), then waits for all sessions, however long that takes.
  ~Daemon();
  Daemon(const Daemon&) = delete;
  Daemon& operator=(const Daemon&) = delete;

  // Tells the clients and takes their sessions down. False when some are still there after
  // `timeout` (kernels that run on).
  bool Stop(std::chrono::milliseconds timeout);

  // A connection that another process accepted.
  void Take(int connection) { acceptor_->Take(connection); }
  // Whether somebody is connected, other than the process that began this one and looks at it, or a
  // session is there still. Any thread.
  bool InUse();

  SessionManager& manager() { return *manager_; }
  Identity& identity() { return identity_; }
  SettingsStore& settings() { return *settings_; }
  AdminService& admin() { return *admin_; }
  int listen_fd() const { return listen_fd_; }

 private:
  Daemon(std::vector<std::unique_ptr<Device>> devices, Options options);
  void Monitor();
  absl::Status ServeHttp();
  void SetServing(bool serving);

  Options options_;
  std::vector<std::unique_ptr<Device>> devices_;
  PeerTable peers_;
  Identity identity_;
  int listen_fd_ = -1;
  std::unique_ptr<SessionManager> manager_;
  std::unique_ptr<DurationProfiles> profiles_;
  std::unique_ptr<SettingsStore> settings_;
  std::unique_ptr<ControlService> control_;
  std::unique_ptr<OtherDomains> others_;  // null: this is the only process
  std::unique_ptr<AdminService> admin_;
  std::unique_ptr<Telemetry> telemetry_;
  std::unique_ptr<TelemetryService> telemetry_service_;
  std::unique_ptr<TenantEndpoints> endpoints_;
  std::unique_ptr<TenantEndpointService> endpoint_service_;
  std::unique_ptr<ReflectionService> reflection_;
  std::unique_ptr<Observer> observer_;
  std::unique_ptr<ObservationService> observation_;
  std::unique_ptr<grpc::Server> grpc_;
  std::unique_ptr<Acceptor> acceptor_;
  std::unique_ptr<HttpServer> http_;

  std::thread monitor_;
};

}  // namespace detshare
