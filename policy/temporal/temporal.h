// Time slices in turn, as the driver gives them to processes: the baseline.
//
// Whoever has work and the turn has the whole device, for a slice of time or of device time,
// whichever ends first; the others are held. A turn ends early when there is no work left, so the
// device does not wait. Coroutines that came first have their turn first.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "policy/parameters.h"
#include "policy/policy.h"

namespace detshare::policy {

absl::Span<const Parameter> TemporalParameters();
absl::StatusOr<std::unique_ptr<Policy>> CreateTemporal(const Options& options);

}  // namespace detshare::policy
