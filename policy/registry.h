// The policies by name.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "policy/parameters.h"
#include "policy/policy.h"

namespace detshare::policy {

// A name with a slash in it is the path of a shared object (shared_object.h).
// NotFound with the known names for an unknown name; InvalidArgument for parameters that the policy
// does not have, with those that it has, and for values that make no sense.
absl::StatusOr<std::unique_ptr<Policy>> CreatePolicy(std::string_view name, const Options& options);
// What CreatePolicy() takes as parameters of that policy. NotFound as there, and for shared
// objects, which check their parameters themselves.
absl::StatusOr<absl::Span<const Parameter>> ParametersOf(std::string_view name);
std::vector<std::string> PolicyNames();

}  // namespace detshare::policy
