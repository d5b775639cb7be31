// Puts together everything that serves: devices, sessions, services and sockets. It handles no
// flags and no signals, so a test can run a daemon in its own process.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "policy/config/listen_address.h"
#include "server/access/acceptor.h"
#include "server/access/identity.h"
#include "server/access/owners.h"
#include "server/base/event_log.h"
#include "server/directories.h"
#include "server/engines/engine_channel.h"
#include "server/session/server_options.h"
#include "server/sessions/ended_work.h"

namespace grpc {
class Server;
}  // namespace grpc

namespace detshare {

class AdminService;
class ClientServer;
class ControlService;
class Device;
class DurationProfiles;
class HostTelemetry;
class HttpServer;
class ObservationService;
class Observer;
class ReflectionService;
class SessionAdmission;
class SessionManager;
class SettingsStore;
class Telemetry;
class TelemetryService;
class TenantEndpointService;
class TenantEndpoints;

class Daemon {
 public:
  struct Options {
    std::string socket;
    // Permissions of the socket; the peer's user decides what its sessions may do.
    mode_t socket_mode = 0600;
    int listen_fd = -1;  // a listening socket that exists already; -1: none
    // The socket's name stays when the daemon ends, because it belongs to the service manager.
    bool keep_socket = false;
    std::string backend;  // name of the backend, for display
    // Replies of the host's NVML about the devices; null: there are none.
    std::shared_ptr<HostTelemetry> host_telemetry;
    // runtime_directory: "" for the socket's directory.
    ServerOptions server;
    TenantRules tenant_rules;
    // The isolation group whose engine this process is; empty: it serves all programs of the host.
    std::optional<std::string> group;
    // The supervisor's settings, which an engine adopts; "": there is none.
    std::string inherited_settings;
    // Called with each event of a session; may be empty.
    std::function<void(const DaemonEvent&)> note;
    // Called with what sessions behind a passed endpoint have used since the last call that returned
    // true; may be empty. It does not wait.
    std::function<bool(uint64_t endpoint, const EndpointUse::Figures& figures)> used;
    std::string directory_for_clients;  // as in ControlService
    std::string profile_directory;      // of DurationProfiles; "": durations are not kept
    // The address at which HTTP is served; empty: HTTP is not served.
    std::optional<ListenAddress> http;
    unsigned http_mode = 0660;    // permissions of a unix socket
    std::string http_token_file;  // as ServedPages::token_file
    bool dashboard = true;
    // Decides about sessions if the daemon has several processes; null: this process decides alone.
    // It outlives the daemon.
    SessionAdmission* admission = nullptr;
    // Returns the process that only observes this one, or -1; empty: there is none. Any thread may
    // call it.
    std::function<pid_t()> observer;
    // Serves observations to clients that may administer (proto/observation.proto).
    bool observe = false;
    uint64_t device_losses = 0;  // device losses of the daemons that this one replaces
    // Called when this changes, on a thread of the daemon, before clients learn of it; may be empty.
    // kOutlived is the last call.
    std::function<void(EndedWork)> ended_work;
    // Called once, on a thread of the daemon, when a device is lost. By then every session has been
    // told.
    std::function<void()> device_lost;
  };

  // Starts a daemon. It serves when this returns.
  static absl::StatusOr<std::unique_ptr<Daemon>> Start(std::vector<std::unique_ptr<Device>> devices,
                                                       Options options);
  // Calls Stop(), then waits for all sessions without a limit.
  ~Daemon();
  Daemon(const Daemon&) = delete;
  Daemon& operator=(const Daemon&) = delete;

  // Tells the clients that their sessions end, and ends the sessions. Returns false if some are
  // still there after `timeout` (kernels that run on).
  bool Stop(std::chrono::milliseconds timeout);

  // Takes a connection that the supervisor accepted, and owns its descriptors.
  void Take(const ClientConnection& connection);
  // Ends what came through an endpoint that the supervisor has closed. The thread that calls Take()
  // calls it.
  void CloseEndpoint(uint64_t number);
  // As TenantEndpoints::SaveAgain().
  void SaveAgain();
  int save_fd() const;
  // Returns whether a session exists or a process is connected. The process that Options::observer
  // names does not count. Any thread may call it.
  bool InUse();

  SessionManager& manager() { return *manager_; }
  Identity& identity() { return identity_; }
  SettingsStore& settings() { return *settings_; }
  AdminService& admin() { return *admin_; }
  int listen_fd() const { return listen_fd_; }

 private:
  Daemon(std::vector<std::unique_ptr<Device>> devices, Options options);
  // The parts of Start(), in its order.
  absl::Status TakeDirectories();
  absl::Status CreateManager();
  absl::Status CreateServices();
  absl::Status StartGrpc();
  absl::Status Listen();
  absl::Status ServeHttp();
  // Returns the endpoint that an earlier connection came through, or the passed one with its
  // devices. Returns the errors of DeviceNames::Choose().
  absl::StatusOr<std::shared_ptr<TenantEndpoint>> Know(
      const std::shared_ptr<TenantEndpoint>& passed);
  // Runs on monitor_: reports a lost device and ends all sessions.
  void Monitor();
  void SetServing(bool serving);

  Options options_;
  RuntimeLock runtime_lock_;  // the last to go: the parts below remove their files
  std::vector<std::unique_ptr<Device>> devices_;
  PeerTable peers_;
  Identity identity_;
  Owners owners_;  // of endpoints_
  int listen_fd_ = -1;
  std::unique_ptr<SessionManager> manager_;
  std::unique_ptr<DurationProfiles> profiles_;
  std::unique_ptr<SettingsStore> settings_;
  std::unique_ptr<ControlService> control_;
  std::unique_ptr<AdminService> admin_;
  std::unique_ptr<Telemetry> telemetry_;
  std::unique_ptr<TelemetryService> telemetry_service_;
  std::unique_ptr<ClientServer> clients_;
  std::unique_ptr<TenantEndpoints> endpoints_;                            // null: this is an engine
  std::unique_ptr<TenantEndpointService> endpoint_service_;               // null: this is an engine
  std::map<uint64_t, std::shared_ptr<TenantEndpoint>> passed_endpoints_;  // used by Take()'s thread
  std::unique_ptr<ReflectionService> reflection_;
  std::unique_ptr<Observer> observer_;
  std::unique_ptr<ObservationService> observation_;
  std::unique_ptr<grpc::Server> grpc_;
  std::unique_ptr<Acceptor> acceptor_;
  std::unique_ptr<HttpServer> http_;

  std::thread monitor_;
};

}  // namespace detshare
