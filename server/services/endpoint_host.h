// The process that owns tenant endpoints, as the endpoints see it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/admin.pb.h"
#include "server/access/tenant_endpoint.h"

namespace detshare {

// TenantEndpoints calls it, on whatever thread.
class EndpointHost {
 public:
  virtual ~EndpointHost() = default;
  // Whether sessions of an earlier process may go on in the endpoints' directories.
  virtual bool SessionsGoOn() const = 0;
  // Returns the devices that these ids name, as TenantEndpoint::device_ids.
  virtual absl::StatusOr<std::vector<std::string>> DevicesOf(
      const std::vector<std::string>& ids) = 0;
  // Changes the settings of the tenant of the endpoint with this number, until its End().
  virtual absl::Status SetTenant(uint64_t endpoint, const proto::TenantSetting& change) = 0;
  // Accepts at the socket, which it owns from now on.
  virtual void Begin(int listen_fd, std::shared_ptr<TenantEndpoint> endpoint) = 0;
  // Accepts no more there, and closes the socket.
  virtual void Stop(int listen_fd) = 0;
  // Ends the sessions that came through the endpoint, which is marked as closed, and its settings.
  virtual void End(const TenantEndpoint& endpoint) = 0;
};

}  // namespace detshare
