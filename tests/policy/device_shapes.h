// The shapes of real devices.
#pragma once

#include "policy/policy.h"

namespace detshare::policy {

inline constexpr DeviceShape kH200{132, 8};
// The same device with time-slice groups.
inline constexpr DeviceShape kPreemptingH200{132, 8, 190 * kMicrosecond};

}  // namespace detshare::policy
