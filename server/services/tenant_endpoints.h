// The endpoints of the daemon: sockets of their own that lead to one tenant each.
//
// Containers of different people have the same users: root in each of them is root. So what a
// container may do is decided by what is mounted into it. Whoever comes through an endpoint is its
// tenant, whatever user it is, and sees its devices only. It can open sessions and ask what NVML is
// asked; the services of operators are not there. Files of its sessions lie in the endpoint's
// directory: who has one endpoint mounted sees nothing of another's.
//
//   <runtime directory>/endpoints/          0700: only root goes through it, and whoever has a part of
//   it mounted
//     list                              what endpoints there are, for the daemon that comes after this
//     one <name>/                           to be mounted as /run/detshare
//       detshared.sock                  0666
//       sessions/<session>/
//
// A container may do with its endpoint's directory what it likes. The daemon goes into it by
// descriptors, follows no symbolic link there, and trusts nothing that it finds.
#pragma once

#include <grpcpp/grpcpp.h>

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/tenant_endpoint.grpc.pb.h"
#include "server/access/acceptor.h"
#include "server/services/control_service.h"
#include "server/access/tenant_endpoint.h"
#include "server/access/identity.h"
#include "server/sessions/session_manager.h"
#include "server/services/settings_store.h"
#include "server/telemetry/telemetry.h"
#include "server/services/telemetry_service.h"

namespace detshare {

// Any thread.
class TenantEndpoints {
 public:
  static constexpr size_t kMaxEndpoints = 512;

  // All that is given outlives this. Opens the endpoints that an earlier daemon had, in the directories
  // that they had then: containers have them mounted. `strict`: there are none, since this daemon
  // serves one user and ends when it is idle.
  static absl::StatusOr<std::unique_ptr<TenantEndpoints>> Create(SessionManager& manager, SettingsStore& settings,
                                                       Telemetry& telemetry, PeerTable& peers,
                                                       const Identity& identity, bool strict);
  ~TenantEndpoints();  // directories stay
  TenantEndpoints(const TenantEndpoints&) = delete;
  TenantEndpoints& operator=(const TenantEndpoints&) = delete;

  // As the service's calls (proto/tenant_endpoint.proto). Open() returns the endpoint's directory, below the
  // runtime directory.
  absl::StatusOr<std::string> Open(const proto::TenantEndpoint& wanted);
  absl::Status Close(const std::string& name);
  proto::EndpointList List() const;

  // No connection is accepted any more, and no endpoint opened.
  void StopAccepting();
  // Ends the calls that are there; after StopAccepting().
  void Shutdown();

 private:
  struct OpenEndpoint {
    std::shared_ptr<TenantEndpoint> endpoint;
    std::unique_ptr<Acceptor> acceptor;
    int listen_fd = -1;
    proto::TenantSetting setting;

    OpenEndpoint() = default;
    ~OpenEndpoint();
    OpenEndpoint(OpenEndpoint&&) = delete;
  };

  TenantEndpoints(SessionManager& manager, SettingsStore& settings, Telemetry& telemetry, PeerTable& peers,
        const Identity& identity, bool strict);
  // With mutex_ held.
  absl::Status Make(const proto::TenantEndpoint& wanted, bool in_place);
  absl::Status CloseLocked(const std::string& name);
  void Restore();
  void Save();

  SessionManager& manager_;
  SettingsStore& settings_;
  PeerTable& peers_;
  const std::string directory_;
  const bool strict_;
  // Services and server of their own: what the daemon's socket offers besides is not there.
  ControlService control_;
  TelemetryService telemetry_;
  std::unique_ptr<grpc::Server> grpc_;

  mutable std::mutex mutex_;
  std::map<std::string, std::unique_ptr<OpenEndpoint>> endpoints_;  // guarded by mutex_
  bool stopped_ = false;                                    // guarded by mutex_
};

// The service, for those who may administer.
class TenantEndpointService final : public proto::TenantEndpoints::CallbackService {
 public:
  TenantEndpointService(TenantEndpoints& endpoints, const PeerTable& peers, const Identity& identity)
      : endpoints_(endpoints), peers_(peers), identity_(identity) {}

  grpc::ServerUnaryReactor* OpenEndpoint(grpc::CallbackServerContext* context,
                                     const proto::TenantEndpoint* wanted, proto::OpenedEndpoint* opened) override;
  grpc::ServerUnaryReactor* CloseEndpoint(grpc::CallbackServerContext* context,
                                      const proto::CloseEndpointRequest* request,
                                      proto::CloseEndpointReply* reply) override;
  grpc::ServerUnaryReactor* GetEndpoints(grpc::CallbackServerContext* context,
                                     const proto::GetEndpointsRequest* request,
                                     proto::EndpointList* list) override;

 private:
  // Whether the caller may, and who it is, for the log.
  absl::Status MayAdminister(grpc::CallbackServerContext* context, std::string* who) const;

  TenantEndpoints& endpoints_;
  const PeerTable& peers_;
  const Identity& identity_;
};

}  // namespace detshare
