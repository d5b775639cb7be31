// Hints of launches as the driver takes them.
#pragma once

#include <cuda.h>

#include "coroutine_runtime/launch_hints.h"

namespace detshare::cuda {

inline constexpr unsigned kMaxHints = 7;

// Writes an attribute for each hint that is given, at most kMaxHints, and says how many.
unsigned WriteHints(const LaunchHints& hints, CUlaunchAttribute* attributes);

}  // namespace detshare::cuda
