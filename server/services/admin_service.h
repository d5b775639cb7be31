// The gRPC service of people and their tools (proto/admin.proto).
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
#include "server/base/event_log.h"
#include "server/access/identity.h"
#include "server/services/other_domains.h"
#include "server/sessions/session_manager.h"
#include "server/services/settings_store.h"

namespace detshare {

class AdminService final : public proto::Admin::CallbackService {
 public:
  // Reads the configuration again and puts it in force; `who` asked for it.
  using Reloading = std::function<absl::StatusOr<proto::Reloaded>(const std::string& who)>;

  AdminService(SessionManager& manager, SettingsStore& settings, const Identity& identity,
               const PeerTable& peers, std::string backend,
               std::optional<uid_t> domain = std::nullopt, OtherDomains* others = nullptr)
      : manager_(manager),
        settings_(settings),
        identity_(identity),
        peers_(peers),
        backend_(std::move(backend)),
        domain_(domain),
        others_(others),
        begin_(std::chrono::steady_clock::now()) {}

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

  // What Reload does; before, there is nothing to read. Any thread.
  void OnReload(Reloading reloading);

 private:
  // Who asked for something; nothing when that is no connection of ours.
  std::optional<Peer> FindPeer(grpc::CallbackServerContext* context) const;
  // Of this process.
  void DescribeSelf(proto::Status* status);
  // Whether the caller means all domains: who may administer and came to the main socket does.
  bool MeansAll(const std::optional<Peer>& peer) const;
  // On the thread for that: adds what the other domains say.
  void DescribeAll(proto::Status* status);
  absl::StatusOr<std::vector<uint64_t>> EndHere(const proto::EndSessionsRequest& request,
                                                const Peer& peer, const std::string& who);
  // Of all domains; on the thread for that.
  absl::Status EndEverywhere(const proto::EndSessionsRequest& request, const Peer& peer,
                             proto::EndedSessions* ended);
  void Note(DaemonEvent::Kind kind, const Peer& peer, std::string tenant, std::string text);
  absl::Status BeginTrace(proto::TraceStarted* started);
  // Whether the caller may change settings, and who it is.
  absl::StatusOr<Peer> MayAdminister(grpc::CallbackServerContext* context) const;

  SessionManager& manager_;
  SettingsStore& settings_;
  const Identity& identity_;
  const PeerTable& peers_;
  const std::string backend_;
  const std::optional<uid_t> domain_;  // the one user who is served
  OtherDomains* const others_;         // null: there are none
  const std::chrono::steady_clock::time_point begin_;

  std::mutex reload_mutex_;
  Reloading reloading_;  // guarded by reload_mutex_

  std::mutex trace_mutex_;                               // guards what follows
  uint64_t trace_ = 0;                                   // number of the latest trace
  bool tracing_ = false;                                 // it goes on
  std::chrono::steady_clock::time_point trace_fetched_;  // the last time
};

}  // namespace detshare
