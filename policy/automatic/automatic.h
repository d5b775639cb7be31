// Policy "auto": decides by what it is told and, where it is told nothing, by what programs do.
//
// A tenant's class is the operator's; else latency, if it has an SLO or its program produces
// tokens; else what its bursts show, once there was enough of them:
//
//   - latency: bursts of at most `longest_burst` and, between them, pauses of at least half a burst
//     and `least_gap`. It stays so until the pauses are half as long as that;
//   - batch: anything else that works on.
//
// Then programs go by tpot-first, which treats those without tokens by class. When only batch is on
// the device it is divided by weight, as policy fair does. Batch that is bound by memory runs on
// half of the SMs as long as other batch can use the rest: half of the SMs draw nearly all of the
// bandwidth.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "policy/parameters.h"
#include "policy/policy.h"

namespace detshare::policy {

absl::Span<const Parameter> AutomaticParameters();
absl::StatusOr<std::unique_ptr<Policy>> CreateAutomatic(const Options& options);

}  // namespace detshare::policy
