// The shapes of real devices.
#pragma once

#include "policy/policy.h"

namespace detshare::policy {

inline constexpr DeviceShape kH200{132, 8};

}  // namespace detshare::policy
