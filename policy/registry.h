// Makes policies by their names. This is the one place that knows every policy of the daemon.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "policy/parameters.h"
#include "policy/policy.h"
#include "policy/shared_object.h"

namespace detshare::policy {

// A name with a slash in it is the path of a shared object (LoadPolicy() in shared_object.h).
// Under every policy, exclusive tenants have turns (policy/turns).
// NotFound, with the known names, for an unknown name. InvalidArgument, with the known parameters,
// for parameters that the policy does not have, and for values that are not allowed. `warn` is for
// the faults of a shared object.
absl::StatusOr<std::unique_ptr<Policy>> CreatePolicy(std::string_view name, const Options& options,
                                                     Warn warn = nullptr);
// The parameters that CreatePolicy() takes for that policy. NotFound for an unknown name, and for
// shared objects, which check their parameters themselves.
absl::StatusOr<absl::Span<const Parameter>> ParametersOf(std::string_view name);
// The workloads that the policy is for, in a few words for people; "" for an unknown name and for
// shared objects.
std::string PurposeOf(std::string_view name);
std::vector<std::string> PolicyNames();

}  // namespace detshare::policy
