// Whom somebody waits for goes first; the rest takes what is left and gives way at once.
//
// Ranks: latency tenants by their latency SLO (one that is at least four times longer than the
// shortest of a rank begins the next; none at all counts as the shortest), then tenants without a
// class, then batch. Latency tenants have the whole device and no window, unless somebody else's
// SLO is shorter and he has work. The others run by the terms of guest_terms.h as long as somebody
// of a lower rank is on the device.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "policy/parameters.h"
#include "policy/policy.h"

namespace detshare::policy {

absl::Span<const Parameter> PriorityParameters();
absl::StatusOr<std::unique_ptr<Policy>> CreatePriority(const Options& options);

}  // namespace detshare::policy
