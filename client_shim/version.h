// The build that a shim is of.
#pragma once

#include "proto/driver_api/cuda_unrenamed.h"

namespace detshare::shim {

inline constexpr char kShimVersion[] = "0.1.0";
// What cuDriverGetVersion says, with or without a daemon: the interface that the shim implements.
inline constexpr int kDriverVersion = CUDA_VERSION;

}  // namespace detshare::shim
