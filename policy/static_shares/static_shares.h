// Fixed shares of the SMs, which never change and never overlap.
//
// A tenant that declares a share (Tenant::sm_percent) has that many SMs, rounded down to whole
// groups but at least one group, from the low end of the device in the order of the configuration.
// All other tenants share the SMs that are left; when none are left, or nobody declares anything,
// they use the whole device.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "policy/policy.h"

namespace detshare::policy {

// Check(): a declared share outside of 0 to 100, more than 100 together, or a tenant named twice
// are refused.
absl::StatusOr<std::unique_ptr<Policy>> CreateStaticShares(const Options& options);

}  // namespace detshare::policy
