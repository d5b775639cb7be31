// Files that programs hand to the driver by name.
#pragma once

#include <string>

#include "proto/driver_api/cuda_unrenamed.h"

namespace detshare::shim {

// CUDA_ERROR_FILE_NOT_FOUND when it cannot be read, CUDA_ERROR_OUT_OF_MEMORY when it is longer than
// any image.
CUresult ReadFile(const char* path, std::string* contents);

}  // namespace detshare::shim
