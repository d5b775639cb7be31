// What a program is told when a tenant or the daemon has as many sessions as it may have.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"

namespace detshare {

// ResourceExhausted. `used` may be above `limit`, which an operator can lower.
absl::Status TenantIsFull(const std::string& tenant, uint64_t used, uint64_t limit);
absl::Status DaemonIsFull(uint64_t used, uint64_t limit);

}  // namespace detshare
