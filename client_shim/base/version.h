// The version of the driver interface that the shim offers.
#pragma once

#include "proto/driver_api/cuda_unrenamed.h"

namespace detshare::shim {

// cuDriverGetVersion returns this version, with or without a daemon. It is the interface that the
// shim implements.
inline constexpr int kDriverVersion = CUDA_VERSION;

}  // namespace detshare::shim
