// A GPU of the daemon, as it is offered to Kubernetes.
#pragma once

#include <cstdint>
#include <string>

namespace detshare::kubernetes {

struct Gpu {
  std::string uuid;  // "GPU-8a1b..."
  uint64_t memory = 0;
  bool healthy = false;
  std::string problem;  // why it is not healthy
  // The program that allocates its parts (TenantEndpoint.allocator); "": none has an endpoint there.
  std::string allocator;

  std::string name;
  uint32_t sm_count = 0;
  uint32_t compute_major = 0, compute_minor = 0;
  int driver_version = 0;  // as cuDriverGetVersion returns it

  bool operator==(const Gpu&) const = default;
};

}  // namespace detshare::kubernetes
