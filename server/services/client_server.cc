#include "server/services/client_server.h"

#include <grpcpp/server_posix.h>
#include <unistd.h>

#include <chrono>
#include <utility>

#include "coroutine_runtime/device.h"
#include "coroutine_runtime/status_cuda.h"
#include "policy/status_macros.h"
#include "proto/device_uuid.h"
#include "server/base/grpc_limits.h"
#include "server/base/logging.h"

namespace detshare {

absl::StatusOr<std::unique_ptr<ClientServer>> ClientServer::Create(
    SessionManager& manager, SettingsStore& settings, Telemetry& telemetry, PeerTable& peers,
    const Identity& identity, std::string group) {
  std::unique_ptr<ClientServer> server(
      new ClientServer(manager, settings, telemetry, peers, identity, std::move(group)));
  grpc::ServerBuilder builder;
  builder.RegisterService(&server->control_);
  builder.RegisterService(&server->telemetry_);
  SetLimits(&builder);
  server->grpc_ = builder.BuildAndStart();
  if (server->grpc_ == nullptr) return absl::InternalError("gRPC did not start");
  return server;
}

ClientServer::ClientServer(SessionManager& manager, SettingsStore& settings, Telemetry& telemetry,
                           PeerTable& peers, const Identity& identity, std::string group)
    : manager_(manager),
      settings_(settings),
      peers_(peers),
      identity_(identity),
      // The files of sessions lie beside the endpoint's socket.
      control_(manager, peers, /*directory_for_clients=*/"", std::move(group)),
      telemetry_(telemetry, peers) {}

ClientServer::~ClientServer() { Shutdown(); }

void ClientServer::Serve(int connection) {
  grpc::AddInsecureChannelFromFd(grpc_.get(), connection);
}

void ClientServer::Shutdown() {
  if (grpc_ == nullptr) return;
  grpc_->Shutdown(std::chrono::system_clock::now() + std::chrono::milliseconds(500));
  grpc_->Wait();
  grpc_.reset();
}

absl::StatusOr<std::vector<std::string>> ClientServer::DevicesOf(
    const std::vector<std::string>& ids) {
  DETSHARE_ASSIGN_OR_RETURN(const std::vector<int> devices, manager_.device_names().Choose(ids));
  std::vector<std::string> uuids;
  for (const int index : devices)
    uuids.push_back(FormatUuid(manager_.devices()[static_cast<size_t>(index)]->properties().uuid));
  return uuids;
}

absl::Status ClientServer::SetTenant(uint64_t endpoint, const proto::TenantSetting& change) {
  return settings_.SetForEndpoint(endpoint, change).status();
}

void ClientServer::Begin(int listen_fd, std::shared_ptr<TenantEndpoint> endpoint) {
  const MutexLock lock(&mutex_);
  acceptors_[listen_fd] = std::make_unique<Acceptor>(
      listen_fd, peers_, identity_, [this](int connection) { Serve(connection); },
      std::move(endpoint));
}

void ClientServer::Stop(int listen_fd) {
  {
    const MutexLock lock(&mutex_);
    acceptors_.erase(listen_fd);
  }
  close(listen_fd);
}

void ClientServer::End(const TenantEndpoint& endpoint) {
  manager_.EndThrough(endpoint, kCudaErrorSystemNotReady, "the endpoint was closed");
  if (const absl::Status unset = settings_.UnsetForEndpoint(endpoint.number); !unset.ok())
    LogWarning("the settings of endpoint ", endpoint.name,
               " stay in force: ", std::string(unset.message()));
}

}  // namespace detshare
