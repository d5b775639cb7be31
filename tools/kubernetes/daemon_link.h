// The requests of the device plugin and of the driver for claims to the daemon.
#pragma once

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/admin.grpc.pb.h"
#include "proto/tenant_endpoint.grpc.pb.h"
#include "tools/kubernetes/gpu.h"

namespace detshare::kubernetes {

// A connection to the daemon. Any thread may call it.
class DaemonLink {
 public:
  // `socket` is the daemon's main socket. The caller must be root or the daemon's user.
  explicit DaemonLink(const std::string& socket);

  // The GPUs, in the daemon's order, with the allocators of their endpoints. Unavailable when no
  // daemon replies within ten seconds.
  absl::StatusOr<std::vector<Gpu>> Gpus();
  // The endpoints that are open, with their names, devices and allocators.
  absl::StatusOr<proto::EndpointList> Endpoints();
  // Opens a tenant endpoint. The daemon closes an endpoint of the same name first and ends its
  // sessions. Returns the daemon's status.
  absl::Status OpenEndpoint(const proto::TenantEndpoint& endpoint);
  // The number of endpoints that OpenEndpoint() has opened.
  uint64_t opened() const { return opened_.load(); }
  // Replaces the owner of an open endpoint.
  absl::Status SetOwner(const std::string& endpoint, const proto::Owner& owner);
  // Changes the settings of an open endpoint. NotFound; otherwise the daemon's status.
  absl::Status ChangeEndpoint(const proto::TenantEndpoint& endpoint);
  // Ends the endpoint's sessions and removes it. Ok also if there is none.
  absl::Status CloseEndpoint(const std::string& name);

 private:
  const std::shared_ptr<grpc::Channel> channel_;
  const std::unique_ptr<proto::Admin::Stub> admin_;
  const std::unique_ptr<proto::TenantEndpoints::Stub> endpoints_;
  std::atomic<uint64_t> opened_{0};
};

}  // namespace detshare::kubernetes
