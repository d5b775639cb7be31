// The gRPC services of the supervisor: those of operators (proto/admin.proto), about all engines,
// and a refusal for programs that get no engine.
#pragma once

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <functional>
#include <string>

#include "proto/admin.grpc.pb.h"
#include "proto/control.grpc.pb.h"
#include "server/access/identity.h"
#include "server/access/owners.h"
#include "server/access/peer_table.h"
#include "server/base/event_log.h"
#include "server/services/engine_calls.h"
#include "server/services/known_devices.h"
#include "server/services/settings_store.h"
#include "server/services/trace_lease.h"

namespace detshare {

class SupervisorService final : public proto::Admin::CallbackService {
 public:
  // `settings` are those of engines that begin later. `settings_changed` lets the engines that run
  // read them, too; it does not wait, and any thread may call it. All arguments outlive this object.
  SupervisorService(EngineCalls& engines, KnownDevices& devices, SettingsStore& settings,
                    std::function<void()> settings_changed, EventLog& events, const Owners& owners,
                    const Identity& identity, PeerTable& peers);

  // Reads the configuration again, on a thread of its own, and calls `done` once.
  using Reloaded = std::function<void(absl::StatusOr<proto::Reloaded>)>;
  using Reloading = std::function<void(const std::string& who, Reloaded done)>;
  // Sets what Reload() calls; without it there is no file. Called before the service serves.
  void OnReload(Reloading reload) { reload_ = std::move(reload); }

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

 private:
  // Runs `job` as a job of engines_, and ends the call with what it returns.
  grpc::ServerUnaryReactor* Finish(grpc::CallbackServerContext* context,
                                   std::function<absl::Status()> job);
  // Adds up what the engines have said for the peer.
  void Describe(const Peer& peer, const EngineCalls::Replies& replies, proto::Status* status);
  // A job of engines_.
  absl::Status End(const proto::EndSessionsRequest& request, const Peer& peer,
                   proto::EndedSessions* ended);
  // A setting was given to the engines, perhaps not to all. The others read it when they can. The
  // caller is warned of one that does not reply. If an engine refuses the setting, it is taken back
  // everywhere. Returns the refusal.
  absl::Status InForce(const absl::StatusOr<bool>& everywhere,
                       grpc::CallbackServerContext* context);
  // Returns whether the peer learns about sessions of that user.
  bool Sees(const Peer& peer, uid_t user) const;
  absl::Status StartTrace(const Peer& peer, proto::TraceStarted* started);
  absl::Status FetchTrace(const proto::FetchTraceRequest& request, proto::TraceChunk* chunk);

  EngineCalls& engines_;
  KnownDevices& devices_;
  SettingsStore& settings_;
  const Owners& owners_;
  const std::function<void()> settings_changed_;
  EventLog& events_;
  const Identity& identity_;
  PeerTable& peers_;
  const std::chrono::steady_clock::time_point begin_;
  Reloading reload_;
  // The traces that the engines take for trace_. A trace that its client has left ends by itself in
  // each engine, as trace_ does.
  EngineCalls::Traces traces_;
  TraceLease trace_;
};

// Tells a program why it gets no session: Peer::tenant says it.
class RefusalService final : public proto::Control::CallbackService {
 public:
  explicit RefusalService(PeerTable& peers) : peers_(peers) {}

  grpc::ServerWriteReactor<proto::SessionEvent>* OpenSession(
      grpc::CallbackServerContext* context, const proto::OpenSessionRequest* request) override;

 private:
  PeerTable& peers_;
};

}  // namespace detshare
