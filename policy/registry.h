// The policies by name.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "policy/policy.h"

namespace detshare::policy {

// NotFound with the known names for an unknown name; InvalidArgument for options that make no
// sense.
absl::StatusOr<std::unique_ptr<Policy>> CreatePolicy(std::string_view name, const Options& options);
std::vector<std::string> PolicyNames();

}  // namespace detshare::policy
