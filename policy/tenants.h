// The check of tenants' settings that is common to the policies which use these settings.
#pragma once

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "policy/policy.h"

namespace detshare::policy {

// Of a tenant. Configurations and operators may set it, too.
inline constexpr double kMaxWeight = 1e6;

// InvalidArgument, with the tenant and the reason, for a name that occurs twice, a weight that is
// not above 0, or above kMaxWeight, bounds of SMs that are negative or exclude each other, and
// SLOs below 0.
absl::Status CheckTenants(absl::Span<const Tenant> tenants);

}  // namespace detshare::policy
