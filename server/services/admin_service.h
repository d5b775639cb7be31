// The gRPC service of operators and their tools (proto/admin.proto).
#pragma once

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "proto/admin.grpc.pb.h"
#include "proto/mutex.h"
#include "server/access/identity.h"
#include "server/access/owners.h"
#include "server/access/peer_table.h"
#include "server/base/event_log.h"
#include "server/services/settings_store.h"
#include "server/services/trace_lease.h"
#include "server/sessions/session_manager.h"

namespace detshare {

// Messages of Reload(): of an engine's own socket, and of a daemon without a file.
inline constexpr char kReloadAll[] =
    "this is one engine of several: run detsharectl config reload without --socket, which reloads "
    "all of them";
inline constexpr char kNoFileToReload[] =
    "detshared was started without --config: there is no file to read";

// Serves one engine, or a daemon that serves all programs with one process.
class AdminService final : public proto::Admin::CallbackService {
 public:
  // Reads the configuration again and puts it in force. `who` names the requester.
  using Reloading = std::function<absl::StatusOr<proto::Reloaded>(const std::string& who)>;

  // `backend` and `socket` are for display. `group` is the isolation group whose engine this
  // process is; nothing: it serves all programs of the host.
  AdminService(SessionManager& manager, SettingsStore& settings, const Owners& owners,
               const Identity& identity, PeerTable& peers, std::string backend, std::string socket,
               std::optional<std::string> group = std::nullopt);

  grpc::ServerUnaryReactor* GetStatus(grpc::CallbackServerContext* context,
                                      const proto::GetStatusRequest* request,
                                      proto::Status* status) override;
  grpc::ServerUnaryReactor* GetPolicies(grpc::CallbackServerContext* context,
                                        const proto::GetPoliciesRequest* request,
                                        proto::Policies* policies) override;
  grpc::ServerUnaryReactor* GetTenants(grpc::CallbackServerContext* context,
                                       const proto::GetTenantsRequest* request,
                                       proto::Tenants* tenants) override;
  grpc::ServerUnaryReactor* SetPolicy(grpc::CallbackServerContext* context,
                                      const proto::PolicySetting* setting,
                                      proto::PolicySetting* in_force) override;
  grpc::ServerUnaryReactor* SetTenant(grpc::CallbackServerContext* context,
                                      const proto::TenantSetting* setting,
                                      proto::TenantSetting* in_force) override;
  grpc::ServerUnaryReactor* UnsetTenant(grpc::CallbackServerContext* context,
                                        const proto::UnsetTenantRequest* request,
                                        proto::Tenants* in_force) override;
  grpc::ServerUnaryReactor* EndSessions(grpc::CallbackServerContext* context,
                                        const proto::EndSessionsRequest* request,
                                        proto::EndedSessions* ended) override;
  grpc::ServerUnaryReactor* GetEvents(grpc::CallbackServerContext* context,
                                      const proto::GetEventsRequest* request,
                                      proto::Events* events) override;
  grpc::ServerUnaryReactor* Reload(grpc::CallbackServerContext* context,
                                   const proto::ReloadRequest* request,
                                   proto::Reloaded* reloaded) override;
  grpc::ServerUnaryReactor* StartTrace(grpc::CallbackServerContext* context,
                                       const proto::StartTraceRequest* request,
                                       proto::TraceStarted* started) override;
  grpc::ServerUnaryReactor* FetchTrace(grpc::CallbackServerContext* context,
                                       const proto::FetchTraceRequest* request,
                                       proto::TraceChunk* chunk) override;

  // Sets what Reload calls. Before this call Reload is an error. Any thread may call it.
  void OnReload(Reloading reloading);

 private:
  void DescribeSelf(proto::Status* status);
  absl::StatusOr<std::vector<uint64_t>> EndHere(const proto::EndSessionsRequest& request,
                                                const Peer& peer, const std::string& who);
  // Adds what was traced since the last call.
  void AddTraced(proto::TraceChunk* chunk);
  void StopTraces();
  // Returns the caller's credentials, or PermissionDenied if it may not change settings.
  absl::StatusOr<Peer> MayAdminister(grpc::CallbackServerContext* context) const;

  SessionManager& manager_;
  SettingsStore& settings_;
  const Owners& owners_;  // none in an engine, which does not own the endpoints
  const Identity& identity_;
  PeerTable& peers_;
  const std::string backend_;
  const std::string socket_;
  const std::optional<std::string> group_;
  const std::chrono::steady_clock::time_point begin_;

  Mutex reload_mutex_;
  Reloading reloading_ ABSL_GUARDED_BY(reload_mutex_);

  TraceLease trace_;  // destroyed first: its thread calls StopTraces()
};

}  // namespace detshare
