// Policy "static": fixed shares of the SMs, which never change and never overlap.
//
// A tenant with a share (Tenant::sm_percent) gets that share of the SMs, rounded down to whole
// groups, but at least one group. Tenants get their SMs from the low end of the device, in the
// order of the configuration. All other tenants share the SMs that are left. If none are left, or
// no tenant has a share, they use the whole device.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "policy/policy.h"

namespace detshare::policy {

// Takes no parameters. Check() refuses a share outside of 0 to 100 percent, shares of more than 100
// percent together, and a tenant that occurs twice.
absl::StatusOr<std::unique_ptr<Policy>> CreateStaticShares(const Options& options);

}  // namespace detshare::policy
