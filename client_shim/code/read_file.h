// Reads files that programs give to the driver by name.
#pragma once

#include <string>

#include "proto/driver_api/cuda_unrenamed.h"

namespace detshare::shim {

// CUDA_ERROR_INVALID_VALUE: the path is empty. CUDA_ERROR_FILE_NOT_FOUND: the file cannot be read.
// CUDA_ERROR_OUT_OF_MEMORY: it is longer than any image, or a folder.
CUresult ReadFile(const char* path, std::string* contents);

}  // namespace detshare::shim
