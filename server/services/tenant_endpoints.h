// Opens and closes tenant endpoints: sockets that lead to one tenant each.
//
// Containers of different people have the same users: root in each of them is root. So what is
// mounted into a container decides what it may do. A client that comes through an endpoint belongs
// to the endpoint's tenant, whatever its user is, and sees only the endpoint's devices. It can open
// sessions and ask what NVML asks; the services of operators are not available there. The files of
// its sessions lie in the endpoint's directory, so a container sees nothing of other endpoints.
//
//   <runtime directory>/endpoints/    0700: only root, and containers with a part of it mounted
//     list                            the endpoints, for the daemon that replaces this one
//     <name>/                         mounted into a container as /run/detshare
//       detshared.sock                0666
//       sessions/<session>/
//
// A container may do with its endpoint's directory what it likes. The daemon accesses the directory
// by descriptors, follows no symbolic link there, and trusts nothing that it finds.
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
#include "server/access/identity.h"
#include "server/access/tenant_endpoint.h"
#include "server/services/control_service.h"
#include "server/services/settings_store.h"
#include "server/services/telemetry_service.h"
#include "server/sessions/session_manager.h"
#include "server/telemetry/telemetry.h"

namespace detshare {

// Any thread may call it.
class TenantEndpoints {
 public:
  static constexpr size_t kMaxEndpoints = 512;

  // Opens again the endpoints that an earlier daemon had, in the same directories, because
  // containers have them mounted. All arguments outlive this object. With `strict` there are no
  // endpoints, because such a daemon serves one user and ends when it is idle.
  static absl::StatusOr<std::unique_ptr<TenantEndpoints>> Create(
      SessionManager& manager, SettingsStore& settings, Telemetry& telemetry, PeerTable& peers,
      const Identity& identity, bool strict);
  ~TenantEndpoints();  // the directories stay
  TenantEndpoints(const TenantEndpoints&) = delete;
  TenantEndpoints& operator=(const TenantEndpoints&) = delete;

  // Implement the service's calls (proto/tenant_endpoint.proto). Open() returns the endpoint's
  // directory, relative to the runtime directory.
  absl::StatusOr<std::string> Open(const proto::TenantEndpoint& wanted);
  absl::Status Close(const std::string& name);
  proto::EndpointList List() const;

  // Accepts no more connections and opens no more endpoints.
  void StopAccepting();
  // Ends the calls in progress. Called after StopAccepting().
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

  TenantEndpoints(SessionManager& manager, SettingsStore& settings, Telemetry& telemetry,
                  PeerTable& peers, const Identity& identity, bool strict);
  // Called with mutex_ held.
  absl::Status Make(const proto::TenantEndpoint& wanted, bool in_place);
  absl::Status CloseLocked(const std::string& name);
  void Restore();
  void Save();

  SessionManager& manager_;
  SettingsStore& settings_;
  PeerTable& peers_;
  const std::string directory_;
  const bool strict_;
  // The endpoints have services and a gRPC server of their own, without the daemon's other
  // services.
  ControlService control_;
  TelemetryService telemetry_;
  std::unique_ptr<grpc::Server> grpc_;

  mutable std::mutex mutex_;
  std::map<std::string, std::unique_ptr<OpenEndpoint>> endpoints_;  // guarded by mutex_
  bool stopped_ = false;                                            // guarded by mutex_
};

// The gRPC service that opens, closes and lists endpoints for operators.
class TenantEndpointService final : public proto::TenantEndpoints::CallbackService {
 public:
  TenantEndpointService(TenantEndpoints& endpoints, const PeerTable& peers,
                        const Identity& identity)
      : endpoints_(endpoints), peers_(peers), identity_(identity) {}

  grpc::ServerUnaryReactor* OpenEndpoint(grpc::CallbackServerContext* context,
                                         const proto::TenantEndpoint* wanted,
                                         proto::OpenedEndpoint* opened) override;
  grpc::ServerUnaryReactor* CloseEndpoint(grpc::CallbackServerContext* context,
                                          const proto::CloseEndpointRequest* request,
                                          proto::CloseEndpointReply* reply) override;
  grpc::ServerUnaryReactor* GetEndpoints(grpc::CallbackServerContext* context,
                                         const proto::GetEndpointsRequest* request,
                                         proto::EndpointList* list) override;

 private:
  // Returns whether the caller may administer, and in `who` its credentials for the log.
  absl::Status MayAdminister(grpc::CallbackServerContext* context, std::string* who) const;

  TenantEndpoints& endpoints_;
  const PeerTable& peers_;
  const Identity& identity_;
};

}  // namespace detshare
