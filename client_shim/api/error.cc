// cuGetErrorName, cuGetErrorString.
#include "proto/driver_api/error_names.h"
#include "proto/driver_api/shim_api.h"

namespace detshare::shim::api {

CUresult cuGetErrorString(CUresult error, const char** pStr) {
  *pStr = ErrorDescription(error);
  return *pStr != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGetErrorName(CUresult error, const char** pStr) {
  *pStr = ErrorName(error);
  return *pStr != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

}  // namespace detshare::shim::api
