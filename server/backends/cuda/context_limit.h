// Raises limits of a context that sessions share (CUlimit).
#pragma once

#include <cstdint>

#include "server/backends/cuda/driver_api.h"

namespace detshare::cuda {

// Raises a limit of the current context to at least `value`. Sets `*in_force` to what holds then, or
// to `value` if the driver took it, which may round or clamp it. The driver refuses another size for
// a heap or a printf buffer that a kernel of any session has used. That is no error of the session
// that asks, so the old size stays, and the result is CUDA_SUCCESS. More than `memory` bytes, which
// no program gets, is the driver's error.
CUresult RaiseLimit(const DriverApi& api, CUlimit limit, uint64_t value, uint64_t memory,
                    uint64_t* in_force);

}  // namespace detshare::cuda
