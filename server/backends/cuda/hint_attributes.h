// Converts the hints of launches to the driver's attributes.
#pragma once

#include <cuda.h>

#include "coroutine_runtime/launch_hints.h"

namespace detshare::cuda {

inline constexpr unsigned kMaxHints = 7;

// Writes an attribute for each hint that is set, at most kMaxHints, and returns their number.
unsigned WriteHints(const LaunchHints& hints, CUlaunchAttribute* attributes);

}  // namespace detshare::cuda
