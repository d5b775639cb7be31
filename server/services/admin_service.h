// The gRPC service of operators and their tools (proto/admin.proto).
#pragma once

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "proto/admin.grpc.pb.h"
#include "server/access/acceptor.h"
#include "server/access/identity.h"
#include "server/base/event_log.h"
#include "server/services/other_domains.h"
#include "server/services/settings_store.h"
#include "server/services/trace_lease.h"
#include "server/sessions/session_manager.h"

namespace detshare {

class AdminService final : public proto::Admin::CallbackService {
 public:
  // Reads the configuration again and puts it in force. `who` names the requester.
  using Reloading = std::function<absl::StatusOr<proto::Reloaded>(const std::string& who)>;

  AdminService(SessionManager& manager, SettingsStore& settings, const Identity& identity,
               const PeerTable& peers, std::string backend,
               std::optional<uid_t> domain = std::nullopt, OtherDomains* others = nullptr);

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
  // Returns the caller's credentials; nothing if the call did not come through a connection of this
  // daemon.
  std::optional<Peer> FindPeer(grpc::CallbackServerContext* context) const;
  // Describes this process only.
  void DescribeSelf(proto::Status* status);
  // Returns whether the request covers all domains: the caller may administer and came to the main
  // socket.
  bool MeansAll(const std::optional<Peer>& peer) const;
  // Adds the status of the other domains. Runs as a job of others_.
  void DescribeAll(proto::Status* status);
  absl::StatusOr<std::vector<uint64_t>> EndHere(const proto::EndSessionsRequest& request,
                                                const Peer& peer, const std::string& who);
  // Ends sessions of all domains. Runs as a job of others_.
  absl::Status EndEverywhere(const proto::EndSessionsRequest& request, const Peer& peer,
                             proto::EndedSessions* ended);
  void Note(DaemonEvent::Kind kind, const Peer& peer, std::string tenant, std::string text);
  // Adds what was traced since the last call.
  void AddTraced(proto::TraceChunk* chunk);
  void StopTraces();
  // Returns the caller's credentials, or PermissionDenied if it may not change settings.
  absl::StatusOr<Peer> MayAdminister(grpc::CallbackServerContext* context) const;

  SessionManager& manager_;
  SettingsStore& settings_;
  const Identity& identity_;
  const PeerTable& peers_;
  const std::string backend_;
  const std::optional<uid_t> domain_;  // the only user who is served
  OtherDomains* const others_;         // null: this is the only process
  const std::chrono::steady_clock::time_point begin_;

  std::mutex reload_mutex_;
  Reloading reloading_;  // guarded by reload_mutex_

  TraceLease trace_;  // destroyed first: its thread calls StopTraces()
};

}  // namespace detshare
