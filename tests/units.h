// Units of the figures in tests.
#pragma once

#include <cstdint>

namespace detshare {

inline constexpr uint64_t kMiB = 1 << 20;

}  // namespace detshare
