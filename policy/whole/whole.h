// Policy "whole": every coroutine runs on the whole device, and the hardware shares it among them.
// It is a baseline for comparisons.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "policy/policy.h"

namespace detshare::policy {

// Takes no parameters.
absl::StatusOr<std::unique_ptr<Policy>> CreateWhole(const Options& options);

}  // namespace detshare::policy
