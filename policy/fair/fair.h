// Policy "fair": shares by weight, in space and over time, without idling.
//
// In space: tenants with work get disjoint partitions in proportion to their weights. If the
// device's partitions do not allow such a division, all tenants use the whole device. A tenant that
// is alone has the whole device.
//
// Over time: the policy compares device time divided by weight among the tenants with work. It
// stops a tenant that is ahead of the last tenant by `lead` or more, and divides the stopped
// tenant's SMs among the others. The stop lasts until the others can have caught up, at most
// `longest_stop`. A tenant that has not caught up by then could not use what it was given, so the
// policy forgets what the tenant missed. So shares converge to the weights if all tenants can use
// their shares, and a tenant with little work does not delay the others. A tenant without work
// saves up no time.
//
// Coroutines of one tenant share its weight.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "policy/parameters.h"
#include "policy/policy.h"

namespace detshare::policy {

absl::Span<const Parameter> FairParameters();
// InvalidArgument for options that FairParameters() do not allow.
absl::StatusOr<std::unique_ptr<Policy>> CreateFair(const Options& options);

}  // namespace detshare::policy
