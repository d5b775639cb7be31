// Policy "temporal": exact turns by weight. Work of two coroutines never runs at the same time.
//
// The coroutine whose turn it is has the whole device. The next turn begins when its work in flight
// is complete. A tenant with several coroutines shares its turns among them. policy/turns has the
// rules.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "policy/parameters.h"
#include "policy/policy.h"

namespace detshare::policy {

absl::Span<const Parameter> TemporalParameters();
// InvalidArgument for options that TemporalParameters() do not allow.
absl::StatusOr<std::unique_ptr<Policy>> CreateTemporal(const Options& options);

}  // namespace detshare::policy
