// Serves the programs behind tenant endpoints: they can open sessions and ask what NVML asks. The
// services of operators are not available there.
#pragma once

#include <grpcpp/grpcpp.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "proto/mutex.h"
#include "server/access/acceptor.h"
#include "server/access/identity.h"
#include "server/access/peer_table.h"
#include "server/services/control_service.h"
#include "server/services/endpoint_host.h"
#include "server/services/settings_store.h"
#include "server/services/telemetry_service.h"
#include "server/sessions/session_manager.h"
#include "server/telemetry/telemetry.h"

namespace detshare {

// Any thread may call it.
class ClientServer final : public EndpointHost {
 public:
  // `group` is as in ControlService. The other arguments outlive this object.
  static absl::StatusOr<std::unique_ptr<ClientServer>> Create(
      SessionManager& manager, SettingsStore& settings, Telemetry& telemetry, PeerTable& peers,
      const Identity& identity, std::string group);
  ~ClientServer() override;
  ClientServer(const ClientServer&) = delete;
  ClientServer& operator=(const ClientServer&) = delete;

  // Serves a connection whose peer is in the table. Owns the descriptor.
  void Serve(int connection);
  // Ends the calls in progress. No connection comes any more.
  void Shutdown();

  // ---- EndpointHost
  bool SessionsGoOn() const override { return false; }
  absl::StatusOr<std::vector<std::string>> DevicesOf(const std::vector<std::string>& ids) override;
  absl::Status SetTenant(uint64_t endpoint, const proto::TenantSetting& change) override;
  void Begin(int listen_fd, std::shared_ptr<TenantEndpoint> endpoint) override;
  void Stop(int listen_fd) override;
  void End(const TenantEndpoint& endpoint) override;

 private:
  ClientServer(SessionManager& manager, SettingsStore& settings, Telemetry& telemetry,
               PeerTable& peers, const Identity& identity, std::string group);

  SessionManager& manager_;
  SettingsStore& settings_;
  PeerTable& peers_;
  const Identity& identity_;
  ControlService control_;
  TelemetryService telemetry_;
  std::unique_ptr<grpc::Server> grpc_;

  Mutex mutex_;
  // By listening socket.
  std::map<int, std::unique_ptr<Acceptor>> acceptors_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace detshare
