// Fair shares by weight, in space and over time, without idling.
//
// In space: tenants that have work get disjoint partitions in proportion to their weights, as far
// as the device's partitions allow (else all of them use the whole device). A tenant alone has all.
//
// Over time: what a tenant was given, divided by its weight, is compared among those that have work
// now. Who is ahead of the last one by more than `lead` is stopped, and its SMs divided among the
// others, until the last one can have caught up, at most `longest_stop`; if it has not caught up by
// then it could not use what it was given, and what it missed is forgotten. So shares converge to
// the weights where everybody can use his, and a tenant with little work does not hold up the
// others. Time without work is not saved up.
//
// Coroutines of one tenant share its weight.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "policy/parameters.h"
#include "policy/policy.h"

namespace detshare::policy {

absl::Span<const Parameter> FairParameters();
absl::StatusOr<std::unique_ptr<Policy>> CreateFair(const Options& options);

}  // namespace detshare::policy
