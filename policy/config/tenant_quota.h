// The limits of one tenant.
#pragma once

#include <cstdint>

namespace detshare {

// All sessions of the tenant together share these limits, unless a line says otherwise. 0: no
// limit.
struct TenantQuota {
  uint64_t memory = 0;         // bytes of device memory, on each device
  uint64_t pinned_memory = 0;  // bytes of pinned host memory
  uint64_t sessions = 0;       // sessions at a time
  uint64_t devices = 0;        // devices that one session gets at most
  friend bool operator==(const TenantQuota&, const TenantQuota&) = default;
};

}  // namespace detshare
