// What the shim says it is.
#pragma once

#include "proto/driver_api/cuda_unrenamed.h"

namespace detshare::shim {

// What cuDriverGetVersion says, with or without a daemon: the interface that the shim implements.
inline constexpr int kDriverVersion = CUDA_VERSION;

}  // namespace detshare::shim
