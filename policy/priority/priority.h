// Policy "priority": latency tenants go first. The other tenants are best-effort: they take what is
// left and give way at once.
//
// Latency tenants have ranks by their latency SLO. An SLO that is at least four times the shortest
// SLO of a rank begins the next rank; a latency tenant without an SLO has rank 0. Tenants without a
// class follow, then batch. Latency tenants have the whole device and no window, unless a latency
// tenant of a lower rank has work. The other tenants have the limits of best_effort_limits.h while
// a coroutine of a lower rank is on the device.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "policy/parameters.h"
#include "policy/policy.h"

namespace detshare::policy {

absl::Span<const Parameter> PriorityParameters();
// InvalidArgument for options that PriorityParameters() do not allow.
absl::StatusOr<std::unique_ptr<Policy>> CreatePriority(const Options& options);

}  // namespace detshare::policy
