// Policy "temporal": time slices in turn, as NVIDIA's driver gives them to processes. It is a
// baseline for comparisons.
//
// The coroutine whose turn it is has the whole device for a slice of time or of device time,
// whichever ends first. The other coroutines are throttled. A turn ends early if its coroutine has
// no work left, so the device does not wait. Turns go by the order in which coroutines were opened.
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
