// An endpoint: a socket of its own that leads to one tenant (tenant_endpoints.h).
#pragma once

#include <unistd.h>

#include <atomic>
#include <string>
#include <vector>

namespace detshare {

// What holds for whoever comes through it. Any thread.
struct TenantEndpoint {
  TenantEndpoint() = default;
  ~TenantEndpoint() {
    if (sessions_fd >= 0) close(sessions_fd);
  }
  TenantEndpoint(const TenantEndpoint&) = delete;
  TenantEndpoint& operator=(const TenantEndpoint&) = delete;

  std::string name;
  std::string tenant;
  std::vector<std::string> device_ids;  // UUIDs of those that are seen through it, in their order
  // Where its sessions have their files, as a path by a descriptor: root in a container may rename
  // and replace what is in its endpoint's directory, and the daemon follows none of that.
  std::string sessions_directory;
  int sessions_fd = -1;
  // Set for good when the endpoint is closed. Connections that were made before may open no session.
  std::atomic<bool> closed{false};
};

}  // namespace detshare
