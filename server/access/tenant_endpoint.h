// The data of one tenant endpoint: a socket that leads to one tenant
// (server/services/tenant_endpoints.h opens and closes them).
#pragma once

#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "server/access/endpoint_use.h"

namespace detshare {

// Applies to every connection that comes through the endpoint. Any thread may read it.
struct TenantEndpoint {
  TenantEndpoint() = default;
  ~TenantEndpoint() {
    if (sessions_fd >= 0) close(sessions_fd);
  }
  TenantEndpoint(const TenantEndpoint&) = delete;
  TenantEndpoint& operator=(const TenantEndpoint&) = delete;

  uint64_t number = 0;  // no other endpoint of this daemon ever has it
  std::string name;
  std::string tenant;
  // The devices that the endpoint shows, in order: UUIDs where there are devices. In the supervisor,
  // which has none, they are the operator's words, and none stands for all devices.
  std::vector<std::string> device_ids;
  // The directory for the files of the endpoint's sessions, as a path by the descriptor
  // `sessions_fd`. Root in a container may rename and replace what lies in the endpoint's
  // directory; a path by a descriptor is not affected.
  std::string sessions_directory;
  int sessions_fd = -1;
  // Set once, when the endpoint is closed. Connections that were made before may open no session
  // then. The store tells SessionManager::Open(), which reads it under its lock, and
  // SessionManager::EndThrough() ends the sessions that were opened before.
  std::atomic<bool> closed{false};
  // What its sessions have used since it was opened.
  mutable EndpointUse use;
};

}  // namespace detshare
