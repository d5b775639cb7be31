// Everybody runs on the whole device: sharing is left to the hardware.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "policy/policy.h"

namespace detshare::policy {

absl::StatusOr<std::unique_ptr<Policy>> CreateWhole(const Options& options);

}  // namespace detshare::policy
