// The names and descriptions of CUresult values. cuGetErrorName and cuGetErrorString return them.
#pragma once

#include <string>

#include "proto/driver_api/cuda_unrenamed.h"

namespace detshare {

// Both return static text, or null for a number that is no CUresult of CUDA 13.0. Any thread.
const char* ErrorName(CUresult result);
const char* ErrorDescription(CUresult result);

// For messages: the name, or "CUDA error 214" for a number that is no CUresult of CUDA 13.0.
std::string ErrorText(int result);

}  // namespace detshare
