// The names and descriptions of CUresult values, as cuGetErrorName and cuGetErrorString give them.
#pragma once

#include "proto/driver_api/cuda_unrenamed.h"

namespace detshare::shim {

// Static text, or null for a number that is no CUresult of CUDA 13.0. Any thread.
const char* ErrorName(CUresult result);
const char* ErrorDescription(CUresult result);

}  // namespace detshare::shim
